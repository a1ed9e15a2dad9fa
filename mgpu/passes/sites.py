"""Chooses what to record: a site for every named scope and for every operation that can block or starts async work.

`plan_sites` only names places; what an event costs and where it is stored is the target's business.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from mgpu.capture import MAX_SITES
from mgpu.errors import Unsupported
from mgpu.frontend.inline_barriers import NamedBarrierStep, awaited_barrier
from mgpu.frontend.inline_code import Operand
from mgpu.frontend.program import KernelProgram, Launch
from mgpu.frontend.regions import Allocation, Path, Step, walk
from mgpu.lang.barriers import BarrierSpace, arrivals_per_phase
from mgpu.lang.memory import SMEM
from mgpu.lang.primitive import View, unflatten_operands
from mgpu.lang.transforms import bits_of
from mgpu.passes.recorded_loops import RecordedLoop, find_recorded_loops
from mgpu.profile_window import EVERYTHING, ProfileWindow
from mgpu.sites import BarrierInfo, Site, SiteKind


@dataclasses.dataclass(frozen=True)
class SitePlan:
    """Which places of a program are recorded.

    Attributes:
      sites: all sites, by id.
      barriers: all barrier arrays, by id.
      barrier_ids: for the number of a barrier's allocation, its id.
      operations: the site of each recorded equation.
      scopes: sites of the named scopes around an equation within its region, outermost first.
      loops: the loops of which only some iterations are recorded, by their equation's path.
      unrecorded: the site that marks the iterations that are not; -1 if all are.
    """

    sites: tuple[Site, ...]
    barriers: tuple[BarrierInfo, ...]
    barrier_ids: Mapping[int, int]
    operations: Mapping[Path, int]
    scopes: Mapping[Path, tuple[int, ...]]
    loops: Mapping[Path, RecordedLoop] = dataclasses.field(default_factory=dict)
    unrecorded: int = -1


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What the operations of a program mean to the profiler.

    Attributes:
      describe: for the name of a primitive, what makes the fields of its Site; None for an equation that is no site.
      barrier_info: the BarrierInfo of an allocation, given its id; None if it is no barrier.
    """

    describe: Mapping[str, Callable[[Step], dict[str, Any] | None]]
    barrier_info: Callable[[int, Allocation], BarrierInfo | None]


def plan_sites(
    program: KernelProgram, vocabulary: Vocabulary | None = None, window: ProfileWindow | None = None
) -> SitePlan:
    """Finds the sites and barriers of a program, numbered in program order.

    Args:
      program: a traced kernel.
      vocabulary: meaning of its operations; by default those of the kernel language.
      window: the part of a launch that is recorded; by default what the program's parameters say.

    Raises:
      Unsupported: the program has more sites than an event word can name.
      ParamsError: the launch, or its loops, have no such part.
    """
    if window is None:
        window = program.params.profile_window if program.params.profile_space else EVERYTHING
    window.check(f"{program.source} kernel {program.name}", program.launch.num_ctas, program.launch.num_threads)
    vocabulary = vocabulary or LANGUAGE
    sites: list[Site] = []
    barriers: dict[int, BarrierInfo] = {}
    operations: dict[Path, int] = {}
    scopes: dict[Path, tuple[int, ...]] = {}
    scope_sites: dict[tuple[Path, int], int] = {}

    def add(step: Step, **fields: Any) -> int:
        source = step.source
        site = Site(id=len(sites), file=source.file, line=source.line, function=source.function, **fields)
        sites.append(site)
        return site.id

    for step in walk(program):
        for allocation in step.refs.values():
            info = vocabulary.barrier_info(len(barriers), allocation)
            if info is not None and allocation.number not in barriers:
                barriers[allocation.number] = _with_peers(info, allocation, program.launch)
        open_sites = []
        for depth, scope in enumerate(step.scopes):
            # Keyed by the scope object, not its name: two scopes of one name in a row are two sites.
            key = (step.region, id(scope))
            if key not in scope_sites:
                outer = (*step.outer_scopes, *(s.name for s in step.scopes[:depth]))
                scope_sites[key] = add(step, name=scope.name, kind=SiteKind.SCOPE, scope="/".join(outer))
            open_sites.append(scope_sites[key])
        if open_sites:
            scopes[step.path] = tuple(open_sites)
        describe = vocabulary.describe.get(step.equation.primitive.name)
        fields = describe(step) if describe else None
        if fields is not None:
            names = (*step.outer_scopes, *(s.name for s in step.scopes))
            operations[step.path] = add(step, scope="/".join(names), **fields)
    loops = find_recorded_loops(program, {*operations, *scopes}, window.levels)
    if loops:
        sites.append(Site(id=len(sites), name="not recorded", kind=SiteKind.UNRECORDED))
    if len(sites) > MAX_SITES:
        raise Unsupported(
            f"{program.source} kernel {program.name}: {len(sites)} places to record, an event can name {MAX_SITES}. "
            "Use loops instead of unrolled code, or record without profile_space."
        )
    ids = {number: info.id for number, info in barriers.items()}
    unrecorded = sites[-1].id if loops else -1
    return SitePlan(tuple(sites), tuple(barriers.values()), ids, operations, scopes, loops, unrecorded)


def _barrier_info(number: int, allocation: Allocation) -> BarrierInfo | None:
    space = allocation.aval.memory_space
    if not isinstance(space, BarrierSpace):
        return None
    return BarrierInfo(number, allocation.name, math.prod(allocation.aval.shape), space.num_arrivals)


def _with_peers(info: BarrierInfo, allocation: Allocation, launch: Launch) -> BarrierInfo:
    """Counts the arrivals of all CTAs of the cluster that a barrier joins."""
    space = allocation.aval.memory_space
    if not isinstance(space, BarrierSpace) or not space.collective_axes:
        return info
    sizes = dict(zip(launch.cluster_names, launch.cluster, strict=True))
    return dataclasses.replace(info, num_arrivals=arrivals_per_phase(space, sizes))


def _operands(step: Step) -> list[Any]:
    return unflatten_operands(step.equation.params["tree"], step.equation.invars)


def _name(step: Step, operand: Any) -> str:
    if isinstance(operand, View):
        return step.refs[operand.ref].name
    return "registers"


def size_bytes(view: View) -> int:
    """Returns the bytes of the part of a buffer that an operand selects."""
    return math.prod(view.shape) * bits_of(view.dtype) // 8


def _wait(step: Step) -> dict[str, Any]:
    (barrier,) = _operands(step)
    name = _name(step, barrier)
    return {"kind": SiteKind.BARRIER_WAIT, "name": f"wait {name}", "barrier": name}


def _arrive(step: Step) -> dict[str, Any]:
    barrier = _operands(step)[0]
    name = _name(step, barrier)
    return {"kind": SiteKind.BARRIER_ARRIVE, "name": f"arrive {name}", "barrier": name}


def _async_store(step: Step) -> dict[str, Any]:
    _, ref, barrier = _operands(step)
    buffer, name = _name(step, ref), _name(step, barrier)
    size = size_bytes(ref)
    return {
        "kind": SiteKind.BARRIER_ARRIVE,
        "name": f"store {buffer} of a peer",
        "barrier": name,
        "buffer": buffer,
        "size_bytes": size,
    }


def _prefetch(step: Step) -> dict[str, Any]:
    ref = _operands(step)[0]
    return {"kind": SiteKind.TMA_LOAD, "name": f"prefetch {_name(step, ref)}", "size_bytes": size_bytes(ref)}


def _semaphore_wait(step: Step, semaphore: Any) -> dict[str, Any]:
    return {"kind": SiteKind.SYNC, "name": f"wait semaphore {step.refs[semaphore].name}"}


def _load(step: Step) -> dict[str, Any]:
    _, dst, barrier = _operands(step)[:3]
    buffer = _name(step, dst)
    return {
        "kind": SiteKind.TMA_LOAD,
        "name": f"load {buffer}",
        "buffer": buffer,
        "barrier": _name(step, barrier),
        "size_bytes": size_bytes(dst),
    }


def _store(step: Step) -> dict[str, Any]:
    src, dst = _operands(step)[:2]
    return {
        "kind": SiteKind.TMA_STORE,
        "name": f"store {_name(step, dst)}",
        "buffer": _name(step, src),
        "size_bytes": size_bytes(src),
    }


def _wgmma(step: Step) -> dict[str, Any]:
    acc, a, b = _operands(step)
    m, n = acc.shape
    flops = 2 * m * n * b.shape[0]
    buffer = _name(step, a) if isinstance(a, View) else ""
    bits = bits_of(b.dtype)
    return {"kind": SiteKind.MMA_ISSUE, "name": "wgmma", "buffer": buffer, "flops": flops, "operand_bits": bits}


def _wgmma_wait(step: Step) -> dict[str, Any]:
    return {"kind": SiteKind.MMA_WAIT, "name": "wait wgmma", "in_flight": int(step.equation.params["n"])}


def _store_wait(step: Step) -> dict[str, Any]:
    return {"kind": SiteKind.STORE_WAIT, "name": "wait stores", "in_flight": int(step.equation.params["n"])}


def _accumulator_load(step: Step) -> dict[str, Any] | None:
    left = step.equation.params["wait_n"]
    if left is None:
        return None
    return {"kind": SiteKind.MMA_WAIT, "name": "wait wgmma (read acc)", "in_flight": int(left)}


def _inline(step: Step) -> dict[str, Any] | None:
    operands = [
        Operand(each.shape, each.dtype, each.space is SMEM)
        if isinstance(each, View)
        else Operand(tuple(each.aval.shape), each.aval.dtype)
        for each in _operands(step)
    ]
    return named_barrier_site(awaited_barrier(step.equation.params["inlined"], operands))


def named_barrier_site(barrier: NamedBarrierStep | None) -> dict[str, Any] | None:
    """Returns the site of a wait at a named barrier; None if there is no wait."""
    if barrier is None:
        return None
    return {"kind": SiteKind.SYNC, "name": f"named barrier{'' if barrier.number is None else f' {barrier.number}'}"}


_DESCRIBE: Mapping[str, Callable[[Step], dict[str, Any] | None]] = {
    "inline_mgpu": _inline,
    "barrier_wait": _wait,
    "barrier_arrive": _arrive,
    "copy_gmem_to_smem": _load,
    "copy_smem_to_gmem": _store,
    "async_store_smem": _async_store,
    "async_prefetch": _prefetch,
    "mgpu_semaphore_wait": lambda step: _semaphore_wait(step, _operands(step)[0].ref),
    "semaphore_wait": lambda step: _semaphore_wait(step, step.equation.invars[0]),
    "wait_smem_to_gmem": _store_wait,
    "wgmma": _wgmma,
    "wgmma_wait": _wgmma_wait,
    "wgmma_accumulator_load": _accumulator_load,
    "commit_smem": lambda _: {"kind": SiteKind.COMMIT_SMEM, "name": "commit_smem"},
    "set_max_registers": lambda _: {"kind": SiteKind.SET_REGISTERS, "name": "set_max_registers"},
}

LANGUAGE = Vocabulary(_DESCRIBE, _barrier_info)
