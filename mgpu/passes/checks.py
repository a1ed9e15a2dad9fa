"""Static checks of a traced program that need more than one operation's own types: rules of the whole kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mgpu.errors import KernelTypeError
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Step, walk
from mgpu.jax_internals import NDIndexer, TransposeTransform
from mgpu.lang.memory import GMEM, SMEM
from mgpu.lang.primitive import View, unflatten_operands, views_of
from mgpu.lang.transforms import bits_of
from mgpu.params import LoweringSemantics
from mgpu.passes.contiguity import is_contiguous
from mgpu.passes.smem_layout import SmemLayout, layout_of
from mgpu.passes.warp_regions import check_warp_regions

MAX_BOX_SIDE = 256  # CUDA driver API, cuTensorMapEncodeTiled: boxDim[i] <= 256


def check_program(program: KernelProgram) -> None:
    """Checks what the hardware or compiler would reject.

    Raises:
      KernelTypeError: names the user's line, what was got, what is needed.
    """
    check_warp_regions(program)
    for step in walk(program):
        for view in views_of(step.equation):
            _check_in_scope(step, view)
            _check_indices(step, view)
            if view.space is SMEM:
                layout_of(step, view)
        check = _CHECKS.get(step.equation.primitive.name)
        if check is not None:
            check(program, step)


def _check_in_scope(step: Step, view: View) -> None:
    """A ref ends with the function that it was passed to; Python lets a variable outside keep it."""
    if view.ref not in step.refs:
        raise KernelTypeError(
            f"{step.source} {step.equation.primitive.name}: a ref ({view}) is used outside of its function, a "
            "run_scoped or a pipeline step, where its memory is another's. Use it inside, or copy what it holds to a "
            "buffer of a scope around both."
        )


def _check_indices(step: Step, view: View) -> None:
    """JAX takes any number as an index of a ref."""
    for transform in view.transforms:
        for index in transform.indices if isinstance(transform, NDIndexer) else ():
            dtype = getattr(getattr(index, "aval", None), "dtype", None)
            if dtype is not None and dtype.kind not in "iu":
                raise KernelTypeError(
                    f"{step.source} {step.equation.primitive.name}: an index of {step.refs[view.ref].name} is "
                    f"{dtype.name}; indices are integers. Convert it with .astype(jnp.int32)."
                )


def _is_transposed(view: View) -> bool:
    """True if the last dimension of a view is not the one whose elements lie side by side."""
    exchanges = [t for t in view.transforms if isinstance(t, TransposeTransform)]
    return sum(t.permutation[-1] != len(t.permutation) - 1 for t in exchanges) % 2 == 1


def _check_contiguous_k(step: Step, a: Any, b: View) -> None:
    """Only 16-bit operands can be read across their rows (PTX ISA, wgmma: imm-trans-a, imm-trans-b)."""
    if bits_of(b.dtype) == 16:
        return
    for letter, operand, wanted, is_wrong in (
        ("a", a, "(m, k)", isinstance(a, View) and _is_transposed(a)),
        ("b", b, "(n, k)", not _is_transposed(b)),
    ):
        if is_wrong:
            order = "as it is" if letter == "a" else "transposed, as in transpose_ref(b, (1, 0))"
            raise KernelTypeError(
                f"{step.source} wgmma: operand {letter} ({step.refs[operand.ref].name}) is {operand.dtype.name}, whose "
                f"k must be the contiguous dimension. Store it as {wanted} and pass it {order}."
            )


def _check_wgmma(program: KernelProgram, step: Step) -> None:
    _check_contiguous_k(step, *unflatten_operands(step.equation.params["tree"], step.equation.invars)[1:])
    if program.params.lowering_semantics is not LoweringSemantics.Lane:
        return  # Warpgroup semantics infers transforms
    _, a, b = unflatten_operands(step.equation.params["tree"], step.equation.invars)
    for letter, operand in (("a", a), ("b", b)):
        if isinstance(operand, View):
            _check_operand_layout(step, letter, operand)


def _check_operand_layout(step: Step, letter: str, operand: View) -> None:
    layout = layout_of(step, operand)
    tile = layout.tiles[:-3:-1] if _is_transposed(operand) else layout.tiles[-2:]
    if layout.swizzle >= 32 and tile == (8, layout.swizzle * 8 // bits_of(operand.dtype)):
        return
    wanted = 128 * 8 // bits_of(operand.dtype)
    raise KernelTypeError(
        f"{step.source} wgmma: operand {letter} ({step.refs[operand.ref].name}) is laid out as "
        f"{layout}; the tensor core reads tiles of 8 rows by a swizzle span. "
        f"Allocate it with transforms=(TilingTransform((8, {wanted})), SwizzleTransform(128)), "
        "or set lowering_semantics=LoweringSemantics.Warpgroup to have it inferred."
    )


def _check_copy(program: KernelProgram, step: Step) -> None:
    del program
    operands = unflatten_operands(step.equation.params["tree"], step.equation.invars)
    smem, gmem = (next(x for x in operands if isinstance(x, View) and x.space is space) for space in (SMEM, GMEM))
    layout = layout_of(step, smem)
    sides = layout.box
    if max(sides, default=1) <= MAX_BOX_SIDE or _is_bulk_copy(step.equation.params, layout, smem, gmem):
        return
    remedy = "Copy it in parts, or tile the SMEM buffer."
    if step.equation.params.get("oob_mode") == "ZEROS" and is_contiguous(gmem):
        remedy += " If it never leaves its array, oob_mode=OOBFillMode.PROMISE_IN_BOUNDS copies it without a box."
    raise KernelTypeError(
        f"{step.source} {step.equation.primitive.name}: the box {list(smem.shape)} has a side of {max(sides)} "
        f"{'elements' if layout.is_plain else 'tiles'}; a TMA box has at most {MAX_BOX_SIDE} "
        f"along each. {remedy}"
    )


def _is_bulk_copy(params: Mapping[str, Any], layout: SmemLayout, smem: View, gmem: View) -> bool:
    """True for a copy of one piece of memory, whose instruction takes a size in bytes and no box."""
    needs_box = params.get("collective_axes") or params.get("reduction_op") or params.get("oob_mode") == "ZEROS"
    return not needs_box and layout.is_plain and is_contiguous(smem) and is_contiguous(gmem)


def _check_scope(program: KernelProgram, step: Step) -> None:
    launch, axes = program.launch, tuple(step.equation.params["collective_axes"])
    if axes not in ((), (launch.thread_name,)):
        shared = f"collective_axes={launch.thread_name!r}" if launch.thread_name else "no collective_axes"
        raise KernelTypeError(
            f"{step.source} run_scoped: collective_axes is {axes}, but an allocation belongs to one CTA: its "
            f"warpgroups share it, other CTAs do not. Give {shared}."
        )
    (jaxpr,) = (step.equation.params["jaxpr"],)
    for var in getattr(jaxpr, "jaxpr", jaxpr).invars:
        if getattr(var.aval.memory_space, "kind", None) is GMEM:
            where = step.source if len(step.path) > 1 else program.source  # the kernel's own scratch is outermost
            raise KernelTypeError(
                f"{where} scratch of {list(var.aval.shape)} {var.aval.dtype} in GMEM: a kernel cannot allocate GMEM. "
                "Make it one more output (out_type), or pass an array in; for scratch of a CTA use SMEM."
            )
        if launch.num_threads > 1 and not axes and not _is_private(var.aval):
            raise KernelTypeError(
                f"{step.source} run_scoped: {var.aval.memory_space} is shared by the warpgroups of a CTA, and there "
                f"are {launch.num_threads}. Allocate it with collective_axes={launch.thread_name!r}, reached by all."
            )


def _is_private(aval: Any) -> bool:
    kind = getattr(aval.memory_space, "kind", None)
    return kind is not None and kind is not SMEM


_CHECKS: Mapping[str, Callable[[KernelProgram, Step], None]] = {
    "wgmma": _check_wgmma,
    "copy_gmem_to_smem": _check_copy,
    "copy_smem_to_gmem": _check_copy,
    "run_scoped": _check_scope,
}
