"""Matrices: `ldmatrix`, `stmatrix` and wgmma of Hopper (PTX ISA 8.7, sections 9.7.14.5 and 9.7.15).

A wgmma is done when it is issued, each warp its own 16 rows; products are summed in float32 by NumPy, in another order
than the tensor core's. What is not a product of two 16-bit floats is out of scope.
"""

from __future__ import annotations

import re

import numpy as np

from support.ptx.copies import swizzled
from support.ptx.lanes import LANES, typed, untyped
from support.ptx.machine import BLOCKED, Cta, Step, Warp
from support.ptx.operands import reader, registers_of
from support.ptx.parse import Instruction, Kernel, PtxError, Vector

_LANE = np.arange(LANES)
_K = 16  # of a wgmma of 16-bit operands
_ROW_BYTES = {0: 16, 1: 128, 2: 64, 3: 32}  # swizzle of a matrix descriptor, bits 62 and 63


def translate(instruction: Instruction, kernel: Kernel) -> Step | None:
    """Returns what executes an instruction of this family; None for another."""
    parts = instruction.parts
    if parts[0] in ("ldmatrix", "stmatrix"):
        return _move_tiles(instruction, kernel)
    if parts[0] != "wgmma":
        return None
    if parts[1] == "mma_async":
        return _product(instruction, kernel)
    return lambda warp, mask: BLOCKED if (warp.alive & ~mask).any() else None


def _move_tiles(instruction: Instruction, kernel: Kernel) -> Step:
    """8x8 tiles of 16 bits: lane 8 j + r names row r of tile j; lane l holds elements 2 (l % 4), + 1 of row l / 4."""
    is_load = instruction.parts[0] == "ldmatrix"
    vector, address = instruction.operands if is_load else instruction.operands[::-1]
    is_transposed = "trans" in instruction.parts
    if instruction.parts[-1] != "b16":
        raise PtxError(f"this machine does not know {instruction.text[:120]!r}")
    rows_at = reader(address, kernel)
    items = vector.items if isinstance(vector, Vector) else (vector,)
    row, column = _LANE // 4, _LANE % 4 * 2

    def places(rows: np.ndarray, tile: int, half: int) -> np.ndarray:
        r, c = (column + half, row) if is_transposed else (row, column + half)
        begins = rows[8 * tile + r]
        if (begins % np.uint64(16)).any():
            raise PtxError("a row of a tile is not aligned to 16 bytes")
        return begins + (2 * c).astype(np.uint64)

    def load(warp: Warp, mask: np.ndarray) -> object:
        if (warp.alive & ~mask).any():
            return BLOCKED
        rows = rows_at(warp) & np.uint64(0xFFFFFFFF)
        for tile, register in enumerate(registers_of(vector)):
            low, high = (warp.cta.shared.load(places(rows, tile, half), 2) for half in (0, 1))
            assert register is not None
            warp.write(register, low | high << np.uint64(16), mask)
        return None

    sources = [] if is_load else [reader(item, kernel) for item in items]

    def store(warp: Warp, mask: np.ndarray) -> object:
        if (warp.alive & ~mask).any():
            return BLOCKED
        rows = rows_at(warp) & np.uint64(0xFFFFFFFF)
        for tile, read in enumerate(sources):
            for half in (0, 1):
                warp.cta.shared.store(places(rows, tile, half), read(warp) >> np.uint64(16 * half), 2)
        return None

    return load if is_load else store


def _product(instruction: Instruction, kernel: Kernel) -> Step:
    """`wgmma.mma_async.sync.aligned.mMnNk16.f32.A.B d, a, b, scale_d, scale_a, scale_b[, trans_a][, trans_b]`."""
    shape = re.fullmatch(r"m64n(\d+)k16", next(part for part in instruction.parts if part.startswith("m64n")))
    kinds = instruction.parts[-3:]
    if shape is None or kinds[0] != "f32" or kinds[1] not in ("f16", "bf16"):
        raise PtxError(f"this machine does not know {'.'.join(instruction.parts)}")
    n, kind = int(shape[1]), kinds[1]
    target, a, b, *flags = instruction.operands
    accumulators = registers_of(target)
    scale_d, *signs = (reader(flag, kernel) for flag in flags)
    in_registers = isinstance(a, Vector)
    fragments = [reader(item, kernel) for item in a.items] if isinstance(a, Vector) else []
    a_at, b_at = None if in_registers else reader(a, kernel), reader(b, kernel)

    def step(warp: Warp, mask: np.ndarray) -> object:
        if (warp.alive & ~mask).any():
            return BLOCKED
        values = [int(sign(warp)[0]) for sign in signs]
        if [value & 3 for value in values[:2]] != [1, 1]:
            raise PtxError("wgmma with a negated operand is not known here")
        # A from registers has no such flag; without any, both operands have k as their fast axis.
        is_major = [False, False, *(bool(value) for value in values[2:])][-2:]
        first_row = warp.number % 4 * 16
        if a_at is None:
            left = _fragment_of_a([read(warp) for read in fragments], kind)
        else:
            rows = first_row + np.arange(16)
            left = _from_shared(warp.cta, int(a_at(warp)[0]), rows, kind, is_major=is_major[0])
        right = _from_shared(warp.cta, int(b_at(warp)[0]), np.arange(n), kind, is_major=is_major[1])
        product = left @ right.T
        accumulates = (scale_d(warp) != 0).all()
        row, column = _LANE // 4, _LANE % 4 * 2
        for number, register in enumerate(accumulators):
            assert register is not None
            place = (row + number // 2 % 2 * 8, number // 4 * 8 + column + number % 2)
            result = product[place]
            if accumulates:
                result = result + typed(warp.read(register), "f32")
            warp.write(register, untyped(result, "f32"), mask)
        return None

    return step


def _fragment_of_a(registers: list[np.ndarray], kind: str) -> np.ndarray:
    """Returns the 16 x 16 part of A that a warp holds in four registers."""
    tile = np.zeros((16, _K), np.float32)
    for number, bits in enumerate(registers):
        for half in (0, 1):
            values = typed(bits >> np.uint64(16 * half), kind).astype(np.float32)
            tile[_LANE // 4 + number % 2 * 8, _LANE % 4 * 2 + number // 2 * 8 + half] = values
    return tile


def _from_shared(cta: Cta, descriptor: int, rows: np.ndarray, kind: str, *, is_major: bool) -> np.ndarray:
    """Returns rows of an operand, 16 columns (k) each, from where a matrix descriptor says they lie.

    Rows are those of A or the columns of B. `is_major`: neighbouring rows are neighbours in memory, not columns.
    """
    begin, leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    row_bytes = _ROW_BYTES[descriptor >> 62 & 3]
    if descriptor >> 49 & 7:
        raise PtxError("matrix descriptors with a base offset are not known here")
    row, k = rows[:, None], np.arange(_K)[None, :]
    per_row = row_bytes // 2
    if row_bytes == 16:
        raise PtxError("matrix descriptors without swizzle are not known here")
    if is_major:
        addresses = begin + row // per_row * leading + k // 8 * stride + k % 8 * row_bytes + row % per_row * 2
    else:
        addresses = begin + row // 8 * stride + row % 8 * row_bytes + k * 2
    found = cta.shared.load(swizzled(addresses, row_bytes).reshape(-1), 2)
    return typed(found, kind).astype(np.float32).reshape(len(rows), _K)
