"""How an operation of the language becomes a JAX primitive: operands, effect, errors.

An operation takes refs (perhaps sliced by `.at`), arrays and static parameters. A JAX primitive takes flat values, so a
ref travels as its base ref and the leaves of its transforms; the parameter `tree` puts them together again. The same
`unflatten_operands` serves abstract evaluation (over avals), static checks and the targets (over jaxpr variables).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend import core as jex_core

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import (
    AbstractRef,
    Effect,
    TransformedRef,
    allow_in_control_flow,
    current_source_line,
    hide_from_source_lines,
)
from mgpu.lang.memory import MemorySpace

hide_from_source_lines(__file__)


class KernelEffect(Effect):
    """Marks an operation as one that does something: it may not be dropped, duplicated or moved."""

    def __str__(self) -> str:
        return "MgpuKernel"


kernel_effect = KernelEffect()
allow_in_control_flow(KernelEffect)


def is_ref(value: Any) -> bool:
    """True if `value` is a ref or a slice of one (traced, or its aval)."""
    if isinstance(value, (TransformedRef, AbstractRef)):
        return True
    return isinstance(getattr(value, "aval", None), AbstractRef)


def flatten_operands(*operands: Any) -> tuple[list[Any], Any]:
    """Returns the flat values of `operands` (refs, arrays or None) and the tree that puts them together again."""
    split = [(x.ref, x.transforms) if isinstance(x, TransformedRef) else x for x in operands]
    return jax.tree.flatten(split, is_leaf=lambda x: isinstance(x, AbstractRef))


@dataclasses.dataclass(frozen=True)
class View:
    """A ref operand as an operation sees it: the base ref and the transforms on it, over avals or jaxpr variables."""

    ref: Any
    transforms: tuple[Any, ...]

    @property
    def base(self) -> AbstractRef:
        """Aval of the whole buffer."""
        return self.ref if isinstance(self.ref, AbstractRef) else self.ref.aval

    @property
    def aval(self) -> Any:
        """Aval of the part that the transforms select."""
        aval: Any = self.base
        for transform in self.transforms:
            aval = transform.transform_type(aval)
        return aval

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape of the selected part."""
        return tuple(self.aval.shape)

    @property
    def dtype(self) -> np.dtype:
        """Element type of the selected part."""
        return self.aval.dtype

    @property
    def space(self) -> MemorySpace | None:
        """Memory space; None for what is no memory, such as a barrier."""
        space = self.aval.memory_space
        if space is None or isinstance(space, jax.memory.Space):
            return MemorySpace.GMEM  # a ref from outside the kernel (`jax.new_ref`), inside a `pl.core_map`
        return getattr(space, "kind", None)

    def __str__(self) -> str:
        where = f" in {self.space.name}" if isinstance(self.space, MemorySpace) else ""
        return f"{self.dtype.name}{list(self.shape)}{where}"


def unflatten_operands(tree: Any, values: Sequence[Any]) -> list[Any]:
    """Undoes `flatten_operands`: refs come back as `View`s, arrays as they are."""
    operands = jax.tree.unflatten(tree, values)
    return [_as_view(operand) for operand in operands]


def _as_view(operand: Any) -> Any:
    if isinstance(operand, tuple):
        return View(operand[0], tuple(operand[1]))
    aval = operand if isinstance(operand, AbstractRef) else getattr(operand, "aval", None)
    return View(operand, ()) if isinstance(aval, AbstractRef) else operand


_NUM_VALUES_OF_ACCESSES = {"get": 1, "swap": 2, "addupdate": 2}  # operands before the transforms


def views_of(equation: Any) -> list[View]:
    """Returns the ref operands of an equation: of the language's own operations, and of JAX's get and swap."""
    name, tree = equation.primitive.name, equation.params.get("tree")
    if name in _NUM_VALUES_OF_ACCESSES:
        leaves = equation.invars[_NUM_VALUES_OF_ACCESSES[name] :]
        return [View(equation.invars[0], tuple(jax.tree.unflatten(tree, leaves)))]
    if tree is None:
        return []
    return [operand for operand in unflatten_operands(tree, equation.invars) if isinstance(operand, View)]


def define_operation(
    name: str, check: Callable[..., Sequence[ShapedArray] | ShapedArray], *, multiple_results: bool = True
) -> jex_core.Primitive:
    """Makes the primitive of an operation.

    Args:
      name: what the operation is called in jaxprs and errors.
      check: called as `check(*operands, **params)` with refs as `View`s of avals and arrays as avals; returns the avals
        of the results, and raises what is wrong.
      multiple_results: False if `check` returns a single aval and the operation a single array.
    """
    primitive = jex_core.Primitive(name)
    primitive.multiple_results = multiple_results

    @primitive.def_effectful_abstract_eval
    def abstract_eval(*avals: Any, tree: Any, **params: Any) -> tuple[Any, Any]:
        return check(*unflatten_operands(tree, avals), **params), {kernel_effect}

    @primitive.def_impl
    def impl(*_args: Any, **_params: Any) -> Any:
        raise KernelTypeError(
            f"{current_source_line()} {name}: called outside a kernel. It works on a simulated or real warpgroup; "
            "call it in the body that is passed to mgpu.kernel."
        )

    return primitive


def bind(primitive: jex_core.Primitive, *operands: Any, **params: Any) -> Any:
    """Calls an operation's primitive on refs, arrays and static parameters."""
    values, tree = flatten_operands(*operands)
    return primitive.bind(*values, tree=tree, **params)


def type_error(operation: str, message: str) -> KernelTypeError:
    """Returns the error for a misused operation, with the user's source line in front."""
    return KernelTypeError(f"{current_source_line()} {operation}: {message}")


def require_ref(operation: str, argument: str, value: Any, space: MemorySpace) -> View:
    """Returns `value` as a View if it is a ref in `space`; else raises the error that says so."""
    if not isinstance(value, View):
        raise type_error(operation, f"{argument} must be a ref in {space.name}, got an array {describe(value)}.")
    if value.space is not space:
        got = value.space.name if isinstance(value.space, MemorySpace) else str(value.base.memory_space)
        raise type_error(
            operation, f"{argument} must be in {space.name}, got {value.dtype.name}{list(value.shape)} in {got}."
        )
    return value


def describe(value: Any) -> str:
    """Returns `bf16[64, 128]`-like text for an aval or View."""
    if isinstance(value, View):
        return str(value)
    aval = getattr(value, "aval", value)
    return f"{np.dtype(aval.dtype).name}{list(aval.shape)}" if hasattr(aval, "shape") else repr(value)
