"""Derivatives and vectorisation of imported functions.

A simulated kernel has neither a derivative nor a batching rule. The JAX function that launches it may have both, so a
transformation of the imported function becomes the imported transformation of the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

Run = Callable[..., Any]
"""Runs `function` on `arrays` with its kernels imported: `run(function, *arrays)`."""


def make_transformable(run: Run, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of arrays that equals `run(function, *arrays)` and takes `jax.vjp` and `jax.vmap`.

    Args:
      run: runs a JAX function with its kernels imported.
      function: takes arrays, returns a pytree of arrays.
    """
    residual_trees: list[Any] = []

    @jax.custom_vjp
    def call(*arrays: Any) -> Any:
        return _vectorisable(run, function)(*arrays)

    def forward(*arrays: Any) -> Any:
        def with_residuals(*values: Any) -> Any:
            out, pull_back = jax.vjp(function, *values)
            residuals, tree = jax.tree.flatten(pull_back)
            residual_trees[:] = [tree]
            return out, residuals

        out, residuals = _vectorisable(run, with_residuals)(*arrays)
        return out, (residuals, [_Differentiable(jnp.issubdtype(x.dtype, jnp.inexact)) for x in arrays])

    def backward(saved: Any, cotangents: Any) -> Any:
        residuals, inputs = saved
        (tree,) = residual_trees

        def pull_back(residuals: Any, cotangents: Any) -> Any:
            gradients = jax.tree.unflatten(tree, residuals)(cotangents)
            return [gradient for gradient, each in zip(gradients, inputs, strict=True) if each.value]

        found = iter(_vectorisable(run, pull_back)(residuals, cotangents))
        return tuple(next(found) if each.value else None for each in inputs)

    call.defvjp(forward, backward)
    return call


@jax.tree_util.register_static
class _Differentiable:
    """Whether an input has a gradient: static, so that it may be kept among the residuals."""

    def __init__(self, value: bool) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Differentiable) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def _vectorisable(run: Run, function: Callable[..., Any]) -> Callable[..., Any]:
    call = custom_vmap(lambda *operands: run(function, *operands))

    @call.def_vmap
    def vectorise(size: int, is_batched: Any, *operands: Any) -> Any:
        axes = tuple(jax.tree.map(lambda batched: 0 if batched else None, list(is_batched)))

        def batch(*values: Any) -> Any:
            return jax.vmap(function, in_axes=axes, axis_size=size)(*values)

        out = _vectorisable(run, batch)(*operands)
        return out, jax.tree.map(lambda _: True, out)

    return call
