"""Whether the event buffer fits into SMEM beside what the kernel allocates there."""

from __future__ import annotations

import math

from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Allocation, scoped_allocations
from mgpu.gpu.recorder import RecordFormat
from mgpu.lang.barriers import BarrierSpace
from mgpu.lang.memory import SMEM
from mgpu.lang.transforms import bits_of

ALIGNMENT_BYTES = 1024  # JAX's Mosaic GPU module starts every SMEM allocation at a multiple of this
BARRIER_BYTES = 8  # PTX ISA: an mbarrier object is 64 bits


def smem_bytes(program: KernelProgram) -> int:
    """Returns the SMEM of a CTA without the event buffer, as JAX's module allocates it; when in doubt, too much."""
    scopes = scoped_allocations(program)
    own = {path: sum(map(_smem_bytes, found)) for path, found in scopes.items()}
    alive = [sum(size for other, size in own.items() if path[: len(other)] == other) for path in own]
    barriers = sum(
        math.prod(a.aval.shape) * BARRIER_BYTES for found in scopes.values() for a in found if _is_barrier(a)
    )
    return max(alive, default=0) + _align(barriers) + _align(program.params.reduction_scratch_bytes)


def buffer_bytes(layout: RecordFormat) -> int:
    """Returns the SMEM that the event buffer takes from a CTA."""
    return _align(4 * layout.smem_words)


def fits_in_smem(program: KernelProgram, layout: RecordFormat, smem_per_cta_bytes: int) -> bool:
    """True if a CTA of the program and its event buffer take at most `smem_per_cta_bytes` together."""
    return smem_bytes(program) + buffer_bytes(layout) <= smem_per_cta_bytes


def _smem_bytes(allocation: Allocation) -> int:
    if getattr(allocation.aval.memory_space, "kind", None) is not SMEM:
        return 0
    return _align(math.prod(allocation.aval.shape) * bits_of(allocation.aval.dtype) // 8)


def _is_barrier(allocation: Allocation) -> bool:
    return isinstance(allocation.aval.memory_space, BarrierSpace)


def _align(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
