"""Derivatives of JAX functions for PyTorch's autograd: the backward pass is `jax.vjp` of the function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mgpu.errors import Unsupported
from mgpu.launch.torch_tensors import to_array, to_tensors


def apply_with_gradient(
    torch: Any, function: Callable[..., Any], tensors: Sequence[Any], device: Any, where: str
) -> Any:
    """Returns `function` of the tensors as tensors that remember how they came about.

    The backward pass runs the forward pass once more, and keeps nothing but the arguments until then.

    Args:
      torch: the package.
      function: a JAX function of arrays.
      tensors: the arguments; some require a gradient.
      device: the JAX device on which they are.
      where: the function's line and name, for errors.

    Raises:
      Unsupported: a complex argument requires a gradient; or in the backward pass: `function` has no derivative.
    """
    if any(tensor.requires_grad and tensor.is_complex() for tensor in tensors):
        raise Unsupported(
            f"{where}: a complex tensor requires a gradient, for which PyTorch and JAX have different conventions. "
            "Give its real and imaginary parts."
        )
    launch = _make_function(torch, function, device, where)
    results = launch.apply(*tensors)
    return jax.tree.unflatten(launch.structure, results)


def _make_function(torch: Any, function: Callable[..., Any], device: Any, where: str) -> Any:
    class Launch(torch.autograd.Function):
        """One call of the function."""

        structure: Any = None  # tree of the results

        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> tuple[Any, ...]:
            ctx.save_for_backward(*tensors)
            results, Launch.structure = jax.tree.flatten(function(*map(to_array, tensors)))
            ctx.differentiable = [_is_differentiable(result) for result in results]
            found = to_tensors(torch, results, tensors)
            fixed = [x for x, yes in zip(found, ctx.differentiable, strict=True) if not yes]
            ctx.mark_non_differentiable(*(x for x in fixed if isinstance(x, torch.Tensor)))
            return tuple(found)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
            tensors = ctx.saved_tensors
            wanted = [number for number, needed in enumerate(ctx.needs_input_grad) if needed]
            arrays = [to_array(tensor) for tensor in tensors]

            def of_wanted(*values: jax.Array) -> list[jax.Array]:
                merged = dict(enumerate(arrays)) | dict(zip(wanted, values, strict=True))
                results = jax.tree.leaves(function(*merged.values()))
                return [result for result, yes in zip(results, ctx.differentiable, strict=True) if yes]

            seeds = [to_array(x) for x, yes in zip(cotangents, ctx.differentiable, strict=True) if yes]
            with jax.default_device(device):
                gradients = _pull_back(of_wanted, [arrays[number] for number in wanted], seeds, where)
            found = dict(zip(wanted, to_tensors(torch, gradients, [*tensors, *cotangents]), strict=True))
            return tuple(found.get(number) for number in range(len(tensors)))

    return Launch


def _is_differentiable(result: Any) -> bool:
    return isinstance(result, jax.Array) and jnp.issubdtype(result.dtype, jnp.floating)


def _pull_back(
    function: Callable[..., list[jax.Array]], operands: Sequence[jax.Array], seeds: Sequence[jax.Array], where: str
) -> list[jax.Array]:
    try:
        return list(jax.vjp(function, *operands)[1](list(seeds)))
    except NotImplementedError as error:
        raise Unsupported(
            f"{where}: no derivative is known ({str(error).splitlines()[0]}). Define one with jax.custom_vjp in the "
            "function, or call it on tensors that need no gradient: under torch.no_grad(), or .detach() them."
        ) from error
