"""`inline_mgpu`: a step of a kernel written with the GPU compiler's own Python API instead of this language.

The function builds IR when JAX's Mosaic GPU compiler lowers the kernel for a GPU. The simulator builds the same IR and
runs it lane by lane (`mgpu.sim.inline`): arithmetic, loops and branches, shuffles, loads and stores through refs
without transforms, named barriers and fences. What needs the compiler's launch context, tiled refs or other PTX it
refuses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import TransformedRef, current_source_line, hide_from_source_lines
from mgpu.lang.layouts import Layout, ParameterizedLayout, ReducedLayout
from mgpu.lang.primitive import View, bind, define_operation, describe, is_ref, type_error

hide_from_source_lines(__file__)


@dataclasses.dataclass(frozen=True)
class RefType:
    """Says that an argument of an inlined function is a ref.

    Attributes:
      transforms: how its SMEM is laid out: `TilingTransform`, then `SwizzleTransform`.
    """

    transforms: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True)
class ShapeDtypeStruct:
    """The type of an array that an inlined function returns.

    Attributes:
      shape: logical shape.
      dtype: element type.
      layout: register layout: a `Layout`, perhaps with parameters or reduced.
    """

    shape: tuple[int, ...]
    dtype: Any
    layout: Any


@dataclasses.dataclass(frozen=True, eq=False)
class InlinedFunction:
    """An inlined function and its type; a static parameter of the operation, compared by identity.

    Attributes:
      function: called with the compiler's launch context, then the arguments; returns arrays like `return_type`.
      arg_types: pytree of `RefType`s and layouts for each argument.
      return_type: pytree of `ShapeDtypeStruct`s.
    """

    function: Callable[..., Any]
    arg_types: tuple[Any, ...]
    return_type: Any


def inline_mgpu(*, arg_types: Sequence[Any] = (), return_type: Any = None) -> Callable[[Callable[..., Any]], Any]:
    """Makes a decorator that puts code written with the GPU compiler's own API into a kernel.

    Args:
      arg_types: for each argument of the function a pytree of `RefType`s (for refs) and register layouts (for arrays).
      return_type: pytree of `ShapeDtypeStruct`s: what the function returns.

    Returns:
      A decorator. What it returns takes refs and arrays inside a kernel and gives arrays of `return_type`.

    Raises:
      KernelTypeError: leaves of other types; when called, arguments that do not match `arg_types`.
      Unsupported: when the kernel is simulated: the function does what the simulator cannot run; names that, and the
        author's line.

    Timing:
      The simulator charges the work of the steps on the SM's pipes and their longest dependent chain. What it does to
      SMEM through a ref counts, for races, as access to all of the ref; accesses to GMEM are not watched.
    """
    types, returned = tuple(arg_types), jax.tree.leaves(return_type)
    for leaf in jax.tree.leaves(types):
        if not isinstance(leaf, (RefType, Layout, ParameterizedLayout, ReducedLayout)):
            raise KernelTypeError(
                f"{current_source_line()} inline_mgpu: arg_types holds {leaf!r}. Give RefType() for a ref, and the "
                "layout, such as Layout.WGMMA, for an array."
            )
    for leaf in returned:
        if not isinstance(leaf, ShapeDtypeStruct):
            raise KernelTypeError(
                f"{current_source_line()} inline_mgpu: return_type holds {leaf!r}. Give an mgpu.ShapeDtypeStruct, "
                "which has a layout, for each array."
            )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        inlined = InlinedFunction(function, types, return_type)

        def call(*args: Any) -> Any:
            operands, given = jax.tree.flatten(args, is_leaf=lambda x: isinstance(x, TransformedRef))
            expected = jax.tree.structure(types)
            if given != expected:
                raise type_error(OPERATION, f"the arguments are {given}, but arg_types is {expected}. Make them alike.")
            operands = [operand if is_ref(operand) else jax.numpy.asarray(operand) for operand in operands]
            return jax.tree.unflatten(jax.tree.structure(return_type), bind(inline_p, *operands, inlined=inlined))

        return call

    return decorate


OPERATION = "inline_mgpu"


def _check(*operands: Any, inlined: InlinedFunction) -> list[ShapedArray]:
    for number, (operand, kind) in enumerate(zip(operands, jax.tree.leaves(inlined.arg_types), strict=True)):
        if isinstance(operand, View) != isinstance(kind, RefType):
            expected = "a ref" if isinstance(kind, RefType) else f"an array in {kind}"
            raise type_error(OPERATION, f"argument {number} (flat) must be {expected}, got {describe(operand)}.")
    return [ShapedArray(tuple(each.shape), np.dtype(each.dtype)) for each in jax.tree.leaves(inlined.return_type)]


inline_p = define_operation(OPERATION, _check)
