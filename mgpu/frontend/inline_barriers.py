"""Which steps of inlined code meet other warps: the named barriers of a CTA, and the fence between proxies.

PTX has sixteen barriers for each CTA that kernels use by number. `bar.sync` waits until a given number of threads has
come, `bar.arrive` comes and goes on (PTX ISA, "bar, barrier"). Kernels that take turns on the tensor core use them.
"""

from __future__ import annotations

import dataclasses
import re

from mgpu.errors import Unsupported
from mgpu.frontend.inline_code import Operand, Step
from mgpu.lang.inline_mgpu import InlinedFunction
from mgpu.units import LANES_PER_WARPGROUP

_BARRIER = re.compile(
    r"(?:bar|barrier)(?:\.cta)?\.(?P<action>sync|arrive)(?:\.aligned)?\s+(?P<number>[\w$]+)\s*,\s*(?P<threads>[\w$]+)\s*;?\s*"
)
_FENCE = re.compile(r"fence\.proxy\.async(?:\.shared::cta)?\s*;?\s*")


@dataclasses.dataclass(frozen=True)
class NamedBarrierStep:
    """Coming to a named barrier.

    Attributes:
      waits: whether it waits for the others (`bar.sync`) or goes on (`bar.arrive`).
      number: of the barrier, if it is a constant.
      value: else the number of the value that tells.
      num_threads: threads that the barrier waits for.
    """

    waits: bool
    number: int | None
    value: int
    num_threads: int

    @property
    def is_own(self) -> bool:
        """True if a warpgroup meets nobody but its own warps."""
        return self.num_threads == LANES_PER_WARPGROUP


def as_barrier(step: Step) -> NamedBarrierStep | None:
    """Returns the named barrier that a step comes to; None if it is another operation."""
    if step.name != "llvm.inline_asm":
        return None
    found = _BARRIER.fullmatch(step.attributes["asm_string"].strip())
    if found is None or not found["threads"].isdecimal():
        return None
    number = found["number"]
    if number.isdecimal():
        return NamedBarrierStep(found["action"] == "sync", int(number), -1, int(found["threads"]))
    return NamedBarrierStep(found["action"] == "sync", None, step.operands[int(number[1:])], int(found["threads"]))


def is_fence(step: Step) -> bool:
    """True if a step makes writes of SMEM visible to asynchronous units."""
    if step.name == "llvm.inline_asm":
        return _FENCE.fullmatch(step.attributes["asm_string"].strip()) is not None
    return step.name == "nvvm.fence.proxy"


def awaited_barrier(inlined: InlinedFunction, operands: list[Operand]) -> NamedBarrierStep | None:
    """Returns the first named barrier at which an inlined function waits for other warpgroups; None if there is none.

    Args:
      inlined: the function.
      operands: types of its arguments, flat.
    """
    from mgpu.frontend.inline_reader import read_inline_code  # loads the Mosaic GPU compiler's API

    try:
        code = read_inline_code(inlined, operands, "")
    except Unsupported:
        return None  # what runs the kernel says so
    found = (as_barrier(step) for step in code.steps)
    return next((each for each in found if each is not None and each.waits and not each.is_own), None)
