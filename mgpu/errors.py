"""Every error that mgpu raises on purpose, and how each one is worded.

    MgpuError
    ├── KernelError            the kernel as written cannot run; names the user's line
    │   ├── KernelTypeError        an operand has the wrong type, shape, dtype or memory space
    │   ├── Unsupported            legal in the language, not available here; says what to do instead
    │   └── ResourceError          more SMEM, registers, threads or barriers than the SM has
    ├── SimulationError        the kernel failed while it ran on the simulated GPU
    │   ├── DeadlockError          nobody can make progress
    │   ├── OutOfBoundsError       an access outside a buffer
    │   └── BarrierError           more arrivals than a phase takes, a phase missed by its waiter
    ├── ParamsError            a CompilerParams field, or a combination of them, makes no sense
    ├── DeviceError            an unknown device, or a number it does not have
    ├── CaptureError           a capture file or profile directory cannot be read or written
    └── MissingPackageError    a package that only this feature needs is not installed

A message says where, what was got, what was expected, and how to fix it, in that order. "Where" is the user's source
line, never a line of this package. Built-in bases (`ValueError`, `OSError`, ...) are there for code that catches those.
"""

from __future__ import annotations

import os
import re
import sys
from types import TracebackType

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OWN_FOLDERS = tuple(os.path.join(_HERE, name, "") for name in ("mgpu", "profiler", "dashboard"))
_LIBRARY_FOLDERS = tuple(os.sep + name + os.sep for name in ("jax", "jaxlib"))
_COMMAND_FOLDERS = tuple(os.sep + name + os.sep for name in ("typer", "click"))
_BEGINS_WITH_LINE = re.compile(r"[^\s:]+:\d+ ")


def _with_user_line(message: str) -> str:
    if _BEGINS_WITH_LINE.match(message):
        return message
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if any(name in file for name in _COMMAND_FOLDERS):
            return message  # a command was called from a shell: there is no line of the user's
        if _is_of_user(file):
            return f"{os.path.basename(file)}:{frame.f_lineno} {message}"
        frame = frame.f_back
    return message


def _is_of_user(file: str) -> bool:
    # Generated code (dataclass constructors) has a name in angle brackets.
    return not file.startswith((*_OWN_FOLDERS, "<")) and not any(name in file for name in _LIBRARY_FOLDERS)


def find_user_line(traceback: TracebackType | None) -> tuple[str, int, str] | None:
    """Returns file, line and function of the user's innermost frame in a traceback; None if there is none."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if _is_of_user(code.co_filename):
            found = code.co_filename, traceback.tb_lineno, code.co_name
        traceback = traceback.tb_next
    return found


class MgpuError(Exception):
    """Base of all errors that this package raises on purpose."""


class KernelError(MgpuError):
    """The kernel as written cannot run. The message begins with the user's source line."""

    def __init__(self, message: str) -> None:
        super().__init__(_with_user_line(message))


class KernelTypeError(KernelError, TypeError, ValueError):
    """An operand has the wrong type, shape, dtype, layout or memory space."""


class Unsupported(KernelError, NotImplementedError):
    """An operation, or a form of it, that this version does not offer; the message says what to use instead."""


class ResourceError(KernelError, ValueError):
    """The kernel asks for more SMEM, registers, threads or barriers than the device has."""


class SimulationError(MgpuError, RuntimeError):
    """The kernel failed while it ran on the simulated GPU."""


class DeadlockError(SimulationError):
    """Every remaining warpgroup waits for something that cannot happen any more."""


class OutOfBoundsError(SimulationError, IndexError):
    """An access lies outside its buffer."""


class BarrierError(SimulationError):
    """A barrier was used in a way that the hardware would not survive."""


class ParamsError(MgpuError, ValueError):
    """A compiler parameter, or a combination of several, makes no sense. Begins with the user's source line."""

    def __init__(self, message: str) -> None:
        super().__init__(_with_user_line(message))


class DeviceError(MgpuError, ValueError):
    """An unknown device, or a device number that does not exist or has the wrong unit."""


class CaptureError(MgpuError, OSError):
    """A capture file or a profile directory cannot be read or written. Earlier captures are left as they are."""


class MissingPackageError(MgpuError, ImportError):
    """A package that only this feature needs is not installed; the message says how to install it."""


class RaceWarning(UserWarning):
    """A simulated kernel accesses memory in an order that nothing guarantees; this run's values may be lucky."""


class UnrecordedWarning(UserWarning):
    """A kernel was asked to be recorded, and runs without."""


class LongRunWarning(UserWarning):
    """A simulation will take minutes or longer; says how long, and how to shorten it."""


class UnwrittenWarning(UserWarning):
    """A simulated kernel reads memory that nobody has written; it finds NaN or the least integer there."""
