"""Warp-level regions: the four warps of a warpgroup run the region as processes of their own, then meet again.

The region is compiled four times, with the warp's number as a constant, so that each warp's code holds only its role.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Path, regions_of, walk
from mgpu.lang.warps import mesh_of_region
from mgpu.sim.compile.context import Context, Known
from mgpu.sim.compile.race_hooks import note
from mgpu.units import WARPS_PER_WARPGROUP

CompileRegion = Callable[[Context, Any, Path], list[Any]]
_WARPGROUP_ONLY = ("wgmma", "wgmma_wait", "wgmma_accumulator_load", "set_max_registers")


def has_warp_regions(program: KernelProgram) -> bool:
    """True if a program has a warp-level region."""
    return any(mesh_of_region(step.equation) is not None for step in walk(program))


def compile_warp_region(context: Context, equation: Any, path: Path, compile_region: CompileRegion) -> None:
    """Compiles a warp-level region: `warp_map`, or `pl.core_map` over a `WarpMesh`.

    Raises:
      Unsupported: a mesh of something else, or a region inside a region.
    """
    axis_name = mesh_of_region(equation)
    if axis_name is None or context.warp is not None:
        where = " inside a warp-level region" if context.warp is not None else " over another mesh than WarpMesh"
        raise context.unsupported(
            f"{equation.primitive.name}{where}",
            "Inside a kernel, map over mgpu.WarpMesh(axis_name=...) in warpgroup-level code.",
        )
    (region,) = regions_of(equation)
    for inner, outer in region.inputs:
        context.values[inner] = context.read(outer)
    emitter = context.emitter
    emitter.flush()
    prefix = emitter.fresh("warp")
    for warp in range(WARPS_PER_WARPGROUP):
        axes = {**context.axes, axis_name: Known(warp)}
        with emitter.block(f"def {prefix}_{warp}(wg):"):
            emitter.line("process = wg.process; run_work = wg.run_work; owed = lead = 0")
            # Outside the recorded window, the warps record as little as their warpgroup does.
            outside = "" if context.record == "record" else f" if {context.record} is not skip_event else skip_event"
            recorder = emitter.assign(f"wg.record{outside}", "record")
            inside = dataclasses.replace(context, axes=axes, warp=warp, record=recorder)
            compile_region(inside, region.jaxpr, (*path, 0))
            emitter.flush()
            emitter.line("return; yield")  # a generator even if nothing in it waits
    names = ", ".join(f"{prefix}_{warp}" for warp in range(WARPS_PER_WARPGROUP))
    emitter.flush()
    note(context, "fork_warps")
    emitter.line(f"wg.run_warps(({names})); yield None")
    note(context, "join_warps")


def refuse_in_warp(context: Context, name: str) -> None:
    """Refuses an operation that needs all four warps.

    Raises:
      Unsupported: the operation is compiled inside a warp-level region.
    """
    if context.warp is not None and name in _WARPGROUP_ONLY:
        raise context.unsupported(f"{name} in a warp-level region", "It takes a whole warpgroup: move it out.")
