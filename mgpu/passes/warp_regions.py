"""Checks of warp-level regions: a single warp computes on scalars, and moves arrays only by copies between memories."""

from __future__ import annotations

import math
from typing import Any

from mgpu.errors import KernelTypeError
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Path, Step, regions_of, walk
from mgpu.jax_internals import AbstractRef
from mgpu.lang.warps import mesh_of_region

_READS = ("get", "load")
_WRITES = ("swap", "store", "addupdate", "atomic")


def check_warp_regions(program: KernelProgram) -> None:
    """Checks that arrays stay out of warp-level regions, over whose warps they are spread, and `barrier_test` inside.

    Raises:
      KernelTypeError: names the user's line, the array, and what to do instead.
    """
    inside: Path | None = None
    for step in walk(program):
        if inside is not None and step.path[: len(inside)] == inside:
            _check_step(step)
        elif mesh_of_region(step.equation) is not None:
            inside = step.path
            _check_closure(step)
        else:
            inside = None
            _check_outside(step)


def _check_outside(step: Step) -> None:
    if step.equation.primitive.name == "barrier_test":
        raise KernelTypeError(
            f"{step.source} barrier_test: the four warps of a warpgroup ask one after the other and may get different "
            "answers, on which they would part. Ask from one warp, inside mgpu.warp_map, or use barrier_wait."
        )


def _is_array(atom: Any) -> bool:
    aval = atom.aval
    return not isinstance(aval, AbstractRef) and math.prod(getattr(aval, "shape", ())) > 1


def _describe(atom: Any) -> str:
    return f"{atom.aval.dtype.name}{list(atom.aval.shape)}"


def _check_closure(step: Step) -> None:
    for region in regions_of(step.equation):
        for _, outer in region.inputs:
            if _is_array(outer):
                raise KernelTypeError(
                    f"{step.source} warp-level region: closes over an array {_describe(outer)}, which is spread over "
                    "the registers of all four warps; only scalars and refs can be closed over. Store it to SMEM "
                    "before the region, and use the ref."
                )


def _check_step(step: Step) -> None:
    equation = step.equation
    name = equation.primitive.name
    array = next(filter(_is_array, (*equation.outvars, *equation.invars)), None)
    if array is None:
        return
    if name in _READS or name in _WRITES:
        verb = "loads" if name in _READS else "stores"
        problem = f"{name}: a warp-level region {verb} an array {_describe(array)}, and one warp {verb} only scalars"
    else:
        problem = f"{name}: a warp-level region computes on an array {_describe(array)}, and one warp has only scalars"
    raise KernelTypeError(
        f"{step.source} {problem}. Do it before or after the region, or move the data with copy_gmem_to_smem and "
        "copy_smem_to_gmem."
    )
