"""Source lines in tables: short enough for a column, long enough to be recognised."""

from __future__ import annotations

MAX_CHARACTERS = 18
_ELLIPSIS = "…"


def shorten_source(location: str, max_characters: int = MAX_CHARACTERS) -> str:
    """Shortens `file.py:41` in the middle of the file's name; the line number stays.

    >>> shorten_source("04_warp_specialized_matmul.py:73")
    '04_warp…tmul.py:73'
    """
    name, colon, line = location.rpartition(":")
    room = max_characters - len(line) - 1
    if not colon or len(location) <= max_characters or room < 3:
        return location
    head = room // 2
    tail = room - head - len(_ELLIPSIS)
    return f"{name[:head]}{_ELLIPSIS}{name[-tail:]}:{line}"
