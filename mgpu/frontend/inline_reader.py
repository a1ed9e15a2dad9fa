"""Reads what an `inline_mgpu` function does from the IR that it builds.

The function is called with the compiler's own objects, just as when the kernel is lowered for a GPU, on a block whose
arguments stand for the registers of each array and for each ref. Nothing is compiled.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.mosaic import gpu as mosaic
from jax.experimental.pallas import mosaic_gpu as pallas
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func
from jax.interpreters import mlir

from mgpu.errors import Unsupported
from mgpu.frontend.inline_code import Block, Fragment, InlineCode, Operand, Step, ValueType
from mgpu.frontend.jax_layouts import register_layout
from mgpu.lang.inline_mgpu import InlinedFunction, RefType

# The Mosaic GPU API as code that is inlined uses it; the package's stubs do not list what it passes on.
_mosaic: Any = mosaic


def read_inline_code(inlined: InlinedFunction, operands: Sequence[Operand], source: object) -> InlineCode:
    """Calls an inlined function and returns what it does.

    Args:
      inlined: the function; its types may also be those of JAX's module.
      operands: types of its arguments, flat.
      source: the author's line, for errors.

    Raises:
      Unsupported: the function needs the compiler's launch context, a tiled ref, or another Mosaic GPU compiler.
    """
    kinds = jax.tree.leaves(inlined.arg_types)
    is_ref = [isinstance(kind, (RefType, pallas.RefType)) for kind in kinds]
    if any(ref and kind.transforms for ref, kind in zip(is_ref, kinds, strict=True)):
        raise _unsupported(source, "it takes a tiled ref", "Inline code that takes RefType() without transforms.")
    layouts = [None if ref else register_layout(kind).to_mgpu() for ref, kind in zip(is_ref, kinds, strict=True)]
    with _ir_context():
        function = _Function(layouts, operands)
        with function.inside:
            arguments = jax.tree.unflatten(jax.tree.structure(inlined.arg_types), function.handles)
            try:
                returned = inlined.function(_NoLaunchContext(source), *arguments)
            except Unsupported:
                raise
            except Exception as error:
                hint = "Write this step with the language's operations, or run the kernel on a GPU."
                raise _unsupported(source, f"it fails ({type(error).__name__}: {error})", hint) from error
        reader = _Reader()
        entry = reader.block(function.entry)
        arrays = jax.tree.leaves(returned, is_leaf=lambda value: isinstance(value, _mosaic.FragmentedArray))
        results = [
            Fragment(array.layout, tuple(kind.shape), np.dtype(kind.dtype), reader.numbers(array.registers.flat))
            for array, kind in zip(arrays, jax.tree.leaves(inlined.return_type), strict=True)
        ]
        given = iter(entry.arguments)
        taken = [
            next(given)
            if layout is None
            else Fragment(layout, each.shape, each.dtype, tuple(itertools.islice(given, function.count(number))))
            for number, (layout, each) in enumerate(zip(layouts, operands, strict=True))
        ]
        return InlineCode(entry, tuple(reader.types), tuple(taken), tuple(results))


@contextlib.contextmanager
def _ir_context() -> Iterator[None]:
    """Enters a context in which IR of the Mosaic GPU compiler can be built."""
    context = mlir.make_ir_context()
    _mosaic.dialect.register_dialect(context)
    with context, ir.Location.unknown():
        yield


def _unsupported(source: object, what: str, instead: str) -> Unsupported:
    return Unsupported(f"{source} inline_mgpu: the simulator cannot run this function: {what}. {instead}")


class _NoLaunchContext:
    """Stands for the compiler's launch context, which code that only computes does not use."""

    def __init__(self, source: object) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        raise _unsupported(
            self._source,
            f"it asks the launch context for {name}",
            "Use the language's copies and barriers in its place, or run the kernel on a GPU.",
        )


class _Function:
    """A function under construction, in a module of its own.

    Args:
      layouts: the compiler's layout of each argument; None for a ref.
      operands: their types.

    Attributes:
      entry: its block.
      inside: enters the place where code is added.
      handles: for each argument, the array or ref as the inlined function takes it.
    """

    def __init__(self, layouts: Sequence[Any], operands: Sequence[Operand]) -> None:
        elements = [_mosaic.utils.dtype_to_ir_type(jnp.dtype(operand.dtype)) for operand in operands]
        self._types = [
            [ir.MemRefType.get(operand.shape, element, memory_space=_mosaic.utils.smem() if operand.in_smem else None)]
            if layout is None
            else [layout.registers_element_type(element)] * math.prod(layout.registers_shape(operand.shape))
            for layout, operand, element in zip(layouts, operands, elements, strict=True)
        ]
        self._module = ir.Module.create()
        i32 = ir.IntegerType.get_signless(32)
        # The compiler's API asks the module which instructions there are: those of a Hopper GPU (sm_90).
        for part, number in (("major", 9), ("minor", 0)):
            self._module.operation.attributes[f"mosaic_gpu.arch_{part}"] = ir.IntegerAttr.get(i32, number)
        with ir.InsertionPoint(self._module.body):
            function = func.FuncOp("inlined", ([each for types in self._types for each in types], []))
        self.entry = function.add_entry_block()
        self.inside = ir.InsertionPoint(self.entry)
        values = iter(self.entry.arguments)
        self.handles = [
            next(values) if layout is None else _array(layout, operand, values)
            for layout, operand in zip(layouts, operands, strict=True)
        ]

    def count(self, argument: int) -> int:
        """Returns how many values an argument is."""
        return len(self._types[argument])


def _array(layout: Any, operand: Operand, values: Iterator[Any]) -> Any:
    registers = np.empty(layout.registers_shape(operand.shape), dtype=object)
    for index in np.ndindex(*registers.shape):
        registers[index] = next(values)
    signed = _mosaic.utils.is_signed(operand.dtype)
    return _mosaic.FragmentedArray(_registers=registers, _layout=layout, _is_signed=signed)


class _Reader:
    """Numbers the values of blocks and reads their operations."""

    def __init__(self) -> None:
        self.types: list[ValueType] = []
        self._numbers: dict[Any, int] = {}

    def numbers(self, values: Iterable[Any]) -> tuple[int, ...]:
        """Returns the numbers of values that have been read."""
        return tuple(self._numbers[value] for value in values)

    def block(self, block: Any) -> Block:
        """Reads a block of the IR."""
        arguments = tuple(map(self._define, block.arguments))
        return Block(arguments, tuple(self._step(operation.operation) for operation in block.operations))

    def _define(self, value: Any) -> int:
        number = self._numbers[value] = len(self.types)
        self.types.append(_value_type(value.type))
        return number

    def _step(self, operation: Any) -> Step:
        operands = self.numbers(operation.operands)
        regions = tuple(self.block(block) for region in operation.regions for block in region.blocks)
        results = tuple(map(self._define, operation.results))
        names = [getattr(each, "name", each) for each in operation.attributes]
        attributes = {name: _attribute(operation.attributes[name]) for name in names}
        types = tuple(self.types[number] for number in results)
        return Step(operation.name, operands, results, types, attributes, regions)


_DTYPES: Mapping[str, Any] = {
    "index": np.int64,
    "i1": np.bool_,
    "bf16": jnp.bfloat16,
    "f8E4M3FN": jnp.float8_e4m3fn,
    "f8E5M2": jnp.float8_e5m2,
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
}


def _value_type(kind: Any) -> ValueType:
    if isinstance(kind, (ir.VectorType, ir.MemRefType)):
        return ValueType(_dtype(kind.element_type), tuple(kind.shape))
    return ValueType(_dtype(kind))


def _dtype(kind: Any) -> np.dtype | None:
    found = _DTYPES.get(str(kind))
    return None if found is None else np.dtype(found)


def _attribute(attribute: Any) -> Any:
    if isinstance(attribute, (ir.BoolAttr, ir.IntegerAttr, ir.FloatAttr, ir.StringAttr)):
        return attribute.value
    if isinstance(attribute, (ir.DenseI64ArrayAttr, ir.DenseI32ArrayAttr)):
        return list(attribute)
    if isinstance(attribute, ir.DenseElementsAttr):
        return _attribute(attribute.get_splat_value()) if attribute.is_splat else np.array(attribute)
    return str(attribute)
