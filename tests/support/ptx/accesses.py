"""Loads, stores, atomics and conversions of addresses (PTX ISA 8.7, section 9.7.9 and 9.7.13.5 to 7)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from support.ptx.arithmetic import compute
from support.ptx.lanes import dtype_of, is_type, typed, untyped
from support.ptx.machine import Step, Warp
from support.ptx.memory import PEER_SHIFT
from support.ptx.operands import reader, registers_of
from support.ptx.parse import Address, Instruction, Kernel, PtxError, Register, Vector

_SHARED = ("shared", "shared::cta", "shared::cluster")
_ELSEWHERE = ("local", "const", "tex")


def translate(instruction: Instruction, kernel: Kernel) -> Step | None:
    """Returns what executes an instruction of this family; None for another."""
    name = instruction.parts[0]
    if name == "ld":
        return _load(instruction, kernel)
    if name == "st" and "async" not in instruction.parts:
        return _store(instruction, kernel)
    if name in ("atom", "red") and "async" not in instruction.parts:
        return _atomic(instruction, kernel)
    if name == "cvta":
        return _same_address(instruction, kernel)
    if name == "mapa":
        return _peer_address(instruction, kernel)
    return None


def _space(instruction: Instruction) -> str:
    """Returns "shared" or "global"; generic addresses are those of global memory and parameters."""
    parts = instruction.parts
    if any(part in _ELSEWHERE for part in parts):
        raise PtxError(f"this machine has no such memory: {instruction.text[:120]}")
    return "shared" if any(part in _SHARED for part in parts) else "global"


def _width(instruction: Instruction) -> tuple[str, int]:
    kind = next(part for part in reversed(instruction.parts) if is_type(part))
    return kind, dtype_of(kind).itemsize


def _each_region(warp: Warp, space: str, addresses: np.ndarray, mask: np.ndarray) -> list[tuple]:
    """Returns (region, lanes, addresses in it) for the lanes of a mask."""
    lanes = np.flatnonzero(mask)
    here = addresses[lanes]
    if space == "global":
        return [(warp.machine.memory.at(int(here[0])), lanes, here)]
    ranks = here >> np.uint64(PEER_SHIFT)
    found = []
    for rank in np.unique(ranks):
        own = ranks == rank
        cta, _ = warp.cta.at(int(here[own][0]))
        found.append((cta.shared, lanes[own], here[own] & np.uint64((1 << PEER_SHIFT) - 1)))
    return found


def _load(instruction: Instruction, kernel: Kernel) -> Step:
    target, source = instruction.operands
    space, (kind, size) = _space(instruction), _width(instruction)
    targets, address = registers_of(target), reader(source, kernel)

    def step(warp: Warp, mask: np.ndarray) -> None:
        first = address(warp)
        _check_alignment(first[mask], size * len(targets))
        for number, register in enumerate(targets):
            values = np.zeros(32, np.uint64)
            for region, lanes, where in _each_region(warp, space, first + np.uint64(number * size), mask):
                values[lanes] = region.load(where, size)
            if kind[0] == "s" and size < 4:
                values = untyped(typed(values, kind), "s32")
            if register is not None:
                warp.write(register, values, mask)

    return step


def _store(instruction: Instruction, kernel: Kernel) -> Step:
    target, source = instruction.operands
    space, (_, size) = _space(instruction), _width(instruction)
    items = source.items if isinstance(source, Vector) else (source,)
    address, values = reader(target, kernel), [reader(item, kernel) for item in items]

    def step(warp: Warp, mask: np.ndarray) -> None:
        first = address(warp)
        _check_alignment(first[mask], size * len(items))
        for number, value in enumerate(values):
            bits = value(warp)
            for region, lanes, where in _each_region(warp, space, first + np.uint64(number * size), mask):
                region.store(where, bits[lanes], size)

    return step


def _check_alignment(addresses: np.ndarray, size: int) -> None:
    if (addresses % np.uint64(size)).any():
        raise PtxError(f"misaligned access of {size} bytes at {int(addresses[0]):#x}")


def _atomic(instruction: Instruction, kernel: Kernel) -> Step:
    """Lane after lane: load, combine, store."""
    returns = instruction.parts[0] == "atom"
    register = instruction.operands[0] if returns else None
    assert register is None or isinstance(register, Register)
    address, *values = instruction.operands[returns:]
    assert isinstance(address, Address)
    space, (kind, size) = _space(instruction), _width(instruction)
    combine = _combination(instruction, kind)
    place, readers = reader(address, kernel), [reader(value, kernel) for value in values]

    def step(warp: Warp, mask: np.ndarray) -> None:
        addresses, operands = place(warp), [read(warp) for read in readers]
        before = np.zeros(32, np.uint64)
        for region, lanes, where in _each_region(warp, space, addresses, mask):
            for lane, at in zip(lanes, where, strict=True):
                only = np.array([at])
                old = region.load(only, size)
                before[lane] = old[0]
                region.store(only, combine(old, *(operand[lane : lane + 1] for operand in operands)), size)
        if register is not None:
            warp.write(register, before, mask)

    return step


def _combination(instruction: Instruction, kind: str) -> Callable[..., np.ndarray]:
    names = ("add", "min", "max", "and", "or", "xor", "exch", "cas")
    name = next((part for part in instruction.parts if part in names), None)
    if name is None:
        raise PtxError(f"this machine does not know {instruction.text[:120]!r}")
    if name == "exch":
        return lambda _, value: value
    if name == "cas":
        return lambda old, expected, value: np.where(old == expected, value, old)
    combine = compute((name, kind))
    assert combine is not None
    return combine


def _same_address(instruction: Instruction, kernel: Kernel) -> Step:
    """Global memory and parameters have the same addresses in their own and in the generic window here."""
    if not any(part in ("global", "param") for part in instruction.parts):
        raise PtxError(f"this machine has no generic addresses of that memory: {instruction.text[:120]}")
    target, source = instruction.operands
    assert isinstance(target, Register)
    read = reader(source, kernel)
    return lambda warp, mask: warp.write(target, read(warp), mask)


def _peer_address(instruction: Instruction, kernel: Kernel) -> Step:
    target, source, peer = instruction.operands
    assert isinstance(target, Register)
    read, rank = reader(source, kernel), reader(peer, kernel)
    offset = np.uint64((1 << PEER_SHIFT) - 1)

    def step(warp: Warp, mask: np.ndarray) -> None:
        ranks = rank(warp)
        if (ranks[mask] >= len(warp.cta.cluster)).any():
            raise PtxError(f"mapa to CTA {int(ranks[mask][0])} of a cluster of {len(warp.cta.cluster)}")
        warp.write(target, (read(warp) & offset) | (ranks + np.uint64(1)) << np.uint64(PEER_SHIFT), mask)

    return step
