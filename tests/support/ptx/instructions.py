"""From an instruction to the function that a warp calls: what it does to the lanes of a mask.

The families are in files of their own; what none of them knows is refused by name.
"""

from __future__ import annotations

import numpy as np

from support.ptx import accesses, bulk_copies, matrices, synchronisation
from support.ptx.arithmetic import compute
from support.ptx.lanes import dtype_of, is_type
from support.ptx.machine import Step, Warp
from support.ptx.operands import reader, registers_of
from support.ptx.parse import Instruction, Kernel, PtxError, Register, Vector

# They order accesses, prefetch or change what other kernels may do: this machine has no weak memory and no caches.
_WITHOUT_EFFECT = (
    "fence",
    "membar",
    "prefetch",
    "prefetchu",
    "setmaxnreg",
    "griddepcontrol",
    "nanosleep",
    "applypriority",
)


def translate(instruction: Instruction, kernel: Kernel) -> Step:
    """Returns what executes an instruction."""
    name = instruction.parts[0]
    if name in ("ret", "exit"):
        return _end
    if name == "bra" or name in _WITHOUT_EFFECT:
        return _nothing
    if name == "trap":
        return _trap
    for family in (accesses, synchronisation, bulk_copies, matrices):
        step = family.translate(instruction, kernel)
        if step is not None:
            return step
    if name == "mov" and any(isinstance(operand, Vector) for operand in instruction.operands):
        return _pack(instruction, kernel)
    function = compute(instruction.parts)
    target, sources = instruction.operands[0], instruction.operands[1:]
    if function is None or not isinstance(target, Register):
        raise PtxError(f"this machine does not know {instruction.text[:120]!r}")
    register, readers = target, [reader(source, kernel) for source in sources]

    def step(warp: Warp, mask: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            result = function(*(read(warp) for read in readers))
        warp.write(register, result, mask)

    return step


def _nothing(_warp: Warp, _mask: np.ndarray) -> None:
    pass


def _end(warp: Warp, mask: np.ndarray) -> None:
    warp.alive = warp.alive & ~mask


def _trap(warp: Warp, _mask: np.ndarray) -> None:
    raise PtxError("the kernel traps")


def _pack(instruction: Instruction, kernel: Kernel) -> Step:
    """`mov` between a register and a vector of narrower ones, the lowest bits first."""
    target, source = instruction.operands
    width = next(dtype_of(part).itemsize * 8 for part in instruction.parts if is_type(part))
    if isinstance(source, Vector):
        assert isinstance(target, Register)
        readers = [reader(item, kernel) for item in source.items]
        part = width // len(readers)

        def pack(warp: Warp, mask: np.ndarray) -> None:
            bits = np.zeros(32, np.uint64)
            for number, read in enumerate(readers):
                bits |= (read(warp) & np.uint64((1 << part) - 1)) << np.uint64(number * part)
            warp.write(target, bits, mask)

        return pack
    targets = registers_of(target)
    read, part = reader(source, kernel), width // len(targets)

    def unpack(warp: Warp, mask: np.ndarray) -> None:
        for number, each in enumerate(targets):
            if each is not None:
                warp.write(each, read(warp) >> np.uint64(number * part) & np.uint64((1 << part) - 1), mask)

    return unpack
