"""Which operands a pipeline has: the specs and GMEM refs of a call, matched and resolved."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.experimental import pallas as pl

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import current_source_line, hide_from_source_lines
from mgpu.lang.block_spec import Block, resolve_block
from mgpu.lang.memory import GMEM
from mgpu.lang.pipeline_buffers import InputBuffer, OutputBuffer, output_slots
from mgpu.lang.pipeline_grid import Motion, Scalar, motion_of
from mgpu.lang.primitive import describe, flatten_operands, is_ref, unflatten_operands

hide_from_source_lines(__file__)


@dataclasses.dataclass(frozen=True)
class Operands:
    """Inputs or outputs of one call of a pipeline, flat.

    Attributes:
      blocks: a block for each.
      gmem: the ref of each.
      motions: when each block changes.
      tree: the pytree that the body's arguments form: a tuple with an entry for each argument.
    """

    blocks: tuple[Block, ...]
    gmem: tuple[Any, ...]
    motions: tuple[Motion, ...]
    tree: Any

    @property
    def in_smem(self) -> tuple[int, ...]:
        """Numbers of the operands that are copied."""
        return tuple(number for number, block in enumerate(self.blocks) if block.in_smem)

    def arguments(self, refs: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the body's arguments: the flat `refs` in the structure of the specs."""
        return tuple(jax.tree.unflatten(self.tree, refs))

    def barrier_arguments(self, barriers: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the body's arguments for one barrier for each number in `in_smem`: in the structure of the specs.

        An operand that is not copied has no barrier: its argument is left out, or None inside a pytree.
        """
        by_number = dict(zip(self.in_smem, barriers, strict=True))
        numbers = jax.tree.unflatten(self.tree, range(len(self.blocks)))
        arguments = []
        for argument in numbers:
            leaves, tree = jax.tree.flatten(argument)
            if not leaves or any(leaf in by_number for leaf in leaves):
                arguments.append(jax.tree.unflatten(tree, [by_number.get(leaf) for leaf in leaves]))
        return tuple(arguments)

    def input_buffers(self, smem: Sequence[Any]) -> tuple[InputBuffer, ...]:
        """Pairs each operand with the ref of its slots, of which there is one for each number in `in_smem`."""
        slots = dict(zip(self.in_smem, smem, strict=True))
        return tuple(
            InputBuffer(block, gmem, slots.get(number))
            for number, (block, gmem) in enumerate(zip(self.blocks, self.gmem, strict=True))
        )

    def output_buffers(self, smem: Sequence[Any], num_slots: int) -> tuple[OutputBuffer, ...]:
        """As `input_buffers`, for outputs of a pipeline with `num_slots` slots."""
        slots = dict(zip(self.in_smem, smem, strict=True))
        return tuple(
            OutputBuffer(block, gmem, slots.get(number), motion, output_slots(motion, num_slots))
            for number, (block, gmem, motion) in enumerate(zip(self.blocks, self.gmem, self.motions, strict=True))
        )


def split_operands(
    operation: str, in_specs: Any, out_specs: Any, refs: Sequence[Any], grid: Sequence[Scalar]
) -> tuple[Operands, Operands]:
    """Matches the refs that a pipeline is called with to its specs.

    Args:
      operation: the pipeline's name, for errors.
      in_specs, out_specs: sequence of specs, or of pytrees of specs.
      refs: GMEM refs, inputs before outputs, in the same structure.
      grid: of the pipeline.

    Raises:
      KernelTypeError: another number of refs than of specs, or a ref that is not in GMEM.
    """
    inputs, outputs = _sequence(in_specs), _sequence(out_specs)
    if len(refs) != len(inputs) + len(outputs):
        raise KernelTypeError(
            f"{current_source_line()} {operation}: the pipeline is called with {len(refs)} refs, but has {len(inputs)} "
            f"in_specs and {len(outputs)} out_specs. Pass one GMEM ref for each, inputs before outputs."
        )
    return (
        _resolve(operation, "in_specs", inputs, refs[: len(inputs)], grid),
        _resolve(operation, "out_specs", outputs, refs[len(inputs) :], grid),
    )


def _sequence(specs: Any) -> tuple[Any, ...]:
    return tuple(specs) if isinstance(specs, (tuple, list)) else (specs,)


def _is_spec(value: Any) -> bool:
    return isinstance(value, pl.BlockSpec)


def _resolve(
    operation: str, what: str, specs: tuple[Any, ...], refs: Sequence[Any], grid: Sequence[Scalar]
) -> Operands:
    flat_specs, tree = jax.tree.flatten(specs, is_leaf=_is_spec)
    flat_refs, ref_tree = jax.tree.flatten(tuple(refs), is_leaf=is_ref)
    if tree != ref_tree:
        raise KernelTypeError(
            f"{current_source_line()} {operation}: {what} and the refs differ in structure: {tree} and {ref_tree}. "
            "Pass a ref for each spec, nested alike."
        )
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(specs, is_leaf=_is_spec)]
    blocks = []
    for path, spec, ref in zip(paths, flat_specs, flat_refs, strict=True):
        name = f"{what}{jax.tree_util.keystr(path)}"
        view = _view_of(ref)
        if not is_ref(ref) or view.space is not GMEM:
            raise KernelTypeError(
                f"{current_source_line()} {operation}: the operand of {name} must be a ref in GMEM, got "
                f"{describe(view)}. "
                "A pipeline copies between GMEM and its own slots in SMEM."
            )
        blocks.append(resolve_block(name, spec, view.shape, view.dtype))
    motions = tuple(motion_of(block, grid) for block in blocks)
    return Operands(tuple(blocks), tuple(flat_refs), motions, tree)


def _view_of(ref: Any) -> Any:
    values, tree = flatten_operands(ref)
    (view,) = unflatten_operands(tree, values)
    return view


def body_names(body: Callable[..., Any], inputs: Operands, outputs: Operands) -> tuple[list[str], list[str]]:
    """Returns what the body calls the copied inputs and outputs, for names in reports."""
    try:
        parameters = list(inspect.signature(body).parameters)[1:]
    except (TypeError, ValueError):
        parameters = []
    arguments = inputs.tree.num_nodes  # an upper bound of the arguments, to pad the names
    parameters += [f"operand{number}" for number in range(len(parameters), arguments + outputs.tree.num_nodes)]
    names: list[list[str]] = []
    for operands in (inputs, outputs):
        tree = jax.tree.unflatten(operands.tree, range(operands.tree.num_leaves))
        own, parameters = parameters[: len(tree)], parameters[len(tree) :]
        leaves = [
            name + jax.tree_util.keystr(path)
            for name, value in zip(own, tree, strict=True)
            for path, _ in jax.tree_util.tree_leaves_with_path(value)
        ]
        names.append([leaves[number] for number in operands.in_smem])
    return names[0], names[1]
