"""What stands where something is still being found: pages fill themselves as the analyses get on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dash import html
from dash.development.base_component import Component

from dashboard.markup import extra
from dashboard.views.base import PageContext
from dashboard.views.components import card
from dashboard.work import Progress, State

_SIGNS = {State.DONE: "✓", State.RUNNING: "…", State.WAITING: "", State.FAILED: "✗"}


def section(context: PageContext, parts: Sequence[str], title: str, build: Callable[[], Component]) -> Component:
    """Returns what `build` makes, or as long as parts of the report are missing, a card that says so.

    Args:
      context: what the page looks at.
      parts: names of `dashboard.work.PARTS` that `build` asks for.
      title: of the card.
      build: makes the section.
    """
    progress = context.missing(*parts)
    return build() if progress is None else card(title, pending(progress))


def pending(progress: Progress) -> Component:
    """Returns a line that says what is being done, or what went wrong."""
    if progress.state is State.FAILED:
        return html.P(f"{progress.title}: this failed. The console of the server says why.", className="failed")
    text = f"{progress.title} …" + (f" {progress.seconds:.0f} s" if progress.seconds >= 1 else "")
    return html.Div([html.Span(className="busy-bar"), text], className="pending", role="status")


def waiting_page(title: str, steps: Sequence[Progress]) -> Component:
    """Returns what stands for a page that needs more than is known: all steps, and how far they are.

    Args:
      title: of the launch.
      steps: what the page needs, in order.
    """
    rows = [
        html.Tr(
            [
                html.Td(_SIGNS[step.state], className="step-sign"),
                html.Td(step.title),
                html.Td(f"{step.seconds:.1f} s" if step.seconds else "", className="number muted"),
            ],
            className=f"step {step.state}",
        )
        for step in steps
    ]
    done = sum(step.state is State.DONE for step in steps)
    bar = html.Div(
        html.Div(style={"width": f"{done / max(len(steps), 1):.0%}"}, className="meter-fill"), className="meter"
    )
    table = html.Table(html.Tbody(rows), className="steps", **extra({"aria-label": "Progress"}))
    return html.Div(
        card(f"Analysing {title}", bar, table, note="once for this launch; the page opens by itself"), className="page"
    )
