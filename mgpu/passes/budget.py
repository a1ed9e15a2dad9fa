"""What a CTA of a program needs: SMEM, registers, barriers, and room for recorded events."""

from __future__ import annotations

import dataclasses
import math

from mgpu.capture import EVENT_BYTES
from mgpu.errors import ResourceError
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Allocation, Path, Step, scoped_allocations, walk
from mgpu.jax_internals import AbstractRef
from mgpu.lang.barriers import BarrierSpace
from mgpu.lang.hopper import AccumulatorSpace
from mgpu.lang.memory import SMEM
from mgpu.lang.transforms import bits_of
from mgpu.params import TraceScope
from mgpu.units import LANES_PER_WARPGROUP, WARPS_PER_WARPGROUP, format_bytes

BARRIER_BYTES = 8  # PTX ISA: an mbarrier object is 64 bits
TILED_ALIGNMENT_BYTES = 1024  # PTX ISA: the swizzle pattern of wgmma and TMA repeats every 1024 bytes
PLAIN_ALIGNMENT_BYTES = 128  # CUDA driver API: a TMA box starts at a multiple of 128 bytes

SPILL_EVENTS = 16
"""Places behind the last event of a track: the device's recorder writes there what does not fit."""

BASE_REGISTERS = 40  # addresses, loop counters and predicates of a typical warpgroup; an estimate
# The same beside accumulators. Published kernels have it between 40 and 64: with 128 registers of accumulators two CTAs
# of 128 threads fit on an SM, not three (github pranjalssh/fast.cu, kernel 3: 703 + 1415 cycles for a step, 325 us for
# all), and with 64 registers two CTAs of 256 threads (github triton-lang/triton, python/tutorials/gluon/05-wgmma.py).
BASE_REGISTERS_BESIDE_ACCUMULATORS = 56
MAX_REGISTERS_PER_THREAD = 255  # CUDA programming guide, compute capability 9.0


@dataclasses.dataclass(frozen=True)
class Budget:
    """What one CTA takes.

    Attributes:
      smem_bytes: shared memory without the event buffer.
      profile_bytes: event buffer of the CTA, all tracks.
      profile_in_smem: whether the event buffer fits beside the kernel's SMEM; if not it lies in GMEM.
      registers_per_thread: registers that a thread owns at launch.
      num_warpgroups: warpgroups of the CTA.
    """

    smem_bytes: int
    profile_bytes: int
    profile_in_smem: bool
    registers_per_thread: int
    num_warpgroups: int

    @property
    def total_smem_bytes(self) -> int:
        """Shared memory of the CTA with the event buffer."""
        return self.smem_bytes + (self.profile_bytes if self.profile_in_smem else 0)


def plan_budget(program: KernelProgram, *, smem_per_cta_bytes: int, registers_per_sm: int) -> Budget:
    """Adds up what a CTA of `program` needs.

    Args:
      program: the traced kernel.
      smem_per_cta_bytes: the most shared memory that a CTA may have.
      registers_per_sm: registers of an SM.

    Raises:
      ResourceError: the kernel needs more shared memory or threads than a CTA may have; lists what takes how much.
    """
    smem, parts = _smem_bytes(program)
    if smem > smem_per_cta_bytes:
        parts = sorted(parts, key=lambda part: -allocation_bytes(part))[:6]
        inner = [step for step in walk(program) if step.allocated and len(step.path) > 1]
        lines: dict[Path, str] = {step.path: f" ({step.source})" for step in inner}
        listing = ", ".join(
            f"{part.name} {format_bytes(allocation_bytes(part))}{lines.get(part.path, '')}" for part in parts
        )
        raise ResourceError(
            f"{program.source} kernel {program.name}: needs {format_bytes(smem)} of SMEM, a CTA has "
            f"{format_bytes(smem_per_cta_bytes)} ({smem - smem_per_cta_bytes} bytes too many). Largest: {listing}. "
            "Use fewer pipeline stages or smaller tiles."
        )
    params, launch = program.params, program.launch
    recorded = len(params.profile_window.recorded_warpgroups(launch.num_threads))
    tracks = recorded * (WARPS_PER_WARPGROUP if params.profile_trace_scope is TraceScope.WARP else 1)
    profile = tracks * (params.profile_space + SPILL_EVENTS) * EVENT_BYTES if params.profile_space else 0
    threads = launch.num_threads * LANES_PER_WARPGROUP
    if threads > 1024:
        raise ResourceError(
            f"{program.source} kernel {program.name}: num_threads={launch.num_threads} warpgroups are {threads} "
            "threads; a CTA has at most 1024. Use at most 8 warpgroups."
        )
    return Budget(
        smem_bytes=smem,
        profile_bytes=profile,
        profile_in_smem=smem + profile <= smem_per_cta_bytes,
        registers_per_thread=_registers_per_thread(program, threads, registers_per_sm),
        num_warpgroups=launch.num_threads,
    )


def allocation_bytes(allocation: Allocation) -> int:
    """Returns the SMEM that an allocation takes, alignment included; 0 if it is not in SMEM."""
    aval, space = allocation.aval, allocation.aval.memory_space
    count = math.prod(aval.shape)
    if isinstance(space, BarrierSpace):
        return _align(count * BARRIER_BYTES, PLAIN_ALIGNMENT_BYTES)
    if getattr(space, "kind", None) is SMEM:
        alignment = TILED_ALIGNMENT_BYTES if space.transforms else PLAIN_ALIGNMENT_BYTES
        return _align(count * bits_of(aval.dtype) // 8, alignment)
    return 0


def _align(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _smem_bytes(program: KernelProgram) -> tuple[int, list[Allocation]]:
    """Most SMEM alive at once, and what takes it: scopes nest like a stack, scopes side by side use the same bytes."""
    scopes = scoped_allocations(program)
    own = {path: sum(map(allocation_bytes, found)) for path, found in scopes.items()}
    alive = {path: sum(size for other, size in own.items() if path[: len(other)] == other) for path in own}
    reduction = program.params.reduction_scratch_bytes if _has_reduction(program) else 0
    deepest = max(alive, key=lambda path: alive[path], default=())
    parts = [
        allocation
        for path, found in scopes.items()
        if deepest[: len(path)] == path
        for allocation in found
        if allocation_bytes(allocation)
    ]
    return alive.get(deepest, 0) + reduction, parts


def _has_reduction(program: KernelProgram) -> bool:
    return any(step.equation.primitive.name.startswith("reduce_") for step in walk(program))


def _registers_per_thread(program: KernelProgram, threads: int, registers_per_sm: int) -> int:
    most = min(MAX_REGISTERS_PER_THREAD, registers_per_sm // threads // 8 * 8)
    needed, base = 0, BASE_REGISTERS
    for step in walk(program):
        if step.equation.primitive.name == "set_max_registers":
            return most  # registers move between warpgroups, so the CTA takes all that it can
        values = [var.aval for var in step.equation.outvars if not isinstance(var.aval, AbstractRef)]
        if step.equation.primitive.name == "wgmma_accumulator_load":
            values = []  # what is read stays where it is: in the accumulator's own registers
        sizes = list(map(_register_bits, values))
        alive = {ref.number: ref for ref in step.refs.values() if _is_accumulator(ref)}
        accumulators = sum(_register_bits(ref.aval) for ref in alive.values())
        if alive:
            base = BASE_REGISTERS_BESIDE_ACCUMULATORS
        _check_accumulators(program, step, list(alive.values()))
        needed = max(needed, accumulators + max(sizes, default=0))
    registers = base + needed // (32 * LANES_PER_WARPGROUP)
    return min(most, _align(registers, 8))


def _check_accumulators(program: KernelProgram, step: Step, alive: list[Allocation]) -> None:
    """A thread's share of the accumulators has to stay in its registers: spilled ones would have to be simulated too.

    Raises:
      ResourceError: it does not fit.
    """
    shares = {ref: _register_bits(ref.aval) // (32 * LANES_PER_WARPGROUP) for ref in alive}
    total = sum(shares.values())
    if total > MAX_REGISTERS_PER_THREAD:
        listing = ", ".join(f"{ref.name} {list(ref.aval.shape)} {count}" for ref, count in shares.items())
        raise ResourceError(
            f"{step.source} kernel {program.name}: the accumulators that are alive here take {total} registers of each "
            f"thread, which has at most {MAX_REGISTERS_PER_THREAD}: {listing}. Use smaller tiles, or divide the tile "
            "among more warpgroups."
        )


def _is_accumulator(allocation: Allocation) -> bool:
    return isinstance(allocation.aval.memory_space, AccumulatorSpace)


def _register_bits(aval: object) -> int:
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", None)
    return math.prod(shape) * bits_of(dtype) if shape and dtype is not None else 0
