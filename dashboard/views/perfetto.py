"""Perfetto: the same launch in the Perfetto UI, in a frame, without a network."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from dashboard import ids
from dashboard.markup import extra
from dashboard.state import ViewState
from dashboard.timeline.perfetto_slice import perfetto_target
from dashboard.views.base import PageContext
from dashboard.views.components import download, empty


def needs(state: ViewState) -> tuple[str, ...]:
    """Returns the parts of the report that the page needs: bubbles if one is selected."""
    return ("bubbles",) if state.sel.startswith(("loss:", "bubble:")) else ()


def build(context: PageContext) -> Component:
    """Lays the page out. `assets/perfetto.js` hands the trace over; the frame makes no request off this machine."""
    trace = context.links.download(context.loaded.name, "trace.pftrace")
    title = f"{context.loaded.name} ({context.loaded.trace.header.device})"
    online = html.Button(
        "Open in ui.perfetto.dev",
        className="button small",
        title="The trace stays in your browser",
        **extra({"data-action": "perfetto-online", "data-trace": trace, "data-title": title}),
    )
    toolbar = html.Div(
        [download("Save the trace", trace), online, html.Span(className="perfetto-status muted", role="status")],
        className="toolbar",
    )
    if not context.perfetto_ui:
        text = [
            html.P("The Perfetto UI is not installed here. It comes with an extra package:"),
            html.Pre("pip install 'mgpu[ui]'"),
            html.P("or name a folder with a build of it: mgpu dashboard --perfetto-ui FOLDER"),
        ]
        return html.Div([toolbar, empty("No Perfetto UI", text)], className="page")
    # On an empty route this build asks for other traces; outside "embedded" mode it would load Google Analytics.
    frame = html.Iframe(
        id=ids.PERFETTO,
        className="perfetto-frame",
        title="Perfetto UI",
        **extra(
            {
                "data-source": f"{context.links.base_path}perfetto-ui/#!/viewer?mode=embedded",
                "data-trace": trace,
                "data-title": title,
                **_target(context),
            }
        ),
    )
    return html.Div([toolbar, frame], className="page page-timeline")


def _target(context: PageContext) -> dict[str, str]:
    """Returns what the frame should select and show, for the script: nothing if the view names neither."""
    target = perfetto_target(context.loaded.report, context.state)
    if target is None:
        return {}
    return {
        "data-target": target.text,
        "data-begin": str(target.begin),
        "data-end": str(target.end),
        "data-query": target.query,
    }
