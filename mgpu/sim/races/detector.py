"""The comparison: is an access ordered after what has been done to the same bytes before?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from mgpu.sim.engine import Engine
from mgpu.sim.races.clocks import Agents, Clock
from mgpu.sim.races.report import (
    EXIT,
    Access,
    Missing,
    Place,
    Race,
    RaceLog,
    UnwrittenRead,
    missing_commit,
    missing_farewell,
    missing_order,
)
from mgpu.sim.races.shadow import Boxes, Index, Shadow, owner_of, region_text
from mgpu.sim.races.signals import Signals

Shadows = dict[int, Shadow]
"""Shadow memories by the identity of the arrays that show the memory, which they keep alive."""


class LaunchRaces:
    """What all CTAs of one launch share: GMEM, semaphores, the agents' numbers, and what has been found.

    Args:
      kernel: name of the kernel.
      engine: tells the cycle.
      boxes: which boxes the kernel's places access, as far as earlier launches have found out; is added to.
      fresh: arrays in GMEM that nobody has written before the launch.

    Attributes:
      agents: hands out numbers.
      gmem: shadows of GMEM arrays.
    """

    def __init__(self, kernel: str, engine: Engine, boxes: Boxes, fresh: Sequence[np.ndarray]) -> None:
        self.agents = Agents()
        self.gmem: Shadows = {}
        self._signals: dict[object, Signals] = {}
        self._boxes = boxes
        self._fresh = frozenset(id(owner_of(array)) for array in fresh)  # asked, never iterated
        self._log = RaceLog(kernel)
        self._engine = engine
        self._exits: dict[tuple[str, str, int], Place] = {}

    def signals_of(self, semaphore: object) -> Signals:
        """Returns what the signals of a semaphore tell."""
        signals = self._signals.get(semaphore)
        if signals is None:
            signals = self._signals[semaphore] = Signals()
        return signals

    def races(self) -> tuple[Race, ...]:
        """Returns what has been found, in the order in which it was."""
        return self._log.races()

    def unwritten(self) -> tuple[UnwrittenRead, ...]:
        """Returns the reads of what nobody has written, in the order in which they were found."""
        return self._log.unwritten()

    def written(self, array: np.ndarray) -> np.ndarray:
        """Returns the elements of an array in GMEM that the kernel has written."""
        shadow = self.gmem.get(id(owner_of(array)))
        return np.empty(0, array.dtype) if shadow is None else shadow.written()

    def exit_place(self, line: str, buffer: str, warpgroup: int) -> Place:
        """Returns what stands for the end of a CTA, the same for all of them, so that their races count as one."""
        return self._exits.setdefault((line, buffer, warpgroup), Place(EXIT, line, buffer, warpgroup))

    def read(self, shadows: Shadows, array: np.ndarray, index: Index, clock: Clock, access: Access) -> None:
        """Notes a read by somebody who knows `clock`, and compares it with earlier writes."""
        shadow = shadows.get(id(array)) or self.shadow(shadows, array)
        for state in shadow.own(access.place, array, index):
            earlier = state.write
            if earlier is not None:
                self._compare_write(earlier, array, index, clock, access)
            elif not state.atomics:
                self._note_unwritten(shadows, array, index, access)
            if state.atomics:
                self._compare(state.atomics.values(), array, index, clock, access)
            if state.reads:
                state.reads[access.agent] = access
            else:
                state.reads = {access.agent: access}

    def write(self, shadows: Shadows, array: np.ndarray, index: Index, clock: Clock, access: Access) -> None:
        """Notes a write by somebody who knows `clock`, and compares it with all earlier accesses."""
        shadow = shadows.get(id(array)) or self.shadow(shadows, array)
        for state in shadow.replace(access.place, array, index, access):
            if state.write is not None:
                self._compare_write(state.write, array, index, clock, access)
            if state.reads:
                self._compare(state.reads.values(), array, index, clock, access)
            if state.atomics:
                self._compare(state.atomics.values(), array, index, clock, access)

    def update(self, shadows: Shadows, array: np.ndarray, index: Index, clock: Clock, access: Access) -> None:
        """Notes atomics by somebody who knows `clock`, and compares them with earlier reads and writes."""
        for state in self.shadow(shadows, array).own(access.place, array, index):
            if state.write is not None:
                self._compare_write(state.write, array, index, clock, access)
            self._compare(state.reads.values(), array, index, clock, access)
            if state.atomics:
                state.atomics[access.agent] = access
            else:
                state.atomics = {access.agent: access}

    def free(self, shadows: Shadows, array: np.ndarray, known: Clock, access: Access) -> None:
        """Notes that memory ends, at an access that nobody knows of, and compares that with what other CTAs did to it.

        Args:
          shadows: of its memory space.
          array: the memory.
          known: what the CTA knows that owns it.
          access: the end.
        """
        for state in self.shadow(shadows, array).all_states():
            writes = [] if state.write is None else [state.write]
            for other in (*writes, *state.reads.values(), *state.atomics.values()):
                if other.cta != access.cta and known.get(other.agent, 0) < other.time:
                    self.report(other, access, lambda: np.asarray(array), missing_farewell)
            state.write, state.reads, state.atomics = access, {}, {}

    def report(self, first: Access, second: Access, view: Callable[[], np.ndarray], missing: Missing) -> None:
        """Notes a race about what a view shows."""
        name = first.place.buffer if second.place.what == EXIT else second.place.buffer
        self.report_region(first, second, lambda: region_text(view(), name), missing)

    def report_region(self, first: Access, second: Access, region: Callable[[], str], missing: Missing) -> None:
        """Notes a race about a region in words."""
        self._log.add(first, second, region, missing, self._engine.now)

    def _note_unwritten(self, shadows: Shadows, array: np.ndarray, index: Index, access: Access) -> None:
        """Notes a read of memory without a write, unless it had values before the launch."""
        if shadows is not self.gmem or id(owner_of(array)) in self._fresh:
            place = access.place
            self._log.add_unwritten(
                access, lambda: region_text(place.view(array, *index), place.buffer), self._engine.now
            )

    def _compare_write(self, earlier: Access, array: np.ndarray, index: Index, clock: Clock, access: Access) -> None:
        agent, time, place, _, _ = earlier
        if clock.get(agent, 0) < time or place.what == EXIT:
            missing = missing_farewell if place.what == EXIT else missing_order
        elif access.place.is_asynchronous and not place.is_asynchronous:
            if clock.get(-agent, 0) >= time and place.space == "SMEM":
                return
            missing = missing_commit
        else:
            return
        self.report(earlier, access, lambda: access.place.view(array, *index), missing)

    def _compare(
        self, earlier: Iterable[Access], array: np.ndarray, index: Index, clock: Clock, access: Access
    ) -> None:
        for other in earlier:
            if clock.get(other.agent, 0) < other.time:
                self.report(other, access, lambda: access.place.view(array, *index), missing_order)

    def shadow(self, shadows: Shadows, array: np.ndarray) -> Shadow:
        """Returns the shadow of the memory that an array shows."""
        shadow = shadows.get(id(array))
        if shadow is None:
            owner = owner_of(array)
            shadow = shadows.get(id(owner))
            if shadow is None:
                shadow = shadows[id(owner)] = Shadow(owner, self._boxes)
            shadow.keep(array)
            shadows[id(array)] = shadow
        return shadow
