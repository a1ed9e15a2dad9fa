"""The comparison: is an access ordered after what has been done to the same bytes before?"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mgpu.sim.engine import Engine
from mgpu.sim.races.clocks import Agents, Clock
from mgpu.sim.races.report import EXIT, Access, Race, RaceLog, missing_commit, missing_farewell, missing_order
from mgpu.sim.races.shadow import Boxes, Index, Shadow, owner_of, region_text

Shadows = dict[int, Shadow]
"""Shadow memories by the identity of the arrays that show the memory, which they keep alive."""


class LaunchRaces:
    """What all CTAs of one launch share: GMEM, semaphores, the agents' numbers, and what has been found.

    Args:
      kernel: name of the kernel.
      engine: tells the cycle.

    Attributes:
      agents: hands out numbers.
      gmem: shadows of GMEM arrays.
      semaphores: what each semaphore's signals know.
    """

    def __init__(self, kernel: str, engine: Engine) -> None:
        self.agents = Agents()
        self.gmem: Shadows = {}
        self.semaphores: dict[object, Clock] = {}
        self._boxes: Boxes = {}
        self._log = RaceLog(kernel)
        self._engine = engine

    def races(self) -> tuple[Race, ...]:
        """Returns what has been found, in the order in which it was."""
        return self._log.races()

    def read(self, shadows: Shadows, array: np.ndarray, index: Index, clock: Clock, access: Access) -> None:
        """Notes a read by somebody who knows `clock`, and compares it with earlier writes."""
        for state in self.shadow(shadows, array).own(access.place, array, index):
            earlier = state.write
            if earlier is not None:
                self._compare_write(earlier, array, index, clock, access)
            if state.atomics:
                self._compare(state.atomics.values(), array, index, clock, access)
            state.reads[access.agent] = access

    def write(self, shadows: Shadows, array: np.ndarray, index: Index, clock: Clock, access: Access) -> None:
        """Notes a write by somebody who knows `clock`, and compares it with all earlier accesses."""
        for state in self.shadow(shadows, array).replace(access.place, array, index, access):
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
            state.atomics[access.agent] = access

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
                    self.report(other, access, np.asarray(array), missing_farewell(other, access))
            state.write, state.reads, state.atomics = access, {}, {}

    def report(self, first: Access, second: Access, view: np.ndarray, needs: str) -> None:
        """Notes a race about what a view shows."""
        name = first.place.buffer if second.place.what == EXIT else second.place.buffer
        self.report_region(first, second, region_text(view, name), needs)

    def report_region(self, first: Access, second: Access, region: str, needs: str) -> None:
        """Notes a race about a region in words."""
        self._log.add(first, second, region, needs, self._engine.now)

    def _compare_write(self, earlier: Access, array: np.ndarray, index: Index, clock: Clock, access: Access) -> None:
        agent, time, place, _, _ = earlier
        if place.what == EXIT:
            self.report(earlier, access, access.place.view(array, *index), missing_farewell(access, earlier))
        elif clock.get(agent, 0) < time:
            self.report(earlier, access, access.place.view(array, *index), missing_order(earlier, access))
        elif access.place.is_asynchronous and not place.is_asynchronous:
            is_committed = clock.get(-agent, 0) >= time and place.space == "SMEM"
            if not is_committed:
                self.report(earlier, access, access.place.view(array, *index), missing_commit(earlier, access))

    def _compare(
        self, earlier: Iterable[Access], array: np.ndarray, index: Index, clock: Clock, access: Access
    ) -> None:
        for other in earlier:
            if clock.get(other.agent, 0) < other.time:
                self.report(other, access, access.place.view(array, *index), missing_order(other, access))

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
