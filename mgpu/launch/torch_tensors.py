"""PyTorch tensors as JAX arrays and back through DLPack: what can be handed over, and the handing over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from mgpu.errors import DeviceError, KernelTypeError

# What PyTorch calls a kind of device -> what JAX calls its platform.
_PLATFORMS = {"cpu": "cpu", "cuda": "cuda"}


def check_tensors(torch: Any, name: str, tensors: Sequence[Any]) -> Any:
    """Checks that JAX can take tensors as they are, and returns the device on which they are; None without tensors.

    Args:
      torch: the package.
      name: of the function whose arguments they are, for messages.
      tensors: the arguments.

    Raises:
      KernelTypeError: several devices, a sparse layout, or a dtype that JAX would narrow or does not have.
      DeviceError: JAX does not have their device here.
    """
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
    if any(device.platform == "cpu" for array in arrays for device in array.devices()):
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


def _jax_device(name: str, device: Any) -> Any:
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
