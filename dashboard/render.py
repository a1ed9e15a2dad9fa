"""Makes what a URL shows: the navigation, the top bar and the page. Plain functions, which the callbacks call."""

from __future__ import annotations

import dataclasses

from dash import html
from dash.development.base_component import Component

from dashboard.state import ViewState
from dashboard.store import LaunchStore
from dashboard.views import shell
from dashboard.views.base import Links, Page, PageContext, RunsContext
from dashboard.views.registry import PAGES, find_page
from profiler import CaptureError
from profiler.trace import CaptureHeader


@dataclasses.dataclass(frozen=True)
class Renderer:
    """Turns addresses into content.

    Attributes:
      store: the launches.
      base_path: where the application is mounted.
      perfetto_ui: True if the Perfetto UI is at hand.
    """

    store: LaunchStore
    base_path: str = "/"
    perfetto_ui: bool = False

    def page_name(self, pathname: str | None) -> str:
        """Returns the name of the page that a path leads to."""
        path = pathname or "/"
        prefix = self.base_path if path.startswith(self.base_path) else "/"
        return path[len(prefix) :].strip("/")[:40]

    def navigation(self, pathname: str | None, search: str | None) -> list[Component]:
        """Returns the list of pages."""
        return shell.navigation(PAGES, self.page_name(pathname), self._links(ViewState.parse(search)))

    def top_bar(self, search: str | None) -> list[Component]:
        """Returns the bar above the page. It says nothing about a launch that cannot be read."""
        state = ViewState.parse(search)
        launches = self.store.launches()
        launch = self.store.find(state.launch)
        header: CaptureHeader | None = None
        if launch is not None:
            try:
                header = self.store.load(launch).trace.header
            except CaptureError:
                header = None
        return shell.top_bar(launches, launch.name if launch else "", header, state)

    def page(self, pathname: str | None, search: str | None) -> Component:
        """Returns the content of a page."""
        state = ViewState.parse(search)
        links = self._links(state)
        page = find_page(self.page_name(pathname))
        if page is None:
            return shell.not_found(f"page {self.page_name(pathname)!r}", links)
        if page.build_without_launch is not None:
            runs = RunsContext(state, links, self.store, self.store.launches())
            return _with_head(page, page.build_without_launch(runs))
        launch = self.store.find(state.launch)
        if launch is None:
            if state.launch and self.store.launches():
                return shell.not_found(f"launch {state.launch!r}", links)
            return shell.no_launches(str(self.store.path))
        try:
            loaded = self.store.load(launch)
            context = PageContext(state, links, self.store, loaded, self.perfetto_ui)
            assert page.build is not None
            return _with_head(page, page.build(context))
        except CaptureError as error:
            return shell.unreadable(launch.name, str(error), links)

    def _links(self, state: ViewState) -> Links:
        return Links(self.base_path, state)


def _with_head(page: Page, content: Component) -> Component:
    """Puts a page's question above its content."""
    return html.Div([shell.page_head(page), content])
