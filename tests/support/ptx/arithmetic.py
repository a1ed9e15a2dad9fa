"""Instructions that compute: registers in, registers out, each lane for itself (PTX ISA 8.7, sections 9.7.1 to 9.7.9).

`compute(parts)` returns a function of the operands' bits (uint64 arrays of 32 lanes) to the result's bits.
`.approx` functions are computed in float32; `fma` is rounded once from float64.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from support.ptx.lanes import dtype_of, is_type, typed, untyped
from support.ptx.parse import PtxError

Function = Callable[..., np.ndarray]

_SIMPLE: dict[str, Function] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "neg": lambda a: -a,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "div": lambda a, b: a / b if a.dtype.kind == "f" else np.where(b == 0, -1, a // np.where(b == 0, 1, b)),
    "rem": lambda a, b: np.fmod(a, np.where(b == 0, 1, b)),
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "mov": lambda a: a,
    "brev": lambda a: np.array([int(f"{int(x):032b}"[::-1], 2) for x in a], np.uint32),
    "popc": lambda a: np.array([int(x).bit_count() for x in a]),
}

_COMPARE: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def compute(parts: tuple[str, ...]) -> Function | None:
    """Returns what an instruction computes, or None if it is not one of those here."""
    name, rest = parts[0], parts[1:]
    types = [part for part in rest if is_type(part) or part in ("pred", "f16x2", "bf16x2")]
    if not types:
        return None
    if name == "setp":
        return _comparison(rest, types[-1])
    if name == "cvt":
        return _conversion(rest, types)
    if name == "selp":
        return lambda a, b, choose: np.where(choose != 0, a, b)
    if types[-1] in ("f16x2", "bf16x2") and name in _SIMPLE | {"fma": None}:
        return _halves(name, types[-1])
    if types[-1] == "pred":
        return _on_predicates(name)
    if name in ("shl", "shr"):
        return _shift(name, types[-1])
    if name in ("mul", "mad") and types[-1][0] != "f" and rest[0] in ("lo", "hi", "wide"):
        return _product(rest[0], types[-1])
    if name == "fma":
        return _typed(_fma, types[-1])
    if name in ("min", "max") and types[-1][0] == "f" and "NaN" not in rest:
        return _typed(np.fmin if name == "min" else np.fmax, types[-1])
    if name in _SIMPLE and "sat" not in rest:
        return _typed(_SIMPLE[name], types[-1])
    return None


def _typed(function: Function, kind: str) -> Function:
    def call(*bits: np.ndarray) -> np.ndarray:
        return untyped(function(*(typed(each, kind) for each in bits)), kind)

    return call


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)


def _halves(name: str, kind: str) -> Function:
    one = _typed(_fma if name == "fma" else _SIMPLE[name], kind.removesuffix("x2"))

    def call(*bits: np.ndarray) -> np.ndarray:
        low, high = one(*(each & np.uint64(0xFFFF) for each in bits)), one(*(each >> np.uint64(16) for each in bits))
        return low | high << np.uint64(16)

    return call


def _on_predicates(name: str) -> Function:
    one = np.uint64(1)
    table: dict[str, Function] = {
        "mov": lambda a: a,
        "not": lambda a: a ^ one,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
    }
    return table[name]


def _shift(name: str, kind: str) -> Function:
    width = dtype_of(kind).itemsize * 8

    def call(a: np.ndarray, amount: np.ndarray) -> np.ndarray:
        by = np.minimum(amount & np.uint64(0xFFFFFFFF), np.uint64(width))
        inside = np.minimum(by, np.uint64(width - 1))
        value = typed(a, kind)
        if name == "shl":
            return np.where(by >= width, np.uint64(0), untyped(value << inside.astype(value.dtype), kind))
        shifted = value >> inside.astype(value.dtype)
        return np.where((by >= width) & (kind[0] != "s"), np.uint64(0), untyped(shifted, kind))

    return call


def _product(part: str, kind: str) -> Function:
    width = dtype_of(kind).itemsize * 8
    letter = "s" if kind[0] == "s" else "u"
    wide = f"{letter}{2 * width}"

    def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The whole product, as Python integers where 64 bits do not hold it."""
        if width < 64:
            return typed(a, kind).astype(dtype_of(wide)) * typed(b, kind).astype(dtype_of(wide))
        return typed(a, kind).astype(object) * typed(b, kind).astype(object)

    def call(a: np.ndarray, b: np.ndarray, *addend: np.ndarray) -> np.ndarray:
        if part == "lo":
            low = typed(a, kind) * typed(b, kind)
            return untyped(low + typed(addend[0], kind) if addend else low, kind)
        product = exact(a, b)
        if part == "wide":
            return untyped(product + typed(addend[0], wide) if addend else product, wide)
        high = (product >> width).astype(dtype_of(kind))
        return untyped(high + typed(addend[0], kind) if addend else high, kind)

    return call


def _comparison(rest: tuple[str, ...], kind: str) -> Function:
    name = rest[0]
    aliases = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
    unordered = kind[0] == "f" and name.endswith("u")
    name = aliases.get(name, name.removesuffix("u") if unordered else name)
    combine = next((part for part in rest[1:] if part in ("and", "or", "xor")), None)
    if kind == "pred" or name not in _COMPARE:
        raise PtxError(f"setp.{'.'.join(rest)} is not known")

    def call(a: np.ndarray, b: np.ndarray, *also: np.ndarray) -> np.ndarray:
        left, right = typed(a, kind), typed(b, kind)
        found = _COMPARE[name](left, right)
        if kind[0] == "f":
            is_nan = np.isnan(left) | np.isnan(right)
            found = found | is_nan if unordered else found & ~is_nan
        result = found.astype(np.uint64)
        return _on_predicates(combine)(result, also[0]) if combine else result

    return call


def _conversion(rest: tuple[str, ...], types: list[str]) -> Function:
    to, source = types
    if to in ("f16x2", "bf16x2"):
        half = to.removesuffix("x2")

        def pack(high: np.ndarray, low: np.ndarray) -> np.ndarray:
            first, second = (untyped(typed(bits, source).astype(dtype_of(half)), half) for bits in (high, low))
            return first << np.uint64(16) | second

        return pack
    rounding = next((part for part in rest if part in ("rzi", "rni", "rmi", "rpi")), None)
    rounded = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil, None: lambda x: x}[rounding]

    def call(bits: np.ndarray) -> np.ndarray:
        value = typed(bits, source)
        if source[0] in "fb" and to[0] in "us" and not source.startswith("b1") and value.dtype.kind == "f":
            limits = np.iinfo(dtype_of(to))
            value = np.nan_to_num(np.clip(rounded(value.astype(np.float64)), limits.min, limits.max))
        return untyped(value, to)

    return call
