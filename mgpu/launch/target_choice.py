"""Which target runs a kernel: the GPU if JAX's default device is one, else the simulator."""

from __future__ import annotations

import os
from typing import Any

from jax.extend import backend

from mgpu.devices import Device
from mgpu.errors import DeviceError
from mgpu.launch.device_choice import current_choice

ENVIRONMENT_VARIABLE = "MGPU_TARGET"


def runs_on_gpu(interpret: Any) -> bool:
    """True if a kernel that is called now goes to the GPU.

    `MGPU_TARGET=sim` and `MGPU_TARGET=gpu` decide for every kernel; the latter also lets a machine without a GPU lower
    kernels for one. An `interpret` argument asks for the simulator.

    Args:
      interpret: the kernel's own `interpret` argument.

    Raises:
      DeviceError: MGPU_TARGET is neither "sim" nor "gpu".
    """
    if interpret is not None and interpret is not False:
        return False
    wanted = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if wanted not in ("", "sim", "gpu"):
        raise DeviceError(f"{ENVIRONMENT_VARIABLE}={wanted!r}: expected 'sim' (the simulator), 'gpu', or nothing.")
    return wanted == "gpu" or (wanted == "" and _default_device().platform in ("gpu", "cuda"))


def gpu_device() -> Device:
    """Returns the table of the GPU that kernels run on; without a GPU, of the device that would be simulated.

    Raises:
      DeviceError: there is no table for this GPU.
    """
    device = _default_device()
    if device.platform not in ("gpu", "cuda"):
        return current_choice().device
    # Imported here: it brings JAX's Mosaic GPU module, which the simulator does without.
    from mgpu.gpu.launch import device_table

    return device_table(device.device_kind)


def _default_device() -> Any:
    return backend.get_default_device()
