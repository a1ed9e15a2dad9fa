"""Static checks of a traced program that need more than one operation's own types: rules of the whole kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mgpu.errors import KernelTypeError
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Step, walk
from mgpu.jax_internals import TransposeTransform
from mgpu.lang.memory import SMEM
from mgpu.lang.primitive import View, unflatten_operands
from mgpu.lang.transforms import SwizzleTransform, TilingTransform, bits_of
from mgpu.params import LoweringSemantics

MAX_BOX_SIDE = 256  # CUDA driver API, cuTensorMapEncodeTiled: boxDim[i] <= 256


def check_program(program: KernelProgram) -> None:
    """Checks what the hardware or compiler would reject.

    Raises:
      KernelTypeError: names the user's line, what was got, what is needed.
    """
    for step in walk(program):
        check = _CHECKS.get(step.equation.primitive.name)
        if check is not None:
            check(program, step)


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
    transforms = operand.aval.memory_space.transforms
    swizzle = next((t.swizzle for t in transforms if isinstance(t, SwizzleTransform)), 0)
    tiling = next((t.tiling for t in transforms if isinstance(t, TilingTransform)), ())
    elements = swizzle * 8 // bits_of(operand.dtype)
    if swizzle >= 32 and tiling[-2:] == (8, elements):
        return
    wanted = 128 * 8 // bits_of(operand.dtype)
    raise KernelTypeError(
        f"{step.source} wgmma: operand {letter} ({step.refs[operand.ref].name}) is laid out as "
        f"{', '.join(map(str, transforms)) or 'plain rows'}; the tensor core reads tiles of 8 rows by a swizzle span. "
        f"Allocate it with transforms=(TilingTransform((8, {wanted})), SwizzleTransform(128)), "
        "or set lowering_semantics=LoweringSemantics.Warpgroup to have it inferred."
    )


def _check_copy(program: KernelProgram, step: Step) -> None:
    del program
    operands = unflatten_operands(step.equation.params["tree"], step.equation.invars)
    smem = next(x for x in operands if isinstance(x, View) and x.space is SMEM)
    sides = list(smem.shape)
    for transform in smem.aval.memory_space.transforms:
        if isinstance(transform, TilingTransform):
            for offset, tile in enumerate(reversed(transform.tiling), start=1):
                sides[-offset] //= tile
    if max(sides, default=1) > MAX_BOX_SIDE:
        raise KernelTypeError(
            f"{step.source} {step.equation.primitive.name}: the box {list(smem.shape)} has a side of {max(sides)} "
            f"{'tiles' if smem.aval.memory_space.transforms else 'elements'}; a TMA box has at most {MAX_BOX_SIDE} "
            "along each. Copy it in parts, or tile the SMEM buffer."
        )


def _check_scope(program: KernelProgram, step: Step) -> None:
    launch = program.launch
    if launch.num_threads == 1 or step.equation.params["collective_axes"]:
        return
    (jaxpr,) = (step.equation.params["jaxpr"],)
    for var in getattr(jaxpr, "jaxpr", jaxpr).invars:
        if not _is_private(var.aval):
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
