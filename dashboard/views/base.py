"""What a page is, and what it is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from urllib.parse import urlencode

from dash.development.base_component import Component

from dashboard.quantities import Units
from dashboard.state import ViewState
from dashboard.store import LaunchStore, LoadedLaunch
from dashboard.work import Analysis, Progress, State
from profiler import Launch


@dataclasses.dataclass(frozen=True)
class Links:
    """Makes URLs inside the application.

    Attributes:
      base_path: where the application is mounted, with "/" at both ends.
      state: the state that links keep unless they change it.
    """

    base_path: str
    state: ViewState

    def page(self, name: str, **changes: object) -> str:
        """Returns the URL of a page with the present state, some fields of it changed."""
        return f"{self.base_path}{name}{self.state.query_string(**changes)}"

    def download(self, launch: str, file: str, query: str = "") -> str:
        """Returns the URL of a file for download; of a table, only the rows that a filter lets pass."""
        return f"{self.base_path}download/{launch}/{file}" + (f"?{urlencode({'query': query})}" if query else "")


@dataclasses.dataclass(frozen=True)
class PageContext:
    """Everything that a page about one launch may look at.

    Attributes:
      state, links: what is looked at, and where links lead.
      store: all launches.
      loaded: the launch.
      perfetto_ui: True if the Perfetto UI is at hand.
      analysis: how far the launch's analyses are; None if nothing runs in the background.
    """

    state: ViewState
    links: Links
    store: LaunchStore
    loaded: LoadedLaunch
    perfetto_ui: bool = False
    analysis: Analysis[LoadedLaunch] | None = None

    def missing(self, *parts: str) -> Progress | None:
        """Returns how far the first part is that cannot be shown: it is still being found, or failed. None: show all.

        Without an analysis in the background, as in a static report, every part is found when it is asked for.
        """
        if self.analysis is None:
            return None
        found = (self.analysis.progress(part) for part in parts)
        return next((progress for progress in found if progress.state is not State.DONE), None)

    @property
    def units(self) -> Units:
        """How durations are shown."""
        return Units(self.state.units, self.loaded.trace.header.clock_hz)


@dataclasses.dataclass(frozen=True)
class RunsContext:
    """What the list of launches may look at: no launch needs to be readable."""

    state: ViewState
    links: Links
    store: LaunchStore
    launches: list[Launch]


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of the dashboard.

    Attributes:
      name: its path below the base path; "" is the first page.
      title: name in the navigation.
      question: what the page answers, in the words of a kernel engineer.
      key: pressing `g` and this letter opens it.
      build: makes its content from a launch.
      build_without_launch: makes it where no launch needs to be readable; one of the two is given.
      needs: parts of the report without which there is no page; what they are may depend on the state.
      fills: parts that the page shows when they are there, with something in their place until then.
      background: parts that may be asked for next.
      compares: True if the page needs the same of a second launch.
    """

    name: str
    title: str
    question: str
    key: str
    build: Callable[[PageContext], Component] | None = None
    build_without_launch: Callable[[RunsContext], Component] | None = None
    needs: Callable[[ViewState], tuple[str, ...]] = lambda _: ()
    fills: tuple[str, ...] = ()
    background: tuple[str, ...] = ()
    compares: bool = False


def always(*parts: str) -> Callable[[ViewState], tuple[str, ...]]:
    """Returns needs that do not depend on the state."""
    return lambda _: parts
