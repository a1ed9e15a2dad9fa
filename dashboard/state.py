"""The state of a view, which is its URL: what a copied link, a reload and the back button restore."""

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import parse_qs, urlencode

_MAX_TEXT = 200
_MAX_NUMBER = 1 << 60
_CHOICES = {
    "units": ("cycles", "ns"),
    "color": ("kind", "slot", "phase", "line"),
    "count": ("bare", "gross"),
}


@dataclasses.dataclass(frozen=True)
class ViewState:
    """What is looked at, and how.

    Attributes:
      launch: name of the launch; "" means the newest.
      units: durations in "cycles" or "ns".
      sm, cta: chosen SM and CTA; -1: the page chooses.
      t0, t1: visible window in cycles; -1: all of the launch.
      sel: selected thing on the timeline, such as "span:12".
      color: what the timeline's colours mean: "kind", "slot", "phase", "line".
      count: blocked time to count: "bare" (the tensor core had nothing in flight) or "gross" (all).
      barrier: chosen barrier.
      table: chosen table of the data page.
      other: the launch to compare with.
      query: text that the data page filters by.
      find: text that is searched for on the timeline.
    """

    launch: str = ""
    units: str = "cycles"
    sm: int = -1
    cta: int = -1
    t0: int = -1
    t1: int = -1
    sel: str = ""
    color: str = "kind"
    count: str = "bare"
    barrier: str = ""
    table: str = ""
    other: str = ""
    query: str = ""
    find: str = ""

    @classmethod
    def parse(cls, search: str | None) -> ViewState:
        """Reads a URL's query string. What makes no sense is left out, never an error: anybody can type a URL."""
        given = parse_qs((search or "").lstrip("?")[:4096])
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            text = given.get(field.name, [""])[-1][:_MAX_TEXT]
            if field.type == "int":
                number = _parse_number(text)
                if number >= 0:
                    values[field.name] = number
            elif text and text in _CHOICES.get(field.name, (text,)):
                values[field.name] = text
        return cls(**values)

    def query_string(self, **changes: object) -> str:
        """Returns the query string of this state with some fields changed; fields at their default are left out."""
        state = dataclasses.replace(self, **changes)  # pyright: ignore[reportArgumentType]
        default = ViewState()
        values = {
            field.name: getattr(state, field.name)
            for field in dataclasses.fields(self)
            if getattr(state, field.name) != getattr(default, field.name)
        }
        return f"?{urlencode(values)}" if values else ""


def _parse_number(text: str) -> int:
    """Returns a number between 0 and 2**60, else -1."""
    try:
        number = int(float(text))
    except (ValueError, OverflowError):
        return -1
    return number if 0 <= number <= _MAX_NUMBER else -1
