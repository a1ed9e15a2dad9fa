"""Register layouts of JAX's Mosaic GPU module for those of the language: by name, with the same parameters."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax.experimental.pallas import mosaic_gpu

from mgpu.lang.layouts import Layout, ParameterizedLayout, ReducedLayout


def register_layout(layout: Any) -> Any:
    """Returns JAX's register layout for one of ours; None stays None."""
    if isinstance(layout, Layout):
        return mosaic_gpu.Layout[layout.name]
    if isinstance(layout, ReducedLayout):
        return register_layout(layout.layout).reduce(layout.axes)
    if isinstance(layout, ParameterizedLayout):
        keywords = {name: _parameter(value) for name, value in layout.kwargs}
        return mosaic_gpu.Layout[layout.layout_cls.name](*map(_parameter, layout.args), **keywords)
    return layout


def _parameter(value: Any) -> Any:
    """Returns a layout's parameter with our types replaced by JAX's of the same name and fields."""
    if isinstance(value, tuple):
        return tuple(map(_parameter, value))
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("mgpu."):
        fields = {field.name: _parameter(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return getattr(mosaic_gpu, type(value).__name__)(**fields)
    return value
