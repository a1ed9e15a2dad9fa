"""Finds register arrays of different layouts that meet in one operation, which Mosaic GPU does not convert by itself.

Layouts are followed from where they are certain (an accumulator, a load or a cast that names one) through element-wise
operations, reductions and the broadcasts that undo them, into and out of calls, branches and loops. Everything else is
of unknown layout and meets anything. Under
Warpgroup semantics the compiler chooses layouts and converts, so nothing is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgpu.errors import KernelTypeError
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Step, regions_of, walk
from mgpu.lang.layouts import Layout, ReducedLayout
from mgpu.lang.primitive import View, unflatten_operands
from mgpu.lang.transforms import bits_of
from mgpu.params import LoweringSemantics

# Operations that look element-wise by their shapes but move elements.
_MOVES = ("transpose", "rev", "reshape", "sort", "cumsum", "cummax", "cummin", "cumprod", "dynamic_update_slice", "pad")


def check_layouts(program: KernelProgram) -> None:
    """Checks that arrays which meet have one layout.

    Raises:
      KernelTypeError: names the user's line, both layouts, and the cast that is missing.
    """
    if program.params.lowering_semantics is not LoweringSemantics.Lane:
        return
    layouts: dict[Any, Any] = {}
    entered: list[Step] = []  # equations whose regions the walk is in
    for step in walk(program):
        while entered and step.path[: len(entered[-1].path)] != entered[-1].path:
            _take_results(entered.pop().equation, layouts)
        equation = step.equation
        if regions_of(equation):
            entered.append(step)
        for region in regions_of(equation):
            for inner, outer in region.inputs:
                found = _known(layouts, outer)
                if found is None:
                    layouts.pop(inner, None)
                else:
                    layouts[inner] = found
        layout = _layout_of_result(step, layouts)
        for out in equation.outvars:
            layouts.pop(out, None)
        if layout is not None and layout is not Layout.WG_SPLAT:
            layouts[equation.outvars[0]] = layout


def _take_results(equation: Any, layouts: dict[Any, Any]) -> None:
    """Gives the results of a call, a branch or a loop the layouts that they have at the end of its regions."""
    regions = regions_of(equation)
    if equation.primitive.name == "while":
        regions = regions[1:]  # the first is its condition
    for index, out in enumerate(equation.outvars):
        ends = [region.jaxpr.outvars[index] for region in regions if index < len(region.jaxpr.outvars)]
        found = {_known(layouts, end) for end in ends}
        # What a loop stacks has one axis more than what its body gives.
        same_shape = all(getattr(end.aval, "shape", None) == getattr(out.aval, "shape", None) for end in ends)
        if len(found) == 1 and same_shape:
            layouts[out] = found.pop()


def _known(layouts: Mapping[Any, Any], atom: Any) -> Any:
    try:
        return layouts.get(atom)
    except TypeError:  # a literal
        return None


def _layout_of_result(step: Step, layouts: Mapping[Any, Any]) -> Any:
    equation = step.equation
    name, params = equation.primitive.name, equation.params
    if name == "wgmma_accumulator_load":
        return Layout.WGMMA
    if name in ("load", "layout_cast"):
        return params["layout"]
    if name == "wgmma":
        _check_operand(step, layouts)
        return None
    if len(equation.outvars) != 1 or regions_of(equation):
        return None
    if name.startswith("reduce_") and "axes" in params:
        return _reduced(_known(layouts, equation.invars[0]), params["axes"], equation.invars[0].aval.ndim)
    if name == "broadcast_in_dim":
        return _expanded(_known(layouts, equation.invars[0]), equation)
    return None if name in _MOVES else _common(step, layouts)


def _reduced(layout: Any, axes: Any, ndim: int) -> Any:
    if layout is None or not axes:
        return layout
    return ReducedLayout(layout, tuple(sorted(int(axis) % ndim for axis in axes)))


def _expanded(layout: Any, equation: Any) -> Any:
    """A reduced array, broadcast back along the reduced axes, has the layout that it came from."""
    ndim = len(equation.params["shape"])
    kept = tuple(equation.params["broadcast_dimensions"])
    if kept == tuple(range(ndim)) and equation.invars[0].aval.shape == tuple(equation.params["shape"]):
        return layout
    if isinstance(layout, ReducedLayout):
        gone = {axis % ndim for axis in layout.axes}
        if kept == tuple(axis for axis in range(ndim) if axis not in gone):
            return layout.layout
    return None


def _common(step: Step, layouts: Mapping[Any, Any]) -> Any:
    """Returns the layout that the operands of an element-wise operation share; None if it is no such, or unknown."""
    (out,) = step.equation.outvars
    shape = getattr(out.aval, "shape", ())
    arrays = [atom for atom in step.equation.invars if getattr(atom.aval, "shape", ())]
    if not shape or any(atom.aval.shape != shape for atom in arrays):
        return None
    found = [layout for layout in (_known(layouts, atom) for atom in arrays) if layout is not None]
    different = next((layout for layout in found if layout != found[0]), None)
    if different is not None:
        raise KernelTypeError(
            f"{step.source} {step.equation.primitive.name}: its operands lie in the register layouts {found[0]} and "
            f"{different}. Cast one of them: layout_cast(x, {found[0]})."
        )
    return found[0] if found else None


def _check_operand(step: Step, layouts: Mapping[Any, Any]) -> None:
    """Operand a of a wgmma comes from registers in the layout of its fragments."""
    _, a, _ = unflatten_operands(step.equation.params["tree"], step.equation.invars)
    layout = None if isinstance(a, View) else _known(layouts, a)
    if layout is None or bits_of(a.aval.dtype) != 16 or layout is Layout.WGMMA:
        return
    raise KernelTypeError(
        f"{step.source} wgmma: operand a lies in the register layout {layout}; the tensor core reads Layout.WGMMA. "
        "Cast it: layout_cast(a, Layout.WGMMA)."
    )
