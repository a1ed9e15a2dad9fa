"""One launch as one HTML file that needs neither a server nor a network: for CI, mail and archives."""

from __future__ import annotations

import dataclasses
import html as escaping
from pathlib import Path

import plotly.io
from dash import dcc, html
from dash.development.base_component import Component
from plotly.offline import get_plotlyjs

from dashboard import figures
from dashboard.markup import to_html
from dashboard.state import ViewState
from dashboard.store import LaunchStore, LoadedLaunch
from dashboard.views import barriers, bubbles, critical_path, overview, pipeline, roofline, sms, source
from dashboard.views.base import Links, PageContext
from dashboard.views.components import GRAPH_CONFIG, card, chart
from profiler import CaptureError

_ASSETS = Path(__file__).parent / "assets"
_SECTIONS = (
    ("overview", "Overview", overview.build),
    ("timeline", "Timeline", None),
    ("bubbles", "Bubbles", bubbles.build),
    ("barriers", "Barriers", barriers.build),
    ("pipeline", "Pipeline", pipeline.build),
    ("critical-path", "Critical path", critical_path.build),
    ("sms", "SMs", sms.build),
    ("roofline", "Roofline", roofline.build),
    ("source", "Source", source.build),
)
_THEME = (
    "document.documentElement.dataset.theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';"
)
_STYLE = (
    ".shell { display: block; } .static-nav { display: flex; gap: 16px; } .select-label, "
    ".show:not([href]), .button:not([href]), .segments { display: none; }"
)


@dataclasses.dataclass(frozen=True)
class StaticLinks(Links):
    """Links inside one file: to its sections, and nowhere else."""

    def page(self, name: str, **changes: object) -> str:
        """Returns the section's anchor, "" for pages that a file cannot have."""
        known = {section for section, _, _ in _SECTIONS}
        return f"#{name or 'overview'}" if (name or "overview") in known else ""

    def download(self, launch: str, file: str, query: str = "") -> str:
        """Returns "": there is no server to ask."""
        return ""


def write_static(profile: str | Path, output: str | Path, launch: str = "", units: str = "cycles") -> Path:
    """Writes the report of a launch as one HTML file.

    Args:
      profile: profile directory, launch folder or capture file.
      output: the file.
      launch: name of the launch; "" means the newest.
      units: "cycles" or "ns".

    Returns:
      The file's path.

    Raises:
      CaptureError: there is no such launch, it cannot be read, or the file cannot be written.
    """
    store = LaunchStore(profile)
    found = store.find(launch)
    if found is None:
        raise CaptureError(f"{profile}: holds no launch {launch!r}." if launch else f"{profile}: holds no launches.")
    text = render_static(store, store.load(found), units)
    path = Path(output)
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise CaptureError(f"{path}: cannot be written: {error.strerror or error}.") from error
    return path


def render_static(store: LaunchStore, loaded: LoadedLaunch, units: str = "cycles") -> str:
    """Returns the report as HTML text."""
    state = ViewState(launch=loaded.name, units=units)
    context = PageContext(state, StaticLinks("/", state), store, loaded)
    header = loaded.trace.header
    sections, links = [], []
    for name, title, build in _SECTIONS:
        content = build(context) if build is not None else _timeline(context)
        sections.append(
            f'<section id="{name}"><div class="page-head"><h1>{title}</h1></div>{_render(content)}</section>'
        )
        links.append(f'<a href="#{name}">{title}</a>')
    title = escaping.escape(f"{loaded.name} on {header.device} ({header.provenance})")
    style = (_ASSETS / "style.css").read_text("utf-8") + _STYLE
    sorting = (_ASSETS / "b_tables.js").read_text("utf-8")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{style}</style>'
        f"<script>{_THEME}</script><script>{get_plotlyjs()}</script></head><body>"
        f'<header class="top-bar"><b>{title}</b><nav class="static-nav">{"".join(links)}</nav></header>'
        f"<main>{''.join(sections)}</main><script>{sorting}</script></body></html>\n"
    )


def _timeline(context: PageContext) -> Component:
    """Lays out the timeline of the SM with most time in bubbles, which says most about the launch."""
    used = context.loaded.report.bubbles.sms.sort("bubble_cycles", "sm", descending=[True, False])
    on_sms = used["sm"].to_list() or context.loaded.trace.ctas["sm"].head(1).to_list()
    if not on_sms:
        return html.Div(className="page")
    figure = figures.sm_timeline(context.loaded.timeline, on_sms[0], context.units)
    return html.Div(
        [card(f"SM {on_sms[0]}", chart("timeline", figure), note="the SM with most bubbles")], className="page"
    )


def _render(component: Component | str | float) -> str:
    """Returns a page as HTML, with its charts as calls of Plotly."""
    if isinstance(component, dcc.Graph):
        figure = component.figure  # pyright: ignore[reportAttributeAccessIssue]
        drawn = plotly.io.to_html(figure, GRAPH_CONFIG, full_html=False, include_plotlyjs=False, default_width="100%")
        return f'<div class="chart">{drawn}</div>'
    return to_html(component, _render)
