"""Device tables: every number that the simulator uses, with its unit and its public source.

`h100.toml`, `h200.toml` and `b200.toml` hold one table per number. `Device` is the typed, flat view of such a file.
"""

from mgpu.devices.device import Device as Device
from mgpu.devices.device import DeviceNumber as DeviceNumber
from mgpu.devices.load import device_from_file as device_from_file
from mgpu.devices.load import list_devices as list_devices
from mgpu.devices.load import load_device as load_device
from mgpu.units import POWER_CAPPED as POWER_CAPPED

__all__ = ["POWER_CAPPED", "Device", "DeviceNumber", "device_from_file", "list_devices", "load_device"]
