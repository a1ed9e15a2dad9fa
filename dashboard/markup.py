"""Pages as plain markup: what needs no Dash component in the browser is sent as a tree that `assets/light.js` builds.

Dash spends milliseconds on every component, more the more there are; a table of a thousand cells took seconds. A
subtree of plain HTML therefore becomes one component. The same trees make the static report's HTML.
"""

from __future__ import annotations

import html as escaping
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

_NAMESPACE = "dash_html_components"
Part = Component | str | float
_VOID = {"br", "hr", "img", "input"}
_RENAMED = {"className": "class", "tabIndex": "tabindex", "colSpan": "colspan"}
_SKIPPED = {"children", "key", "n_clicks", "debounce"}


def lighten(component: Component) -> Component:
    """Returns the page with every largest subtree of plain HTML as one component."""
    if is_plain(component):
        return html.Div(className="light", **extra({"data-light": json.dumps(to_tree(component))}))
    children = getattr(component, "children", None)
    if isinstance(children, Component):
        component.children = lighten(children)
    elif isinstance(children, list | tuple):
        component.children = [lighten(child) if isinstance(child, Component) else child for child in children]
    return component


def extra(attributes: Mapping[str, Any]) -> Any:
    """Returns attributes whose names are no Python names (`data-launch`, `aria-label`), for `**extra(...)`."""
    return dict(attributes)


def is_plain(component: Component) -> bool:
    """Returns True if a component and all below it are HTML or text fields, without an id of Dash's own kind."""
    if isinstance(component, dcc.Input):
        return True
    if component._namespace != _NAMESPACE or isinstance(getattr(component, "id", None), dict):  # pyright: ignore[reportAttributeAccessIssue]
        return False
    return all(is_plain(child) for child in _children(component) if isinstance(child, Component))


def to_tree(component: Part) -> Any:
    """Returns a plain component as JSON: text, or [tag, {attribute: value}, child, ...]."""
    if not isinstance(component, Component):
        return str(component)
    return [_tag(component), _attributes(component), *(to_tree(child) for child in _children(component))]


def to_html(component: Part, render: Callable[[Part], str] | None = None) -> str:
    """Returns a plain component as HTML text.

    Args:
      component: what to render.
      render: renders the children; by default this function itself.
    """
    if not isinstance(component, Component):
        return escaping.escape(str(component))
    tag = _tag(component)
    attributes = "".join(f' {name}="{escaping.escape(str(value))}"' for name, value in _attributes(component).items())
    if tag in _VOID:
        return f"<{tag}{attributes}>"
    return f"<{tag}{attributes}>{''.join(map(render or to_html, _children(component)))}</{tag}>"


def _tag(component: Component) -> str:
    return component._type.lower()  # pyright: ignore[reportAttributeAccessIssue]


def _children(component: Component) -> Iterator[Part]:
    children = getattr(component, "children", None)
    if isinstance(children, list | tuple):
        for child in children:
            yield from _flat(child)
    elif children is not None:
        yield from _flat(children)


def _flat(child: Any) -> Iterator[Part]:
    if isinstance(child, list | tuple):
        for one in child:
            yield from _flat(one)
    elif child is not None:
        yield child


def _attributes(component: Component) -> dict[str, Any]:
    given = component.to_plotly_json()["props"]
    attributes: dict[str, Any] = {}
    for name, value in given.items():
        if name in _SKIPPED or value is None or value is False or (name == "href" and not value):
            continue
        if name == "style":
            value = "; ".join(f"{_css_name(key)}: {setting}" for key, setting in value.items())
        attributes[_RENAMED.get(name, name)] = "" if value is True else value
    return attributes


def _css_name(name: str) -> str:
    """Writes `backgroundColor` as `background-color`."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)
