"""All pages, in the order of the navigation."""

from __future__ import annotations

from dashboard.views import barriers, bubbles, overview, timeline
from dashboard.views.base import Page

PAGES = (
    Page("", "Overview", "What bounds this launch, what does that cost, and what should change first?", "o", overview.build),
    Page("timeline", "Timeline", "What did every warpgroup and unit do, when, and who released whom?", "t", timeline.build, True),
    Page("bubbles", "Bubbles", "When did tensor cores have nothing to do, why, and what would fixing it gain?", "b", bubbles.build),
    Page("barriers", "Barriers", "Who waits for whom, on which barrier, and what had the releaser been doing?", "w", barriers.build),
)  # fmt: skip


def find_page(name: str) -> Page | None:
    """Returns the page of that name, None if there is none."""
    return next((page for page in PAGES if page.name == name), None)
