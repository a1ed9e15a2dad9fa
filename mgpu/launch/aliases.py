"""Outputs that begin as the contents of inputs: checks of `input_output_aliases`."""

from __future__ import annotations

from collections.abc import Sequence

from jax.core import ShapedArray

from mgpu.errors import KernelTypeError


def check_aliases(
    name: str,
    aliases: Sequence[tuple[int, int]],
    in_avals: Sequence[ShapedArray],
    out_avals: Sequence[ShapedArray],
) -> None:
    """Checks that aliased inputs and outputs exist, once each, and are alike.

    Args:
      name: of the kernel.
      aliases: pairs of an input's number and an output's, both flat.
      in_avals, out_avals: flat inputs and outputs.

    Raises:
      KernelTypeError: no such operand, an operand in two pairs, or another shape or dtype.
    """
    for position, ends in enumerate(zip(*aliases, strict=True)):
        repeated = [number for number in ends if ends.count(number) > 1]
        if repeated:
            what = ("input", "output")[position]
            raise KernelTypeError(
                f"kernel {name}: input_output_aliases={dict(aliases)} uses {what} {repeated[0]} twice. Alias it once."
            )
    for number, output in aliases:
        where = f"kernel {name}: input_output_aliases={{{number}: {output}}}:"
        if not 0 <= number < len(in_avals) or not 0 <= output < len(out_avals):
            raise KernelTypeError(
                f"{where} there are {len(in_avals)} flat inputs and {len(out_avals)} flat outputs, numbered from 0."
            )
        source, target = in_avals[number], out_avals[output]
        if source.shape != target.shape or source.dtype != target.dtype:
            raise KernelTypeError(
                f"{where} the input is {source.str_short()}, the output {target.str_short()}. Aliased arrays have one "
                "shape and dtype."
            )
