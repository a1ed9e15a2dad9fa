"""An inlined function, ready to run: what generated code calls, and what it takes between meetings with other warps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mgpu.devices import Device
from mgpu.frontend.inline_barriers import NamedBarrierStep, as_barrier, is_fence
from mgpu.frontend.inline_code import Fragment, InlineCode, Operand, Step
from mgpu.sim.inline.cost import Cost
from mgpu.sim.inline.fragments import FragmentPlaces
from mgpu.sim.inline.lanes import EVERYWHERE, Lanes, Position
from mgpu.sim.inline.memory import Access, Bounds, Memory
from mgpu.sim.values import carrier_dtype

_QUIET = ("arith.constant", "llvm.mlir.constant", "func.return")


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Steps that only the warpgroup itself takes part in.

    Attributes:
      steps: what it executes.
      cost: what they take.
    """

    steps: tuple[Step, ...]
    cost: Cost


@dataclasses.dataclass(frozen=True)
class Fence:
    """Makes the warpgroup's writes of SMEM visible to asynchronous units."""


class InlineProgram:
    """What an inlined function does, for one call in a kernel.

    Args:
      code: its steps.
      operands: types of its arguments, flat.
      device: what the steps take.
      source: the author's line.

    Attributes:
      parts: its stretches, and between them the barriers and fences.
      accesses: for each argument, what is done with its memory: "", "read", "write" or "update" for both.

    Raises:
      Unsupported: an array's layout, or a loop whose length is not a constant.
    """

    def __init__(self, code: InlineCode, operands: Sequence[Operand], device: Device, source: object) -> None:
        self._code = code
        self._operands = tuple(operands)
        self._source = source
        self._places = [FragmentPlaces(each, source) if isinstance(each, Fragment) else None for each in code.arguments]
        self._refs = [number for number, each in enumerate(self._places) if each is None]
        self._results = [FragmentPlaces(each, source) for each in code.results]
        self.accesses = _find_accesses(code)
        self.parts: list[Stretch | Fence | NamedBarrierStep] = []
        self._quiet: tuple[Step, ...] = ()  # constants, which a barrier's number may be
        stretch: list[Step] = []
        for step in code.steps:
            meeting = Fence() if is_fence(step) else as_barrier(step)
            if meeting is None:
                stretch.append(step)
                continue
            self._close(stretch, device)
            self.parts.append(meeting)
            stretch = []
        self._close(stretch, device)

    @property
    def only_meets(self) -> bool:
        """True if it computes nothing: all it does is to meet others."""
        return not any(isinstance(part, Stretch) for part in self.parts)

    def _close(self, steps: list[Step], device: Device) -> None:
        if any(step.name not in _QUIET for step in steps):
            self.parts.append(Stretch(tuple(steps), Cost(tuple(steps), self._code.types, device)))
        elif steps:
            self._quiet += tuple(steps)

    def begin(self, arguments: Sequence[Any], position: Position) -> Lanes:
        """Returns lanes that hold the arguments: values of arrays in their carriers, views of refs."""
        refs = self._refs
        memory = Memory([arguments[number] for number in refs], [self._operands[number].dtype for number in refs])
        lanes = Lanes(memory, position, self._source)
        for number, (taken, place) in enumerate(zip(self._code.arguments, self._places, strict=True)):
            if isinstance(taken, Fragment):
                registers = place.spread(arguments[number])  # pyright: ignore[reportOptionalMemberAccess]
                lanes.values.update(zip(taken.registers, registers, strict=True))
            else:
                lanes.values[taken] = memory.ref(refs.index(number))
        lanes.run(self._quiet, EVERYWHERE)
        return lanes

    def run(self, lanes: Lanes, part: int) -> None:
        """Executes the stretch that is part number `part`."""
        stretch = self.parts[part]
        assert isinstance(stretch, Stretch)
        lanes.run(stretch.steps, EVERYWHERE)

    def touched(self, lanes: Lanes, argument: int, access: Access) -> Iterator[Bounds]:
        """Yields boxes of what the last stretch has read, or written, of an argument that is a ref."""
        return lanes.memory.take_touched(self._refs.index(argument), access)

    def end(self, lanes: Lanes) -> list[np.ndarray]:
        """Returns the arrays that the function returns, in their carriers."""
        return [
            place.gather([lanes.values[number] for number in fragment.registers])
            for place, fragment in zip(self._results, self._code.results, strict=True)
        ]

    def nothing(self) -> list[np.ndarray]:
        """Returns arrays of zeros in place of the results, for runs without values."""
        return [np.zeros(each.shape, carrier_dtype(each.dtype)) for each in self._code.results]


def _find_accesses(code: InlineCode) -> list[str]:
    """Returns what is done to the memory of each argument: every ref or pointer made from it counts as it."""
    owners: dict[int, int] = {
        each: number for number, each in enumerate(code.arguments) if not isinstance(each, Fragment)
    }
    reads, writes = [False] * len(code.arguments), [False] * len(code.arguments)

    def visit(steps: tuple[Step, ...]) -> None:
        for step in steps:
            taken = [owners[number] for number in step.operands if number in owners]
            verb = step.name.partition(".")[2]
            for owner in taken:
                reads[owner] |= verb == "load"
                writes[owner] |= verb == "store"
            if taken and verb not in ("load", "store"):
                owners.update(dict.fromkeys(step.results, taken[0]))
            for region in step.regions:
                visit(region.steps)

    visit(code.steps)
    kinds = {(False, False): "", (True, False): "read", (False, True): "write", (True, True): "update"}
    return [kinds[pair] for pair in zip(reads, writes, strict=True)]
