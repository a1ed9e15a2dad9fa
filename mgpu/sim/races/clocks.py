"""Clocks: who knows what of whom.

An agent is a number from 2 on: even for warpgroups and warps, whose accesses are their own, odd for asynchronous work.
A clock says up to which time of each agent something is known. Under the negative number of an even agent it says up to
which time that agent's writes have been made visible to asynchronous units by a `commit_smem`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

Clock = dict[int, int]


def join(clock: Clock, other: Clock) -> None:
    """Adds to a clock what another one knows."""
    get = clock.get
    for agent, time in other.items():
        if get(agent, 0) < time:
            clock[agent] = time


class Agents:
    """Hands out the numbers of agents."""

    def __init__(self) -> None:
        self._last = 0

    def own(self) -> int:
        """Returns a number for a warpgroup or warp."""
        self._last += 2
        return self._last

    def asynchronous(self) -> int:
        """Returns a number for asynchronous work."""
        return self.own() + 1


class Stores:
    """TMA stores of one thread that issues them: how many have been started, and in which groups.

    Attributes:
      reader, writer: the agents of their reads of SMEM and of their writes of GMEM.
      started: stores started so far, the time of both.
      groups: for each committed group, the stores started up to its end.
    """

    __slots__ = ("groups", "reader", "started", "writer")

    def __init__(self, agents: Agents) -> None:
        self.reader, self.writer = agents.asynchronous(), agents.asynchronous()
        self.started = 0
        self.groups: list[int] = []

    def waited(self, clock: Clock, pending: int, read_only: bool) -> None:
        """Notes that at most `pending` groups are in flight (or unread) for the owner of a clock."""
        if len(self.groups) > pending:
            done = self.groups[len(self.groups) - 1 - pending]
            clock[self.reader] = max(clock.get(self.reader, 0), done)
            if not read_only:
                clock[self.writer] = max(clock.get(self.writer, 0), done)


class Party:
    """Somebody who accesses memory and tells others.

    Attributes:
      agent: its number.
      clock: what it knows, its own time included.
    """

    __slots__ = ("agent", "clock")

    def __init__(self, agents: Agents) -> None:
        self.agent = agents.own()
        self.clock: Clock = {self.agent: 1}

    def release(self, into: Clock) -> None:
        """Tells somebody what this party knows; what it does from now on is later."""
        if into:
            join(into, self.clock)
        else:
            into.update(self.clock)
        self.clock[self.agent] += 1

    def news_for(self, clock: Clock) -> Clock:
        """Returns the part of what this party knows that a clock does not."""
        get = clock.get
        return {agent: time for agent, time in self.clock.items() if get(agent, 0) < time}


class ClusterParty(Party):
    """A cluster, which only semaphores order: mostly one of them, which very many clusters signal and wait on.

    While all that a party knows, but for its own time, comes from one clock, that clock knows it, too. Then there is
    only the own time to tell, and what is learnt replaces what was known.
    """

    __slots__ = ("_has_many_sources", "_source")

    def __init__(self, agents: Agents) -> None:
        super().__init__(agents)
        self._source: Clock | None = None
        self._has_many_sources = False

    def news_for(self, clock: Clock) -> Clock:
        """Does the same as that of `Party`."""
        if self._has_many_sources or (self._source is not None and self._source is not clock):
            return super().news_for(clock)
        return {self.agent: self.clock[self.agent]}

    def learn(self, source: Clock, known: Clock) -> None:
        """Adds to what this party knows.

        Args:
          source: all that the signals of a semaphore know together, always the same object.
          known: what is learnt: `source` itself, or less.
        """
        if self._source is None:
            self._source = source
        if self._source is not source:
            self._has_many_sources = True
        if self._has_many_sources or known is not source:
            join(self.clock, known)
            return
        own = self.clock[self.agent]
        self.clock.update(known)
        self.clock[self.agent] = own


class Thread(Party):
    """A warpgroup, or a warp of one.

    Attributes:
      stores: its TMA stores.
      tensor_core: the agent of its wgmmas.
      multiplications: wgmmas started so far.
      accumulated: for each accumulator, where its newest wgmma was started, and which one that is.
    """

    __slots__ = ("accumulated", "multiplications", "stores", "tensor_core")

    def __init__(self, agents: Agents, stores: Stores | None = None) -> None:
        super().__init__(agents)
        self.stores = Stores(agents) if stores is None else stores
        self.tensor_core = agents.asynchronous()
        self.multiplications = 0
        self.accumulated: dict[int, tuple[Any, int]] = {}

    def commit(self) -> None:
        """Makes all writes that this thread knows of visible to asynchronous units."""
        clock = self.clock
        clock.update({-agent: time for agent, time in clock.items() if agent > 0 and not agent & 1})
        clock[self.agent] += 1


class BarrierClock:
    """What an mbarrier carries from those who arrive to those who wait.

    Attributes:
      owner: the CTA in whose SMEM it is.
      loader: the agent of the TMA loads that complete on it.
      storer: the agent of the remote stores that complete on it.
      published: what those know who wait for the newest complete phase. Earlier phases are included: arrivals are
        atomic operations on one object, so a waiter also synchronises with the releases before.
      waits: how often each agent has waited.
    """

    __slots__ = (
        "_arrivers",
        "_arriving",
        "_messages",
        "_publishers",
        "loader",
        "owner",
        "published",
        "storer",
        "waits",
    )

    def __init__(self, owner: int, loader: int, storer: int) -> None:
        self.owner = owner
        self.loader, self.storer = loader, storer
        self.published: Clock = {}
        self.waits: dict[int, int] = {}
        self._publishers: set[int] = set()  # asked, never iterated
        self._arriving: Clock = {}  # what the arrivals of the current phase know
        self._arrivers: set[int] = set()
        self._messages: dict[Any, deque[tuple[int, Clock]]] = {}

    def waited(self, thread: Thread) -> None:
        """Notes that a thread has seen a phase complete."""
        agent = thread.agent
        self.waits[agent] = self.waits.get(agent, 0) + 1
        join(thread.clock, self.published)

    def arrive(self, thread: Thread) -> None:
        """Notes an arrival that takes effect at once."""
        self._arrivers.add(thread.agent)
        thread.release(self._arriving)

    def load(self, time: int) -> None:
        """Notes a load of the loader whose bytes the current phase takes."""
        self._arrivers.add(self.loader)
        self._arriving[self.loader] = time

    def send(self, source: Any, thread: Thread, stored: int = 0) -> None:
        """Notes an arrival that is on its way from another CTA, and the time of the remote store it ends, if any."""
        message: Clock = {self.storer: stored} if stored else {}
        thread.release(message)
        self._messages.setdefault(source, deque()).append((thread.agent, message))

    def arrived(self, source: Any, completes: bool) -> None:
        """Notes that an arrival, or a load's bytes, took effect, and whether the phase is complete now."""
        if len(source) > 2 and source in self._messages:
            agent, message = self._messages[source].popleft()
            self._arrivers.add(agent)
            if self.storer in message:
                self._arrivers.add(self.storer)
            join(self._arriving, message)
        if completes:
            self._publish()

    def _publish(self) -> None:
        if self._publishers <= self._arrivers:
            # Clocks only grow, so those who have arrived before know all that they told then.
            self.published, self._publishers = self._arriving, self._arrivers
        else:
            join(self.published, self._arriving)
            self._publishers |= self._arrivers
        self._arriving, self._arrivers = {}, set()


class Meeting:
    """What a barrier of the whole CTA carries: it is used again and again.

    Args:
      parties: warpgroups that meet.
    """

    __slots__ = ("_arrived", "_gathering", "_parties", "together")

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._arrived = 0
        self._gathering: Clock = {}
        self.together: Clock = {}

    def arrive(self, thread: Thread) -> None:
        """Notes that a warpgroup has come."""
        thread.release(self._gathering)
        self._arrived += 1
        if self._arrived == self._parties:
            self.together, self._gathering, self._arrived = self._gathering, {}, 0
