"""Makes what a URL shows: the navigation, the top bar and the page. Plain functions, which the callbacks call."""

from __future__ import annotations

import dataclasses
import traceback

from dash import html
from dash.development.base_component import Component

from dashboard.state import ViewState
from dashboard.store import LaunchStore, LoadedLaunch
from dashboard.views import shell
from dashboard.views.base import Links, Page, PageContext, RunsContext
from dashboard.views.compare import other_launch
from dashboard.views.progress import waiting_page
from dashboard.views.registry import PAGES, find_page
from dashboard.work import TRACE, Analysis
from profiler import CaptureError, Launch
from profiler.trace import CaptureHeader


@dataclasses.dataclass(frozen=True)
class Renderer:
    """Turns addresses into content.

    Attributes:
      store: the launches.
      base_path: where the application is mounted.
      perfetto_ui: True if the Perfetto UI is at hand.
      patience_seconds: how long to wait for analyses before a page is shown without them.
    """

    store: LaunchStore
    base_path: str = "/"
    perfetto_ui: bool = False
    patience_seconds: float = 0.4

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
                header = self.store.header(launch)
            except CaptureError:
                header = None
        return shell.top_bar(launches, launch.name if launch else "", header, state)

    def readiness(self, pathname: str | None, search: str | None) -> tuple[str, bool]:
        """Has what a page needs found in the background; waits a little for it.

        Returns:
          A text that changes when the page can show more, and whether something is still missing.
        """
        page, state = find_page(self.page_name(pathname)), ViewState.parse(search)
        if page is not None and page.build_without_launch is not None:
            known = [self.store.is_summarised(launch) for launch in self.store.launches()]
            return f"{sum(known)} of {len(known)}", not all(known)
        launch = self.store.find(state.launch)
        if page is None or launch is None:
            return "", False
        analyses = self._request(page, launch, state)
        needs, shown = page.needs(state), (TRACE, *page.needs(state), *page.fills)
        settled = [part for analysis in analyses for part in shown if analysis.is_settled(part)]
        if len(settled) == len(analyses) * len(shown):
            return ",".join(settled), False
        opens = all(analysis.is_settled(part) for analysis in analyses for part in (TRACE, *needs))
        running = [analysis.progress(part).seconds for analysis in analyses for part in shown]
        # What is drawn in place of a page, or of a verdict, counts the seconds; charts are not drawn again for them.
        return ",".join(settled) + ("" if opens else f" {sum(running):.1f}"), True

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
        return self._launch_page(page, launch, state, links)

    def _launch_page(self, page: Page, launch: Launch, state: ViewState, links: Links) -> Component:
        analyses = self._request(page, launch, state)
        analysis, needs = analyses[0], (TRACE, *page.needs(state))
        errors = [analysis.errors[part] for part in needs if part in analysis.errors]
        if errors:
            return shell.unreadable(launch.name, str(errors[0]), links)
        if not all(one.is_settled(part) for one in analyses for part in needs):
            names = f"{launch.name} and the launch to compare with" if len(analyses) > 1 else launch.name
            steps = [one.progress(part) for one in analyses for part in needs]
            return _with_head(page, waiting_page(names, steps))
        assert analysis.loaded is not None
        assert page.build is not None
        context = PageContext(state, links, self.store, analysis.loaded, self.perfetto_ui, analysis)
        try:
            return _with_head(page, page.build(context))
        except CaptureError as error:
            return shell.unreadable(launch.name, str(error), links)
        except Exception as error:  # a page that cannot be made must not take the others with it
            traceback.print_exc()
            return shell.failed(page.title, error, links)

    def _request(self, page: Page, launch: Launch, state: ViewState) -> list[Analysis[LoadedLaunch]]:
        """Asks for what a page needs: of its launch, and of the one that it compares with."""
        needs = page.needs(state)
        launches = [launch]
        if page.compares:
            other = other_launch(self.store, launch.name, state)
            launches += [other] if other is not None else []
        if page.background:
            self.store.request(launch, (*needs, *page.background))
        return [self.store.request(one, (*needs, *page.fills), self.patience_seconds) for one in launches]

    def _links(self, state: ViewState) -> Links:
        return Links(self.base_path, state)


def _with_head(page: Page, content: Component) -> Component:
    """Puts a page's question above its content."""
    return html.Div([shell.page_head(page), content])
