"""Outputs that are the same memory as inputs. `plgpu.kernel` has no argument for it; the primitive beneath it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from mgpu.frontend.from_pallas import is_kernel_equation
from mgpu.frontend.pallas_rules.translator import is_jaxpr, open_jaxpr


def call_with_aliases(
    function: Callable[..., Any], operands: Sequence[Any], aliases: Sequence[tuple[int, int]]
) -> list[Any]:
    """Calls a kernel made by JAX's `plgpu.kernel` with outputs aliased to inputs.

    Args:
      function: the kernel.
      operands: its operands.
      aliases: pairs of an operand's number and an output's.

    Returns:
      The outputs, flat.
    """
    jaxpr, _ = open_jaxpr(jax.make_jaxpr(function)(*operands))
    while not is_kernel_equation(jaxpr.eqns[0]):  # the kernel is wrapped in calls that only pass operands on
        jaxpr, _ = open_jaxpr(next(value for _, value in sorted(jaxpr.eqns[0].params.items()) if is_jaxpr(value)))
    (equation,) = jaxpr.eqns
    assert list(equation.invars) == list(jaxpr.invars), "a kernel's wrappers keep the order of its operands"
    params = dict(equation.params)
    params["input_output_aliases"] = type(params["input_output_aliases"])(dict(aliases))
    return equation.primitive.bind(*operands, **params)
