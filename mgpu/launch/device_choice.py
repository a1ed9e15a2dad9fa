"""Which device is simulated: `set_device`, the context manager `device`, and the environment variable MGPU_DEVICE.

Numbers in MGPU_SET replace those of whatever device is chosen (`mgpu.environment`). The choice is read when a kernel is
called eagerly, or traced under `jax.jit`: like every static setting, a jitted function keeps the device that it was
traced with.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterator
from typing import Any

from mgpu.devices import Device, load_device
from mgpu.environment import DEVICE, device_numbers
from mgpu.errors import DeviceError

DEFAULT_DEVICE = "h100"


@dataclasses.dataclass(frozen=True)
class DeviceChoice:
    """A device, and how many of its SMs are simulated."""

    device: Device
    num_sms: int


class _Chosen:
    """The process's choice, guarded for threads: what `set_device` sets, and `device` sets for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._explicit: DeviceChoice | None = None

    def get(self) -> DeviceChoice | None:
        with self._lock:
            return self._explicit

    def replace(self, choice: DeviceChoice | None) -> DeviceChoice | None:
        with self._lock:
            previous, self._explicit = self._explicit, choice
            return previous


_chosen = _Chosen()


def choose(name: str | Device, num_sms: int | None = None, **numbers: Any) -> DeviceChoice:
    """Returns the choice of a device by name (or a `Device`), with some numbers replaced.

    Raises:
      DeviceError: no such device or number, or more SMs than it has.
    """
    device = name if isinstance(name, Device) else load_device(name)
    numbers |= device_numbers()
    if numbers:
        device = device.override(**numbers)
    count = device.num_sms if num_sms is None else num_sms
    if not 1 <= count <= device.num_sms:
        raise DeviceError(f"num_sms={count}: {device.name} has {device.num_sms} SMs; give 1 to {device.num_sms}.")
    return DeviceChoice(device, count)


def set_device(name: str | Device, num_sms: int | None = None, **numbers: Any) -> None:
    """Simulates this device from now on.

    Args:
      name: "h100", "h200", ..., or a `Device` of your own (`mgpu.devices.device_from_file`).
      num_sms: SMs to simulate, by default all; the memory system stays that of the whole chip.
      **numbers: device numbers to replace, for what-ifs: `set_device("h100", hbm_bandwidth=10**13)`. With
        `clock_hz="power_capped"` each kernel settles at the clock that the power limit allows (`mgpu.devices.power`):
        its first launch is simulated two or three times for that.

    Raises:
      DeviceError: no such device or number.
    """
    _chosen.replace(choose(name, num_sms, **numbers))


@contextlib.contextmanager
def device(name: str | Device, num_sms: int | None = None, **numbers: Any) -> Iterator[Device]:
    """Simulates this device inside a `with` block; arguments as `set_device`."""
    choice = choose(name, num_sms, **numbers)
    previous = _chosen.replace(choice)
    try:
        yield choice.device
    finally:
        _chosen.replace(previous)


def current_choice() -> DeviceChoice:
    """Returns the device that a kernel called now is simulated on.

    Raises:
      DeviceError: MGPU_DEVICE names no device.
    """
    return _chosen.get() or choose(os.environ.get(DEVICE) or DEFAULT_DEVICE)
