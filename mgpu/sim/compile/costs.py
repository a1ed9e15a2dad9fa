"""What register arithmetic costs: work on the SM's shared pipes for each element of a tile.

Counts are instructions per element of the usual SASS expansion, in lanes of the pipe that executes them. Rates of the
pipes are the device table's (CUDA C++ best practices guide, throughput of native arithmetic instructions, 9.0).
Two 16-bit floats share a lane (HFMA2). `exp2`, `log2`, `rsqrt`, reciprocal and sine are MUFU instructions; functions
with another base or domain add FMAs to scale; division adds the Newton steps that IEEE rounding needs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgpu.devices import Device
from mgpu.sim.values import is_narrow_float
from mgpu.sim.warp_schedulers import Work
from mgpu.units import LANES_PER_WARP

# Function: (MUFU, FMA) instructions per element, exact and with approx_math.
_FUNCTIONS = {
    "exp": ((1, 2), (1, 1)),
    "exp2": ((1, 2), (1, 0)),
    "log": ((1, 6), (1, 1)),
    "log2": ((1, 6), (1, 0)),
    "log1p": ((1, 10), (1, 2)),
    "expm1": ((1, 10), (1, 2)),
    "rsqrt": ((1, 2), (1, 0)),
    "sqrt": ((1, 6), (1, 1)),
    "sin": ((1, 20), (1, 1)),
    "cos": ((1, 20), (1, 1)),
    "tan": ((2, 30), (2, 2)),
    "tanh": ((2, 10), (1, 0)),
    "logistic": ((2, 6), (2, 2)),
    "erf": ((1, 16), (1, 16)),
    "pow": ((2, 20), (2, 2)),
    "div": ((1, 8), (1, 1)),
    "rem": ((1, 12), (1, 4)),
}
_FREE = (
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "expand_dims",
    "slice",
    "transpose",
    "copy",
    "copy_p",
    "stop_gradient",
    "bitcast_convert_type",
    "iota",
)
# On floats too these run at the integer pipe's rate (CUDA C++ programming guide, "compare, minimum, maximum").
_COMPARING = ("max", "min", "eq", "ne", "lt", "le", "gt", "ge", "select_n", "clamp", "abs", "neg", "sign", "is_finite")
# Steps of a butterfly reduction within the four lanes that share a row of a wgmma accumulator (PTX ISA, wgmma
# accumulator fragment layout).
_ROW_SHUFFLES = 2
_INTEGER_DIVISION = 20  # IMAD and shift sequence that replaces the missing instruction; estimate
# By a constant: the high half of a product with its reciprocal, a shift and a correction of the sign; a remainder takes
# a product and a subtraction more (Granlund and Montgomery, "Division by Invariant Integers using Multiplication").
_CONSTANT_DIVISION = {"div": 4, "rem": 6}


def work_of(primitive: str, in_aval: Any, out_aval: Any, *, approx_math: bool, by_constant: bool = False) -> Work:
    """Returns the work of an element-wise, conversion or reduction equation.

    Args:
      primitive: name of the JAX primitive.
      in_aval: aval of its first array operand.
      out_aval: aval of its result.
      approx_math: whether the approximate instructions may be used.
      by_constant: whether the second operand is a constant.
    """
    if primitive in _FREE:
        return Work()
    if by_constant and primitive in _CONSTANT_DIVISION and not _is_float(np.dtype(in_aval.dtype)):
        work = Work(alu=math.prod(out_aval.shape) * _CONSTANT_DIVISION[primitive])
    else:
        work = _pipe_work(primitive, in_aval, out_aval, approx_math)
    lanes = work.fma + work.alu + work.mufu + work.cvt + work.shuffle
    return work._replace(issue=math.ceil(lanes / LANES_PER_WARP))


def _pipe_work(primitive: str, in_aval: Any, out_aval: Any, approx_math: bool) -> Work:
    elements = math.prod(out_aval.shape)
    if primitive.startswith(("reduce_", "arg")):
        return _reduction(primitive, in_aval, elements)
    if primitive == "convert_element_type":
        return _conversion(in_aval, out_aval, elements)
    dtype = np.dtype(in_aval.dtype)
    if _is_float(dtype) and primitive not in _COMPARING:
        mufu, fma = _FUNCTIONS.get(primitive, ((0, 1), (0, 1)))[approx_math]
        lanes = elements / (2 if dtype.itemsize == 2 else 1)
        return Work(fma=math.ceil(fma * lanes), mufu=mufu * elements)
    return Work(alu=elements * (_INTEGER_DIVISION if primitive in ("div", "rem") else 1))


def latency_of(primitive: str, device: Device) -> int:
    """Returns the cycles after which a dependent instruction can use the result of an equation."""
    if primitive in _FREE:
        return 0
    if primitive.startswith(("reduce_", "arg")):
        return _ROW_SHUFFLES * device.shuffle_latency_cycles
    if primitive in _FUNCTIONS:
        return device.mufu_latency_cycles
    return device.arithmetic_latency_cycles


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or is_narrow_float(dtype)


def _conversion(in_aval: Any, out_aval: Any, elements: int) -> Work:
    source, target = np.dtype(in_aval.dtype), np.dtype(out_aval.dtype)
    if source == target or (source == np.bool_ and not _is_float(target)):
        return Work()
    narrow = is_narrow_float(target)
    return Work(cvt=math.ceil(elements / 2) if narrow else elements)  # one instruction packs two narrow floats


def _reduction(primitive: str, in_aval: Any, results: int) -> Work:
    elements = math.prod(in_aval.shape)
    shuffles = _ROW_SHUFFLES * results * 4  # every lane of the four that hold a row takes part
    if primitive in ("reduce_sum", "reduce_prod") and _is_float(np.dtype(in_aval.dtype)):
        return Work(fma=elements, shuffle=shuffles)
    return Work(alu=elements, shuffle=shuffles)
