"""What an operand stands for: functions that give its bits in each lane of a warp."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from support.ptx.lanes import LANES
from support.ptx.machine import Warp
from support.ptx.memory import PARAM_BASE, SHARED_BASE
from support.ptx.parse import Address, Immediate, Kernel, Operand, PtxError, Register, Special, Symbol, Vector

Reader = Callable[[Warp], np.ndarray]


def reader(operand: Operand, kernel: Kernel) -> Reader:
    """Returns what gives an operand's bits, uint64[32]."""
    if isinstance(operand, Register):
        return lambda warp: warp.read(operand)
    if isinstance(operand, Immediate):
        constant = np.full(LANES, operand.bits % (1 << 64), np.uint64)
        return lambda warp: constant
    if isinstance(operand, Special):
        return _special(operand.name)
    if isinstance(operand, Symbol):
        constant = np.full(LANES, address_of(operand, kernel), np.uint64)
        return lambda warp: constant
    if isinstance(operand, Address) and not operand.coordinates:
        base, offset = reader(operand.base, kernel), np.uint64(operand.offset % (1 << 64))
        return lambda warp: base(warp) + offset
    raise PtxError(f"operand {operand} has no value")


def address_of(symbol: Symbol, kernel: Kernel) -> int:
    """Returns the address that a name stands for."""
    if symbol.name in kernel.params:
        return PARAM_BASE + kernel.params[symbol.name][0]
    if symbol.name in kernel.shared:
        return SHARED_BASE  # the one dynamic variable
    raise PtxError(f"{symbol.name} is no register, parameter or variable")


def registers_of(operand: Operand) -> list[Register | None]:
    """Returns the destinations that an operand names; None for `_`."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return [register_or_sink(item) for item in items]


def register_or_sink(operand: Operand) -> Register | None:
    """Returns a destination register, None for `_`."""
    if isinstance(operand, Register):
        return operand
    if operand == Symbol("_"):
        return None
    raise PtxError(f"{operand} is no destination")


def _special(name: str) -> Reader:
    """Returns what reads a special register (PTX ISA 8.7, section 10)."""
    axis = "xyz".find(name[-1]) if name[-2:] in (".x", ".y", ".z") else -1
    family = name[:-2] if axis >= 0 else name

    def same(value: Callable[[Warp], int]) -> Reader:
        return lambda warp: np.full(LANES, value(warp), np.uint64)

    if family == "%tid":
        return lambda warp: warp.tid[axis].astype(np.uint64)
    if family in ("%laneid", "%lanemask_lt"):
        lanes = np.arange(LANES, dtype=np.uint64)
        values = lanes if family == "%laneid" else (np.uint64(1) << lanes) - np.uint64(1)
        return lambda warp: values
    table: dict[str, Callable[[Warp], int]] = {
        "%ntid": lambda warp: warp.machine.launch.block[axis],
        "%ctaid": lambda warp: warp.cta.index[axis],
        "%nctaid": lambda warp: warp.machine.launch.grid[axis],
        "%cluster_ctaid": lambda warp: warp.cta.index[axis] % warp.machine.launch.cluster[axis],
        "%cluster_nctaid": lambda warp: warp.machine.launch.cluster[axis],
        "%clusterid": lambda warp: warp.cta.index[axis] // warp.machine.launch.cluster[axis],
        "%cluster_ctarank": lambda warp: warp.cta.rank,
        "%warpid": lambda warp: warp.number,
        "%smid": lambda warp: warp.cta.sm,
        "%clock": lambda warp: warp.machine.clock(warp.cta.sm) & 0xFFFFFFFF,
        "%clock64": lambda warp: warp.machine.clock(warp.cta.sm),
        "%globaltimer": lambda warp: warp.machine.global_timer(),
        "%globaltimer_lo": lambda warp: warp.machine.global_timer() & 0xFFFFFFFF,
    }
    if family not in table:
        raise PtxError(f"special register {name} is not known")
    return same(table[family])
