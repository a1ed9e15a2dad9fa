"""Traces of other tools as captures of this one: a file per format, chosen by what is in the file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from mgpu.capture import Capture
from mgpu.errors import CaptureError
from profiler.importers.iket_json import import_iket
from profiler.importers.jax_json import import_jax

__all__ = ["import_file", "import_iket", "import_jax"]


def import_file(path: str | Path, *, clock_hz: float = 0.0, device: str = "", tracks_per_cta: int = 0) -> Capture:
    """Reads a trace of another tool: JAX's `*-trace.json`, or the JSON of NVIDIA IKET; either may be gzipped.

    Args:
      path: the file.
      clock_hz: SM clock of the run; JAX's files cannot be read without it, IKET's are in ns already.
      device: name of the device that it ran on, "" if unknown.
      tracks_per_cta: for JAX's files, how many warps or warpgroups of a CTA were recorded; 0 finds it out.

    Raises:
      CaptureError: the file cannot be read, or is of neither kind.
      ParamsError: the clock is missing where it is needed.
    """
    source = Path(path)
    content = _read(source)
    name = source.name.removesuffix(".gz").removesuffix(".json").removesuffix("-trace")
    if isinstance(content, dict) and ("launches" in content or "graphLaunches" in content):
        return import_iket(content, name=name, clock_hz=clock_hz, device=device)
    if isinstance(content, dict) and isinstance(content.get("traceEvents"), list):
        return import_jax(content, name=name, clock_hz=clock_hz, device=device, tracks_per_cta=tracks_per_cta)
    raise CaptureError(
        f"{path}: neither a trace of JAX's Mosaic GPU profiler (`traceEvents`) nor of NVIDIA IKET (`launches`). "
        "Give the JSON file that one of them wrote."
    )


def _read(path: Path) -> Any:
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except FileNotFoundError as error:
        raise CaptureError(f"{path}: no such file.") from error
    except (OSError, ValueError, EOFError) as error:
        raise CaptureError(f"{path}: not a JSON file, or truncated ({error}).") from error
