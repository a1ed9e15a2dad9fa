"""Finds register arrays of different layouts that meet in one operation, which Mosaic GPU does not convert by itself.

Layouts are followed from where they are certain (an accumulator, a load or a cast that names one) through element-wise
operations, reductions and the broadcasts that undo them, into and out of calls, branches and loops. Everything else is
of unknown layout and meets anything. Under Warpgroup semantics the compiler chooses layouts and converts, so nothing
is refused for its layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgpu.errors import KernelTypeError
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Step, regions_of, walk
from mgpu.jax_internals import scan_split
from mgpu.lang.hopper import AccumulatorSpace
from mgpu.lang.layouts import Layout, ReducedLayout, short_name
from mgpu.lang.primitive import View, unflatten_operands
from mgpu.lang.transforms import bits_of
from mgpu.params import LoweringSemantics
from mgpu.units import LANES_PER_WARP, WARPS_PER_WARPGROUP

_ELEMENTS_PER_REGISTER = 2  # neighbours in a row that one lane holds (PTX ISA, wgmma accumulator fragment layout)
# Operations that look element-wise by their shapes but move elements.
_MOVES = ("transpose", "rev", "reshape", "sort", "cumsum", "cummax", "cummin", "cumprod", "dynamic_update_slice", "pad")


def check_layouts(program: KernelProgram) -> None:
    """Checks that arrays which meet have one layout, and prints the layouts that `print_layout` asks for.

    Raises:
      KernelTypeError: names the user's line, both layouts, and the cast that is missing.
    """
    if program.params.lowering_semantics is not LoweringSemantics.Lane:
        _check_what_is_said(program)
        return
    layouts: dict[Any, Any] = {}
    entered: list[Step] = []  # equations whose regions the walk is in
    for step in walk(program):
        while entered and step.path[: len(entered[-1].path)] != entered[-1].path:
            _take_results(entered.pop(), layouts)
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
        _print(step, layouts)
        _check_scratch(step, layouts, program.params.reduction_scratch_bytes)
        layout = _layout_of_result(step, layouts)
        for out in equation.outvars:
            layouts.pop(out, None)
        if layout is not None and layout is not Layout.WG_SPLAT:
            layouts[equation.outvars[0]] = layout
    for step in reversed(entered):
        _take_results(step, layouts)


def _check_what_is_said(program: KernelProgram) -> None:
    """Where the compiler chooses layouts, only those that a load or a cast names are certain."""
    said: dict[Any, Any] = {}
    for step in walk(program):
        _print(step, said)
        _check_scratch(step, said, program.params.reduction_scratch_bytes)
        if step.equation.primitive.name in ("load", "layout_cast"):
            said[step.equation.outvars[0]] = step.equation.params["layout"]


def _print(step: Step, layouts: Mapping[Any, Any]) -> None:
    if step.equation.primitive.name != "print_layout":
        return
    (atom,) = step.equation.invars
    layout = _known(layouts, atom)
    text = f"{atom.aval.dtype.name}{list(atom.aval.shape)} in a layout that the compiler chooses"
    print(step.equation.params["fmt"].format(text if layout is None else short_name(layout)))


def _take_results(step: Step, layouts: dict[Any, Any]) -> None:
    """Gives the results of a call, a branch or a loop the layouts that they have at the end of its regions."""
    equation = step.equation
    regions = regions_of(equation)
    if equation.primitive.name == "while":
        regions = regions[1:]  # the first is its condition
    _check_carry(step, regions[0].jaxpr, layouts)
    for index, out in enumerate(equation.outvars):
        ends = [region.jaxpr.outvars[index] for region in regions if index < len(region.jaxpr.outvars)]
        found = {_known(layouts, end) for end in ends}
        _check_branches(step, index, sorted(map(str, found - {None})))
        # What a loop stacks has one axis more than what its body gives.
        same_shape = all(getattr(end.aval, "shape", None) == getattr(out.aval, "shape", None) for end in ends)
        if len(found) == 1 and same_shape:
            layouts[out] = found.pop()


def _check_carry(step: Step, body: Any, layouts: Mapping[Any, Any]) -> None:
    """What a loop carries begins every iteration in the registers in which it began the first one."""
    name, params = step.equation.primitive.name, step.equation.params
    if name == "while":
        carry = body.invars[params["body_nconsts"] :]
    elif name == "scan":
        _, carry, _ = scan_split(params, body.invars)
    else:
        return
    for index, (first, last) in enumerate(zip(carry, body.outvars, strict=False)):
        before, after = _known(layouts, first), _known(layouts, last)
        if before is not None and after is not None and before != after:
            raise KernelTypeError(
                f"{step.source} {name}: carry {index} (flat) of the loop has the register layout {before} when it "
                f"starts, and {after} after its body. Cast one of them: layout_cast(x, {before})."
            )


def _check_branches(step: Step, index: int, found: list[str]) -> None:
    if step.equation.primitive.name == "cond" and len(found) > 1:
        raise KernelTypeError(
            f"{step.source} cond: result {index} (flat) has the register layout {found[0]} in one branch and "
            f"{found[1]} in another. Cast one of them: layout_cast(x, {found[0]})."
        )


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
    if name == "swap":
        _check_stored(step, layouts)
        return None
    if len(equation.outvars) != 1 or regions_of(equation):
        return None
    if name.startswith("reduce_") and "axes" in params:
        return _reduced(_known(layouts, equation.invars[0]), params["axes"], equation.invars[0].aval.ndim)
    if name == "broadcast_in_dim":
        return _expanded(_known(layouts, equation.invars[0]), equation)
    return None if name in _MOVES else _common(step, layouts)


def _check_scratch(step: Step, layouts: Mapping[Any, Any], available_bytes: int) -> None:
    """A reduction over rows, which the four warps share out, goes through SMEM: a register of each lane at a time."""
    equation = step.equation
    if not equation.primitive.name.startswith("reduce_") or 0 not in equation.params.get("axes", ()):
        return
    operand = equation.invars[0]
    if _known(layouts, operand) not in (Layout.WGMMA, Layout.TCGEN05):
        return
    is_complete = len(equation.params["axes"]) == operand.aval.ndim  # then a lane holds one element, the same in all
    elements = 1 if is_complete else LANES_PER_WARP * _ELEMENTS_PER_REGISTER
    required_bytes = WARPS_PER_WARPGROUP * elements * bits_of(operand.aval.dtype) // 8
    if required_bytes > available_bytes:
        raise KernelTypeError(
            f"{step.source} {equation.primitive.name}: combining the rows of the four warps takes {required_bytes} "
            f"bytes of scratch, and CompilerParams(reduction_scratch_bytes={available_bytes}) leaves less. Give at "
            f"least {required_bytes}."
        )


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


def _check_stored(step: Step, layouts: Mapping[Any, Any]) -> None:
    """An accumulator is assigned what already lies in its registers."""
    ref, value = step.equation.invars[:2]
    layout = _known(layouts, value)
    if isinstance(ref.aval.memory_space, AccumulatorSpace) and layout not in (None, Layout.WGMMA):
        raise KernelTypeError(
            f"{step.source} ACC: the value assigned lies in the register layout {layout}; an accumulator lies in "
            "Layout.WGMMA. Cast it: layout_cast(x, Layout.WGMMA)."
        )


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
