"""Search on the timeline: boxes whose site, barrier, kind, cause or source line contains a text."""

from __future__ import annotations

import dataclasses

import numpy as np

from dashboard.timeline.index import TimelineIndex
from dashboard.timeline.lanes import TICKS, Lanes
from profiler import Report

MAX_TEXT = 80
_KEY_OF_ROW = {"sm": "loss", "unit": "async", "cta": "cta", "track": "span"}


@dataclasses.dataclass(frozen=True)
class SearchAnswer:
    """One hit of a search.

    Attributes:
      total: number of hits.
      hit: which of them this is, from 0; -1 if there is none.
      key: what selects it, such as "span:12"; "" if there is none.
      styles: numbers of all styles whose boxes are hits.
    """

    total: int
    hit: int
    key: str
    styles: list[int]

    def to_json(self) -> dict[str, object]:
        """Returns the answer as a JSON object."""
        return dataclasses.asdict(self)


def matching_styles(report: Report, index: TimelineIndex, text: str) -> list[int]:
    """Returns the styles that a text finds, upper or lower case: by name, kind, cause, `file.py:41` or barrier."""
    wanted = text[:MAX_TEXT].strip().lower()
    if not wanted:
        return []
    styles = index.styles
    barrier_of: dict[int, str] = {}
    for site in report.trace.header.sites:
        barrier_of[styles.span_of_site[site.id]] = barrier_of[styles.async_of_site[site.id]] = site.barrier or ""
    found = []
    for number, style in enumerate(styles.styles):
        texts = (style.name, style.kind, style.kind.replace("_", " "), style.line, barrier_of.get(number, ""))
        if number != styles.counter and any(wanted in one.lower() for one in texts):
            found.append(number)
    return found


def find_hit(
    report: Report, index: TimelineIndex, text: str, hit: int = -1, row: int = 0, t0: float = 0
) -> SearchAnswer:
    """Returns one hit of a search. Hits are counted row by row as the timeline draws them, and by time within a row.

    Args:
      report, index: the launch.
      text: what to look for.
      hit: which one; counted on beyond the last from the first again. -1: the first one in view or after it.
      row, t0: first row in view and first cycle in view, for `hit` = -1.
    """
    styles = matching_styles(report, index, text)
    is_wanted = np.zeros(len(index.styles.styles) + 1, bool)
    is_wanted[styles] = True
    parts = [(lanes, _hits(lanes, part, is_wanted)) for lanes, part in (index.in_drawing_order() if styles else ())]
    ends = np.cumsum([len(boxes) for _, boxes in parts])
    total = int(ends[-1]) if parts else 0
    if not total:
        return SearchAnswer(0, -1, "", [])
    if hit < 0:
        hit = _first_in_view(parts, row, t0)
    hit %= total
    number = int(np.searchsorted(ends, hit, side="right"))
    lanes, boxes = parts[number]
    return SearchAnswer(total, hit, _key(index, lanes, int(boxes[hit - int(ends[number]) + len(boxes)])), styles)


def _hits(lanes: Lanes, part: range, is_wanted: np.ndarray) -> np.ndarray:
    """Returns the numbers of the hits among the boxes of some lanes that follow each other."""
    first, last = (int(lanes.offsets[lane]) for lane in (part.start, part.stop))
    boxes = lanes.boxes.slice(first, last)
    return first + np.flatnonzero(is_wanted[boxes.style] & (boxes.id >= 0))


def _first_in_view(parts: list[tuple[Lanes, np.ndarray]], row: int, t0: float) -> int:
    """Returns the first hit from a row on that lasts beyond a moment, else the first from that row on."""
    rows = np.concatenate([lanes.row[_lanes_of(lanes, boxes)] for lanes, boxes in parts])
    ends = np.concatenate([lanes.boxes.end[boxes] for lanes, boxes in parts])
    from_row = int(np.searchsorted(rows, row))
    later = np.flatnonzero(ends[from_row:] >= t0)
    return from_row + int(later[0]) if len(later) else from_row


def _lanes_of(lanes: Lanes, boxes: np.ndarray) -> np.ndarray:
    return np.searchsorted(lanes.offsets, boxes, side="right") - 1


def _key(index: TimelineIndex, lanes: Lanes, box: int) -> str:
    lane = int(_lanes_of(lanes, np.array([box]))[0])
    kind = "instant" if lanes.depth[lane] == TICKS else _KEY_OF_ROW[index.rows[int(lanes.row[lane])].kind]
    return f"{kind}:{int(lanes.boxes.id[box])}"
