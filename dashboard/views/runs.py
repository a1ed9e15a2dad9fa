"""Runs: which launches are here, and can they be trusted?"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from dash import html
from dash.development.base_component import Component

from dashboard.quantities import time_text
from dashboard.views.base import RunsContext
from dashboard.views.components import NOTHING, Column, badge, card, link, table
from dashboard.views.shell import no_launches
from profiler import CaptureError, Launch


def build(context: RunsContext) -> Component:
    """Lays the page out. A launch that cannot be read has its error beside it and disturbs no other."""
    if not context.launches:
        return no_launches(str(context.store.path))
    rows = [_row(context, launch) for launch in context.launches]
    columns = [
        Column("Launch", lambda row: link(row["name"], context.links.page("", launch=row["name"]), class_name="short")),
        Column("Kernel", lambda row: row.get("kernel", NOTHING)),
        Column("Device", lambda row: row.get("device", NOTHING)),
        Column("Origin", _origin, meaning="Simulated here, or measured on a device."),
        Column("Grid", lambda row: row.get("grid", NOTHING)),
        Column("Time", lambda row: row.get("time", NOTHING), lambda row: row.get("ns", 0), is_number=True),
        Column(
            "Events",
            lambda row: f"{row['events']:,}" if "events" in row else NOTHING,
            lambda row: row.get("events", 0),
            is_number=True,
            meaning="Events stored on the device.",
        ),
        Column("Recording", _recording, meaning="Whether the device's event buffer held everything."),
        Column("Written", lambda row: row["written"], lambda row: row["written_at"], is_number=True),
        Column("", lambda row: html.Span(_actions(context, row), className="short")),
    ]
    return html.Div(
        [
            card(
                "Launches",
                table(columns, rows, "Launches"),
                note=f"in {context.store.path}; new ones appear by themselves",
            )
        ],
        className="page",
    )


def _row(context: RunsContext, launch: Launch) -> dict[str, Any]:
    row: dict[str, Any] = {"name": launch.name} | _written(launch)
    try:
        header, summary = context.store.header(launch), context.store.summary(launch)
    except CaptureError as error:
        return row | {"error": str(error)}
    row |= {
        "kernel": header.kernel,
        "device": header.device,
        "provenance": header.provenance,
        "grid": "x".join(str(size) for size in header.grid) or "1",
    }
    if summary is None:
        return row
    return row | {
        "events": summary.events,
        "dropped": summary.dropped,
        "ns": summary.ns,
        "time": time_text(summary.ns),
    }


def _written(launch: Launch) -> dict[str, Any]:
    try:
        moment = launch.capture_path.stat().st_mtime
    except OSError:
        return {"written": NOTHING, "written_at": 0}
    text = datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return {"written": text, "written_at": moment}


def _origin(row: Mapping[str, Any]) -> Component | str:
    if "error" in row:
        return badge("cannot be read", "bad")
    return badge(row["provenance"], "" if row["provenance"] == "simulated" else "good")


def _recording(row: Mapping[str, Any]) -> Component | str:
    if "error" in row:
        return html.Span(row["error"], className="muted")
    if "dropped" not in row:
        return html.Span("being read …", className="muted")
    if row["dropped"]:
        return badge(f"{row['dropped']:,} dropped", "warn", "The event buffer was full: raise profile_space.")
    return badge("complete", "good", "No event was dropped.")


def _actions(context: RunsContext, row: Mapping[str, Any]) -> list[Component | str]:
    if "error" in row:
        return []
    name = row["name"]
    actions: list[Component | str] = [link("timeline", context.links.page("timeline", launch=name))]
    if len(context.launches) > 1:
        actions += [" · ", link("compare", context.links.page("compare", launch=name))]
    return actions
