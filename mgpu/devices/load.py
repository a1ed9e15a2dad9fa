"""Reading device files.

A device file is TOML: `name`, optionally `base` (a built-in device whose numbers it starts from), and one table per
number with `value`, `unit`, `source`, `confidence` ("H", "M", "L") and, if needed, `note`.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from mgpu.devices.device import NUMBER_NAMES, Device, DeviceNumber, check_number_names, check_value, unit_of
from mgpu.errors import DeviceError

_WGMMA_PREFIX = "wgmma_"
_KEYS = ("value", "unit", "source", "confidence", "note")


def list_devices() -> tuple[str, ...]:
    """Returns the names of the built-in devices, sorted."""
    files = resources.files("mgpu.devices").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


@functools.cache
def load_device(name: str) -> Device:
    """Returns a built-in device.

    Args:
      name: "h100", "h200" or "b200".

    Raises:
      DeviceError: there is no such device.
    """
    known = list_devices()
    if name not in known:
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.4)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise DeviceError(
            f"no device is called {name!r}. {hint}Known: {', '.join(known)}; device_from_file() reads your own file."
        )
    text = resources.files("mgpu.devices").joinpath(f"{name}.toml").read_text("utf-8")
    return _parse(text, f"{name}.toml")


def device_from_file(path: str | Path) -> Device:
    """Reads a device file.

    Raises:
      DeviceError: the file cannot be read, is not TOML, or a number in it is missing, unknown or malformed.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceError(f"{path}: cannot read the device file: {error}.") from error
    return _parse(text, str(path))


def _parse(text: str, where: str) -> Device:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DeviceError(f"{where}: not a TOML file: {error}.") from error
    name = content.pop("name", None)
    if not isinstance(name, str):
        raise DeviceError(f'{where}: the device has no name. Begin the file with name = "...".')
    base = content.pop("base", None)
    numbers = dict(load_device(base).numbers) if base is not None else {}
    check_number_names(where, content)
    numbers |= {key: _parse_number(table, key, where) for key, table in content.items()}
    if not any(key.startswith(_WGMMA_PREFIX) for key in numbers):
        numbers |= _without_wgmma(name)
    missing = [key for key in NUMBER_NAMES if key not in numbers]
    if missing:
        raise DeviceError(f'{where}: the device lacks {", ".join(missing)}. Add them, or start with base = "h100".')
    values: dict[str, Any] = {key: numbers[key].value for key in NUMBER_NAMES}
    return Device(name=name, **values, numbers=numbers)


def _parse_number(table: Any, key: str, where: str) -> DeviceNumber:
    if not isinstance(table, dict) or not table.keys() <= set(_KEYS) or not {*_KEYS[:4]} <= table.keys():
        raise DeviceError(f"{where}: [{key}] is {table!r}, expected the keys {', '.join(_KEYS)} (note may be absent).")
    if table["unit"] != unit_of(key):
        raise DeviceError(f"{where}: [{key}] has unit {table['unit']!r}, expected {unit_of(key)!r}. Convert the value.")
    if table["confidence"] not in ("H", "M", "L") or not table["source"]:
        raise DeviceError(f"{where}: [{key}] needs a source, and a confidence of H, M or L.")
    return DeviceNumber(**{**table, "value": check_value(where, key, table["value"])})


def _without_wgmma(name: str) -> dict[str, DeviceNumber]:
    absent = {key: DeviceNumber(0, unit_of(key), f"{name} has no wgmma", "H") for key in NUMBER_NAMES}
    return {key: number for key, number in absent.items() if key.startswith(_WGMMA_PREFIX)}
