"""What a run is told from outside: the environment variables that `mgpu run` sets for a script, and their form.

    MGPU_DEVICE=h200                       device that is simulated, unless the script chooses one
    MGPU_SET=hbm_bandwidth=5e12,...        device numbers to replace, whatever the script chooses; clock_hz=power_capped
    MGPU_COMPUTE_SCALE=1=0.5,...           factors on the time of warpgroups' own work, by their indices
    MGPU_PROFILE_DIR=build/profile         records every kernel into this directory, instead of its own
    MGPU_PROFILE_SPACE=1024                events per track for kernels that do not ask for recording
    MGPU_PROFILE_WINDOW="iterations=10:20" the part of every kernel that is recorded (`mgpu.profile_window`)
    MGPU_PROFILE_KEEP=100                  newest launches of each kernel that a profile directory keeps; default all

They let one script run under many settings, for what-ifs, without a change to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mgpu.errors import ParamsError
from mgpu.profile_window import ProfileWindow, parse_window
from mgpu.units import POWER_CAPPED

DEVICE = "MGPU_DEVICE"
NUMBERS = "MGPU_SET"
COMPUTE_SCALE = "MGPU_COMPUTE_SCALE"
PROFILE_DIR = "MGPU_PROFILE_DIR"
PROFILE_SPACE = "MGPU_PROFILE_SPACE"
PROFILE_WINDOW = "MGPU_PROFILE_WINDOW"
PROFILE_KEEP = "MGPU_PROFILE_KEEP"
DEFAULT_PROFILE_SPACE = 1024


def parse_numbers(text: str) -> dict[str, float | str]:
    """Reads `name=value,name=value`; values may be written as 5e12, and that of `clock_hz` as `power_capped`.

    Raises:
      ParamsError: an entry has another form.
    """
    numbers: dict[str, float | str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = entry.partition("=")
        try:
            if not equals or not name.strip():
                raise ValueError(entry)
            is_rule = name.strip() == "clock_hz" and value.strip() == POWER_CAPPED
            numbers[name.strip()] = POWER_CAPPED if is_rule else float(value)
        except ValueError:
            raise ParamsError(
                f"{entry!r} does not set a device number: expected NAME=VALUE, such as mbarrier_hop_cycles=0. "
                "`mgpu devices h100` lists the names."
            ) from None
    return numbers


def format_numbers(numbers: Mapping[str, float | str]) -> str:
    """Writes numbers in the form that `parse_numbers` reads, exactly."""
    return ",".join(f"{name}={value}" for name, value in numbers.items())


def device_numbers() -> dict[str, float | str]:
    """Returns the device numbers that the environment replaces."""
    return parse_numbers(os.environ.get(NUMBERS, ""))


def parse_compute_scale(text: str) -> dict[int, float]:
    """Reads `warpgroup=factor,warpgroup=factor`, for `InterpretGPUParams(compute_scale=)`.

    Raises:
      ParamsError: an entry has another form.
    """
    factors: dict[int, float] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        warpgroup, _, factor = entry.partition("=")
        try:
            factors[int(warpgroup)] = float(factor)
        except ValueError:
            raise ParamsError(
                f"{entry!r} does not scale a warpgroup's work: expected WARPGROUP=FACTOR, such as 1=0.5."
            ) from None
    return factors


def compute_scale() -> dict[int, float]:
    """Returns the factors on the time of warpgroups' own work that the environment sets."""
    return parse_compute_scale(os.environ.get(COMPUTE_SCALE, ""))


# Of this process: profile directories that kernels asked for and did not get.
_redirected: set[str] = set()


def profile_dir(directory: str) -> str:
    """Returns where kernels that ask for `directory` are recorded."""
    return os.environ.get(PROFILE_DIR, "") or directory


def recording(space: int, directory: str) -> tuple[int, str]:
    """Returns the events per track and the profile directory of a kernel that asks for `space` and `directory`.

    Raises:
      ParamsError: MGPU_PROFILE_SPACE is not a positive integer.
    """
    target = profile_dir("")
    if not target:
        return space, directory
    if directory:
        _redirected.add(os.path.abspath(directory))
    text = os.environ.get(PROFILE_SPACE, "") or str(DEFAULT_PROFILE_SPACE)
    if not text.isdigit() or not int(text):
        raise ParamsError(f"{PROFILE_SPACE}={text!r}: expected a number of events per track, such as 1024.")
    return space or int(text), target


def is_redirected(directory: str | os.PathLike[str]) -> bool:
    """True if a kernel of this process asked to be recorded into a directory, and was recorded elsewhere."""
    return os.path.abspath(directory) in _redirected


def profile_window(window: ProfileWindow) -> ProfileWindow:
    """Returns the part of a kernel that is recorded if the kernel itself asks for `window`.

    Raises:
      ParamsError: MGPU_PROFILE_WINDOW has another form.
    """
    text = os.environ.get(PROFILE_WINDOW, "").strip()
    return parse_window(text) if text else window


def profile_keep() -> int:
    """Returns how many launches of each kernel a profile directory keeps; 0 for all.

    Raises:
      ParamsError: MGPU_PROFILE_KEEP is not a positive integer.
    """
    text = os.environ.get(PROFILE_KEEP, "")
    if text and (not text.isdigit() or not int(text)):
        raise ParamsError(f"{PROFILE_KEEP}={text!r}: expected a number of launches, such as 100.")
    return int(text or 0)
