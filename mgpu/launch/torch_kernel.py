"""`mgpu.as_torch_kernel`: PyTorch tensors in and out of a JAX function that launches kernels, through DLPack.

Nothing is copied where a tensor is contiguous: JAX reads the tensor's memory, and the result's memory becomes the new
tensor's. DLPack orders the streams of a GPU: what PyTorch enqueues later on its stream runs after the kernels.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

import jax

from mgpu.errors import MissingPackageError
from mgpu.launch.torch_gradient import apply_with_gradient
from mgpu.launch.torch_tensors import check_tensors, to_array, to_tensors


def as_torch_kernel(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of PyTorch tensors of a JAX function.

    The function runs where its tensors are: CUDA tensors on that GPU, CPU tensors on the simulator, as if JAX's default
    device were theirs.

    Args:
      fn: what `mgpu.kernel` or `mgpu.pallas_call` returned, or any other JAX function: several kernels, `jax.numpy`
        between them, `jax.jit` around them, `mgpu.from_pallas(...)`.

    Returns:
      A function of the same arguments. Tensors, anywhere in its arguments, reach `fn` as `jax.Array`s of the same shape
      and dtype, other arguments as they are; arrays in the result come back as tensors on the same device, writable,
      and never memory of an argument. A tensor with gaps between its elements is copied first. Where gradients are
      enabled and an argument requires one, the result has the derivative of `fn` (its `jax.custom_vjp`, usually: a
      kernel has none of its own); the forward pass runs again for it.

    Raises:
      MissingPackageError: PyTorch is not installed (when called).
      KernelTypeError: when called: tensors on several devices, sparse ones, or a dtype that JAX would narrow (64-bit
        types without `jax_enable_x64`) or does not have.
      DeviceError: when called: tensors on a device that JAX does not have here.
      Unsupported: in the backward pass: `fn` has no derivative.

    Example:
      >>> double = mgpu.as_torch_kernel(mgpu.kernel(double_body, out_type=...))  # doctest: +SKIP
      >>> double(torch.ones(128))  # doctest: +SKIP
    """

    @functools.wraps(fn, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        torch = _import_torch()
        leaves, tree = jax.tree.flatten((args, kwargs))
        is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        tensors = [leaf for leaf, found in zip(leaves, is_tensor, strict=True) if found]
        name = getattr(fn, "__name__", type(fn).__name__)
        device = check_tensors(torch, name, tensors)

        def of_arrays(*arrays: jax.Array) -> Any:
            rest = iter(arrays)
            merged = [next(rest) if found else leaf for leaf, found in zip(leaves, is_tensor, strict=True)]
            args, kwargs = jax.tree.unflatten(tree, merged)
            return fn(*args, **kwargs)

        with jax.default_device(device):
            if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
                return apply_with_gradient(torch, of_arrays, tensors, device, _describe(fn, name))
            results, structure = jax.tree.flatten(of_arrays(*map(to_array, tensors)))
            return jax.tree.unflatten(structure, to_tensors(torch, results, tensors))

    return call


def _import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise MissingPackageError(
            "as_torch_kernel needs PyTorch, which is not installed. Install it with: pip install torch"
        ) from error


def _describe(fn: Callable[..., Any], name: str) -> str:
    """Returns where a function is defined, for messages: `file.py:12 as_torch_kernel(name)`."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    line = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno} " if code is not None else ""
    return f"{line}as_torch_kernel({name})"
