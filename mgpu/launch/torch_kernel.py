"""`mgpu.as_torch_kernel`: PyTorch tensors in and out of a JAX function that launches kernels, through DLPack.

Nothing is copied where a tensor is contiguous: JAX reads the tensor's memory, and the result's memory becomes the new
tensor's. DLPack orders the streams of a GPU: what PyTorch enqueues later on its stream runs after the kernels.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from mgpu.errors import DeviceError, KernelTypeError, MissingPackageError
from mgpu.launch.torch_gradient import apply_with_gradient

# What PyTorch calls a kind of device -> what JAX calls its platform.
_PLATFORMS = {"cpu": "cpu", "cuda": "cuda"}


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
        device = _check(torch, name, tensors)

        def of_arrays(*arrays: jax.Array) -> Any:
            rest = iter(arrays)
            merged = [next(rest) if found else leaf for leaf, found in zip(leaves, is_tensor, strict=True)]
            args, kwargs = jax.tree.unflatten(tree, merged)
            return fn(*args, **kwargs)

        with jax.default_device(device):
            if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
                return apply_with_gradient(torch, of_arrays, tensors, _describe(fn, name))
            results, structure = jax.tree.flatten(of_arrays(*map(to_array, tensors)))
            return jax.tree.unflatten(structure, to_tensors(torch, results, tensors))

    return call


def to_array(tensor: Any) -> jax.Array:
    """Returns a tensor's elements as an array, in the tensor's own memory where it is contiguous."""
    # DLPack knows neither gradients nor the lazy conjugate and negative bits, and JAX no strides with gaps.
    return jax.dlpack.from_dlpack(tensor.detach().resolve_conj().resolve_neg().contiguous())


def to_tensors(torch: Any, results: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    """Returns results with arrays as tensors, each in memory that neither `tensors` nor another result uses.

    Args:
      torch: the package.
      results: arrays, and whatever else the function returned, which is left as it is.
      tensors: the arguments.
    """
    arrays = [result for result in results if isinstance(result, jax.Array)]
    if any(array.device.platform == "cpu" for array in arrays):
        jax.block_until_ready(arrays)  # there is no stream that PyTorch could wait on
    taken = {tensor.data_ptr() for tensor in tensors}
    found = []
    for result in results:
        if isinstance(result, jax.Array):
            result = torch.from_dlpack(result)
            if result.data_ptr() in taken:
                result = result.clone()
            taken.add(result.data_ptr())
        found.append(result)
    return found


def _import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise MissingPackageError(
            "as_torch_kernel needs PyTorch, which is not installed. Install it with: pip install torch"
        ) from error


def _check(torch: Any, name: str, tensors: Sequence[Any]) -> jax.Device | None:
    """Checks the arguments and returns the JAX device on which they are; None if there is no tensor."""
    for number, tensor in enumerate(tensors):
        where = f"as_torch_kernel({name}): tensor {number} among the arguments"
        if tensor.layout is not torch.strided:
            raise KernelTypeError(f"{where} has layout {tensor.layout}, expected a dense one. Call .to_dense().")
        if tensor.device != tensors[0].device:
            raise KernelTypeError(
                f"{where} is on {tensor.device}, the first one on {tensors[0].device}. Move them to one device."
            )
        _check_dtype(where, tensor.dtype)
    return _jax_device(name, tensors[0].device) if tensors else None


def _check_dtype(where: str, torch_dtype: Any) -> None:
    try:
        dtype = np.dtype(str(torch_dtype).removeprefix("torch."))
    except TypeError:
        raise KernelTypeError(f"{where} is {torch_dtype}, which JAX does not have. Convert it first.") from None
    kept = jax.dtypes.canonicalize_dtype(dtype)
    if kept != dtype:
        raise KernelTypeError(
            f"{where} is {torch_dtype}, which JAX would narrow to {kept}. Convert it yourself, .to(torch.{kept}), or "
            'call jax.config.update("jax_enable_x64", True).'
        )


def _jax_device(name: str, device: Any) -> jax.Device:
    platform = _PLATFORMS.get(device.type)
    try:
        found = jax.local_devices(backend=platform) if platform else []
    except RuntimeError:
        found = []
    number = device.index or 0
    if number >= len(found):
        raise DeviceError(
            f"as_torch_kernel({name}): the tensors are on {device}, which JAX does not see here (it has "
            f"{', '.join(map(str, jax.local_devices()))}). Call .cpu() on them to simulate the kernel, or for an "
            "NVIDIA GPU install JAX with: pip install 'jax[cuda13]'"
        )
    return found[number]


def _describe(fn: Callable[..., Any], name: str) -> str:
    """Returns where a function is defined, for messages: `file.py:12 as_torch_kernel(name)`."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    line = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno} " if code is not None else ""
    return f"{line}as_torch_kernel({name})"
