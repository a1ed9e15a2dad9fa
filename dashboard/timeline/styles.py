"""What the boxes of the timeline mean: a table of styles that boxes refer to by number."""

from __future__ import annotations

import dataclasses

from dashboard.theme import CAUSE_COLORS, HATCHED_KINDS, KIND_COLORS
from profiler import Report

FALLBACK = "#9aa0a8"


@dataclasses.dataclass(frozen=True)
class Style:
    """How a box is drawn and named.

    Attributes:
      name: what it is: a site's name, a cause, "CTA".
      kind: what its colour stands for.
      color: the colour by kind.
      hatched: True for waits.
      line: `file.py:41`, "" if unknown.
    """

    name: str
    kind: str
    color: str
    hatched: bool = False
    line: str = ""


@dataclasses.dataclass(frozen=True)
class Styles:
    """All styles of a launch.

    Attributes:
      styles: the table.
      span_of_site, async_of_site: style number by site id: for spans, and for asynchronous work of units.
      of_cause: style number by cause of a bubble.
      busy, cta, counter: numbers of the other styles.
    """

    styles: list[Style]
    span_of_site: dict[int, int]
    async_of_site: dict[int, int]
    of_cause: dict[str, int]
    busy: int
    cta: int
    counter: int

    @classmethod
    def of(cls, report: Report) -> Styles:
        """Makes the table for a launch."""
        styles: list[Style] = []

        def add(style: Style) -> int:
            styles.append(style)
            return len(styles) - 1

        span_of_site, async_of_site = {}, {}
        for site in report.trace.header.sites:
            kind = str(site.kind)
            color, unit = KIND_COLORS.get(kind, FALLBACK), _unit_of(kind)
            span_of_site[site.id] = add(Style(site.name, kind, color, kind in HATCHED_KINDS, site.location))
            async_of_site[site.id] = add(Style(site.name, unit, KIND_COLORS.get(unit, FALLBACK), line=site.location))
        of_cause = {cause: add(Style(cause, f"bubble: {cause}", color, True)) for cause, color in CAUSE_COLORS.items()}
        busy = add(Style("tensor core busy", "tensor_core", KIND_COLORS["tensor_core"]))
        cta = add(Style("CTA", "CTA", "#aab4c2"))
        counter = add(Style("counter", "counter", "#6f8fb3"))
        return cls(styles, span_of_site, async_of_site, of_cause, busy, cta, counter)

    def to_json(self) -> list[dict[str, object]]:
        """Returns the table as JSON."""
        return [dataclasses.asdict(style) for style in self.styles]


def _unit_of(kind: str) -> str:
    return "tensor_core" if kind.startswith("mma") else kind
