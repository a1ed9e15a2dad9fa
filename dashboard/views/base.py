"""What a page is, and what it is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dash.development.base_component import Component

from dashboard.quantities import Units
from dashboard.state import ViewState
from dashboard.store import LaunchStore, LoadedLaunch
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

    def download(self, launch: str, file: str) -> str:
        """Returns the URL of a file for download."""
        return f"{self.base_path}download/{launch}/{file}"


@dataclasses.dataclass(frozen=True)
class PageContext:
    """Everything that a page about one launch may look at."""

    state: ViewState
    links: Links
    store: LaunchStore
    loaded: LoadedLaunch
    perfetto_ui: bool = False

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
    """

    name: str
    title: str
    question: str
    key: str
    build: Callable[[PageContext], Component] | None = None
    build_without_launch: Callable[[RunsContext], Component] | None = None
