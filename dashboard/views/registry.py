"""All pages, in the order of the navigation."""

from __future__ import annotations

from dashboard.views import (
    barriers,
    bubbles,
    compare,
    critical_path,
    data,
    overview,
    perfetto,
    pipeline,
    roofline,
    runs,
    sms,
    source,
    timeline,
)
from dashboard.views.base import Page, always

PAGES = (
    Page(
        "",
        "Overview",
        "What bounds this launch, what does that cost, and what should change first?",
        "o",
        overview.build,
        fills=overview.PARTS,
    ),
    Page(
        "timeline",
        "Timeline",
        "What did every warpgroup and unit do, when, and who released whom?",
        "t",
        timeline.build,
        background=("bubbles", "barrier_waits"),
        needs=always("utilisation"),
    ),
    Page(
        "bubbles",
        "Bubbles",
        "When did tensor cores have nothing to do, why, and what would fixing it gain?",
        "b",
        bubbles.build,
        needs=always("utilisation", "bubbles"),
    ),
    Page(
        "barriers",
        "Barriers",
        "Who waits for whom, on which barrier, and what had the releaser been doing?",
        "w",
        barriers.build,
        needs=always("utilisation", "barrier_waits"),
    ),
    Page(
        "pipeline",
        "Pipeline",
        "How full was the ring of slots, and would more stages help?",
        "p",
        pipeline.build,
        needs=always("utilisation", "steady_state"),
        fills=("what_if",),
    ),
    Page(
        "critical-path",
        "Critical path",
        "Which chain of events took as long as the launch, and what would change it?",
        "k",
        critical_path.build,
        needs=always("utilisation", "critical_path"),
        fills=("what_if",),
    ),
    Page(
        "sms",
        "SMs",
        "Was the work spread evenly, and what did waves and the tail cost?",
        "m",
        sms.build,
        needs=always("utilisation", "balance", "bubbles"),
    ),
    Page(
        "roofline",
        "Roofline",
        "How far is the launch from what the device allows, and which limit is nearest?",
        "r",
        roofline.build,
        needs=always("utilisation", "roofline"),
    ),
    Page(
        "source",
        "Source",
        "Which lines of the kernel take the time, the waits and the bubbles?",
        "s",
        source.build,
        needs=always("utilisation", "bubbles"),
    ),
    Page(
        "compare",
        "Compare",
        "What got faster or slower since another launch, and why?",
        "c",
        compare.build,
        needs=always(*compare.PARTS),
        compares=True,
    ),
    Page(
        "perfetto",
        "Perfetto",
        "What does the Perfetto UI show of this launch?",
        "e",
        perfetto.build,
        needs=perfetto.needs,
    ),
    Page("data", "Data", "What is in the tables behind these pages?", "d", data.build, needs=data.needs),
    Page("runs", "Runs", "Which launches are here, and can they be trusted?", "n", build_without_launch=runs.build),
)


def find_page(name: str) -> Page | None:
    """Returns the page of that name, None if there is none."""
    return next((page for page in PAGES if page.name == name), None)
