"""What is known about a selected box: its numbers, and the arrows to what it waited for or released."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import polars as pl

from dashboard.names import unit_name
from dashboard.quantities import Units
from dashboard.timeline.losses import losses_table
from profiler import Report
from profiler.analysis import Cause, Detail, recommended_reading

_MAX_ARROWS = 12


@dataclasses.dataclass(frozen=True)
class Arrow:
    """An arrow between two moments: from (row, cycles) to (row, cycles)."""

    from_row: str
    from_time: int
    to_row: str
    to_time: int
    label: str


@dataclasses.dataclass(frozen=True)
class Selection:
    """A selected box.

    Attributes:
      key: what selects it again, such as "span:12".
      title: what it is.
      row: key of its row.
      begin, end: cycles.
      facts: name and value, for reading.
      arrows: arrivals it waited for, or caused.
      related: (text, key) of boxes to go to.
    """

    key: str
    title: str
    row: str
    begin: int
    end: int
    facts: list[tuple[str, str]]
    arrows: list[Arrow] = dataclasses.field(default_factory=list)
    related: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns the selection as a JSON object."""
        return dataclasses.asdict(self)


def describe_selection(report: Report, key: str, units: Units) -> Selection | None:
    """Returns what is known about "span:ID", "async:ID", "instant:ID", "loss:ID", "bubble:SM:BEGIN" or "cta:ID".

    None if there is no such thing, or if nobody has found the bubbles yet.
    """
    kind, _, rest = key.partition(":")
    find = _FINDERS.get(kind)
    numbers = rest.split(":")
    if find is None or len(rest) > 40 or not all(number.isdecimal() for number in numbers):
        return None
    return find(report, [int(number) for number in numbers], units)


def _row(table: pl.DataFrame, number: int) -> dict[str, Any] | None:
    return table.row(number, named=True) if number < table.height else None


def _span(report: Report, numbers: list[int], units: Units) -> Selection | None:
    trace = report.trace
    span = _row(trace.spans, numbers[0])
    if span is None:
        return None
    track = trace.tracks.row(span["track"], named=True)
    begin, end = span["begin"], span["begin"] + span["dur"]
    facts = [("on", f"SM {track['sm']}, CTA {track['cta']}, {track['name']}"), *_times(begin, end, units)]
    facts += [("source", _location(report, span["site"])), *_slot(span)]
    if not span["closed"]:
        facts.append(("note", "its end was not recorded; it is drawn up to the track's last event"))
    waits = trace.waits.filter(pl.col("span") == span["span"])
    arrows: list[Arrow] = []
    related: list[tuple[str, str]] = []
    if waits.height:
        more, arrows, related = _wait(report, waits.row(0, named=True), f"track:{span['track']}", units)
        facts += more
    return Selection(f"span:{numbers[0]}", span["name"], f"track:{span['track']}", begin, end, facts, arrows, related)


def _wait(
    report: Report, wait: dict[str, Any], row: str, units: Units
) -> tuple[list[tuple[str, str]], list[Arrow], list[tuple[str, str]]]:
    """Describes a barrier wait: whether it blocked, who released it and what that one had been doing."""
    if not wait["blocked"]:
        return [("blocked", "no: the phase was complete when the wait began")], [], []
    facts = _blame(report, wait["span"], units)
    arrival = _row(report.trace.arrivals, wait["arrival"]) if wait["arrival"] >= 0 else None
    if arrival is None:
        return facts, [], []
    source_row, related = _arrival_source(report, arrival)
    arrows = [Arrow(source_row, arrival["time"], row, wait["begin"] + wait["dur"], "arrival that released it")]
    return facts, arrows, related


def _blame(report: Report, span: int, units: Units) -> list[tuple[str, str]]:
    """Returns what the analysis of waits says about one; that it is not there yet if nobody has asked for it."""
    if not report.is_known("barrier_waits"):
        return [("released by", "still being found")]
    known = report.barrier_waits.waits.filter(pl.col("span") == span)
    if known.is_empty():
        return [("released by", "not known: the wait ended after the last moment of which everything is known")]
    wait = known.row(0, named=True)
    facts = [
        ("blocked", units.both(wait["blocked_cycles"])),
        ("of it bare", f"{units.text(wait['uncovered_cycles'])} (tensor core had nothing in flight)"),
        ("released by", _releaser(wait)),
        ("which had been", f"{wait['had_been']} {wait['had_been_source']}".rstrip()),
    ]
    if wait["load_issued"] >= 0:
        facts.append(("its load", f"issued at {wait['load_issued']:,}, took {units.text(wait['load_cycles'])}"))
    return facts


def _releaser(wait: dict[str, Any]) -> str:
    names = [unit_name(wait["released_by"]), unit_name(wait["releaser"])] if wait["released_by"] else ["unknown"]
    return names[0] if names[0] == names[-1] else f"{names[0]} ({names[-1]})"


def _arrival_source(report: Report, arrival: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """Returns the row that an arrival comes from, and what to go to."""
    if arrival["source"].startswith("WG"):
        related = [("the arrival", f"instant:{arrival['source_event']}")] if arrival["source_event"] >= 0 else []
        return f"track:{arrival['source_track']}", related
    event = arrival["source_event"]
    sm = report.trace.async_spans["sm"][event] if event >= 0 else arrival["sm"]
    return f"unit:{arrival['source']}:{sm}", [("the transfer", f"async:{event}")] if event >= 0 else []


def _async(report: Report, numbers: list[int], units: Units) -> Selection | None:
    span = _row(report.trace.async_spans, numbers[0])
    if span is None:
        return None
    begin, end = span["begin"], span["begin"] + span["dur"]
    row = f"unit:{span['unit']}:{span['sm']}"
    facts = [("on", f"SM {span['sm']}, issued by CTA {span['cta']} WG{span['warpgroup']}"), *_times(begin, end, units)]
    facts += [("source", _location(report, span["site"])), *_slot(span)]
    if span["bytes"]:
        rate = span["bytes"] / max(span["dur"], 1)
        facts.append(("moves", f"{span['bytes']:,} bytes, {rate:,.1f} bytes/cycle"))
    if span["flops"]:
        facts.append(("computes", f"{span['flops']:,} FLOP, {span['flops'] / max(span['dur'], 1):,.0f} FLOP/cycle"))
    if span["provenance"] != "simulated":
        facts.append(("note", f"{span['provenance']}: not recorded, concluded from issue and wait"))
    released = report.trace.arrivals.filter(
        (pl.col("source_event") == numbers[0]) & ~pl.col("source").str.starts_with("WG")
    )
    arrows = _released_waits(report, released, row)
    return Selection(f"async:{numbers[0]}", span["name"], row, begin, end, facts, arrows)


def _instant(report: Report, numbers: list[int], units: Units) -> Selection | None:
    instant = _row(report.trace.instants, numbers[0])
    if instant is None:
        return None
    time, row = instant["time"], f"track:{instant['track']}"
    track = report.trace.tracks.row(instant["track"], named=True)
    facts = [("on", f"SM {track['sm']}, CTA {track['cta']}, {track['name']}"), ("at", units.both(time))]
    facts += [("source", _location(report, instant["site"])), *_slot(instant)]
    released = report.trace.arrivals.filter(
        (pl.col("source_event") == numbers[0]) & pl.col("source").str.starts_with("WG")
    )
    if released.height and not released["completes"].any():
        facts.append(("effect", "one of several arrivals; the phase was completed by a later one"))
    return Selection(
        f"instant:{numbers[0]}", instant["name"], row, time, time, facts, _released_waits(report, released, row)
    )


def _released_waits(report: Report, arrivals: pl.DataFrame, row: str) -> list[Arrow]:
    """Returns arrows to the blocked waits that these arrivals released."""
    waits = report.trace.waits.filter(pl.col("blocked")).join(
        arrivals.filter(pl.col("completes")).select("arrival", "time"), on="arrival"
    )
    return [
        Arrow(row, wait["time"], f"track:{wait['track']}", wait["begin"] + wait["dur"], "released")
        for wait in waits.sort("span").head(_MAX_ARROWS).iter_rows(named=True)
    ]


def _loss(report: Report, numbers: list[int], units: Units) -> Selection | None:
    loss = _row(losses_table(report.bubbles), numbers[0]) if report.is_known("bubbles") else None
    if loss is None:
        return None
    begin, end = loss["begin"], loss["begin"] + loss["dur"]
    reading = recommended_reading(Cause(loss["cause"]), Detail(loss["detail"]))
    facts = [("on", f"SM {loss['sm']}, tensor core idle"), *_times(begin, end, units)]
    facts += [("explained by", f"{loss['waiter']} at {loss['source']}".strip())] if loss["waiter"] else []
    if loss["barrier"]:
        facts.append(("waiting on", f"{loss['barrier']}[{loss['slot']}] phase {loss['phase']}"))
    if loss["root_barrier"]:
        facts.append(("held up by", f"a wait on {loss['root_barrier']} at {loss['root_source']}"))
    facts += [("meaning", reading.meaning), ("try", reading.remedy)]
    title = f"bubble: {loss['cause']}" + (f", {loss['detail']}" if loss["detail"] else "")
    related = []
    if loss["track"] >= 0:
        spans = report.trace.spans.filter(
            (pl.col("track") == loss["track"]) & (pl.col("begin") <= begin) & (pl.col("begin") + pl.col("dur") > begin)
        )
        related = [(name, f"span:{span}") for span, name in spans.select("span", "name").iter_rows()]
    return Selection(f"loss:{numbers[0]}", title, f"sm:{loss['sm']}", begin, end, facts, [], related)


def _bubble_at(report: Report, numbers: list[int], units: Units) -> Selection | None:
    if len(numbers) != 2 or not report.is_known("bubbles"):
        return None
    table = losses_table(report.bubbles).with_row_index("loss")
    found = table.filter((pl.col("sm") == numbers[0]) & (pl.col("begin") == numbers[1]))
    return _loss(report, [int(found["loss"][0])], units) if found.height else None


def _cta(report: Report, numbers: list[int], units: Units) -> Selection | None:
    found = report.trace.ctas.filter(pl.col("cta") == numbers[0])
    if found.is_empty():
        return None
    cta = found.row(0, named=True)
    facts = [("on", f"SM {cta['sm']}, cluster {cta['cluster']}"), *_times(cta["begin"], cta["end"], units)]
    return Selection(f"cta:{numbers[0]}", f"CTA {cta['cta']}", f"cta:{cta['cta']}", cta["begin"], cta["end"], facts)


_FINDERS: dict[str, Callable[[Report, list[int], Units], Selection | None]] = {
    "span": _span,
    "async": _async,
    "instant": _instant,
    "loss": _loss,
    "bubble": _bubble_at,
    "cta": _cta,
}


def _times(begin: int, end: int, units: Units) -> list[tuple[str, str]]:
    return [("begin", units.text(begin)), ("length", units.both(end - begin))]


def _slot(row: dict[str, Any]) -> list[tuple[str, str]]:
    if row["slot"] < 0:
        return []
    return [("slot", f"{row['slot']}, phase {row['phase']}" if row.get("phase", -1) >= 0 else str(row["slot"]))]


def _location(report: Report, site: int) -> str:
    return next((one.location for one in report.trace.header.sites if one.id == site), "") or "unknown"
