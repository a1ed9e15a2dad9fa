"""`jax.vmap` of a kernel: the batch becomes one more grid axis; the body is traced again with one row of each operand.

The new axis comes last, so that `pl.program_id` of the kernel's own axes stays what it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import batching

from mgpu.errors import Unsupported
from mgpu.frontend.program import Launch
from mgpu.frontend.regions import walk
from mgpu.launch.operation import SimulatedKernel, simulate_p


def batch_axis_name(launch: Launch) -> str:
    """Returns a name for the batch axis that the kernel does not use yet."""
    taken = launch.axis_sizes
    return next(name for name in (f"vmap{depth}" for depth in range(len(taken) + 1)) if name not in taken)


def batch_body(
    body: Callable[..., None], axis: str, num_inputs: int, num_outputs: int, is_batched: Sequence[bool], in_tree: Any
) -> Callable[..., None]:
    """Returns a body that calls `body` on row `axis_index(axis)` of its outputs and of its batched inputs.

    Args:
      body: the kernel's own body.
      axis: name of the batch axis.
      num_inputs, num_outputs: ref arguments (pytrees) that are inputs and outputs.
      is_batched: for each flat input, whether it has a batch axis in front.
      in_tree: tree of the inputs.
    """

    def batched(*refs: Any, **scratch: Any) -> None:
        row = lax.axis_index(axis)
        flat = in_tree.flatten_up_to(tuple(refs[:num_inputs]))
        rows = [ref.at[row] if batched else ref for ref, batched in zip(flat, is_batched, strict=True)]
        outputs = jax.tree.map(lambda ref: ref.at[row], list(refs[num_inputs : num_inputs + num_outputs]))
        body(*jax.tree.unflatten(in_tree, rows), *outputs, *refs[num_inputs + num_outputs :], **scratch)

    # The names of the refs in reports stay the author's.
    batched.__signature__ = inspect.signature(body)  # pyright: ignore[reportFunctionMemberAccess]
    return batched


def _batch_rule(
    operands: Sequence[Any], dimensions: Sequence[Any], *, kernel: SimulatedKernel
) -> tuple[list[Any], list[int]]:
    program = kernel.prepared.program
    if program.num_consts or kernel.batch is None:
        raise Unsupported(
            f"{program.source} kernel {program.name}: jax.vmap of a kernel whose body closes over arrays. "
            "Pass them to the kernel as operands."
        )
    if any(step.equation.primitive.name == "get_global" for step in walk(program)):
        raise Unsupported(
            f"{program.source} kernel {program.name}: jax.vmap of a kernel with pl.get_global: the batch is one "
            "launch, whose CTAs would share its semaphores. Call the kernel for each element (jax.lax.map)."
        )
    is_batched = tuple(dimension is not None for dimension in dimensions)
    rows = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(operands, dimensions, strict=True)]
    size = next(row.shape[0] for row, batched in zip(rows, is_batched, strict=True) if batched)
    outputs = kernel.batch(size, is_batched)(rows)
    return outputs, [0] * len(outputs)


batching.primitive_batchers[simulate_p] = _batch_rule
