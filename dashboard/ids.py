"""Ids of the components that callbacks and the browser's code refer to."""

from __future__ import annotations

URL = "url"
SHELL = "shell"
PAGE = "page"
TOP_BAR = "top-bar"
NAVIGATION = "navigation"
REFRESH = "refresh"
FINGERPRINT = "fingerprint"
PROGRESS = "progress"
READINESS = "readiness"
TIMELINE = "timeline"
PERFETTO = "perfetto"
HELP = "help"


def graph(name: str) -> dict[str, str]:
    """Returns the id of a chart."""
    return {"graph": name}
