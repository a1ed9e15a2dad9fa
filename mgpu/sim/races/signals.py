"""What the signals of a semaphore tell those who wait on it.

A wait for a value is over as soon as the signals so far add up to it. So it tells of these signals alone: others that
have come meanwhile, in this run, might as well have come later.
"""

from __future__ import annotations

from collections import deque

from mgpu.sim.races.clocks import Clock, ClusterParty, Party

_MOST_KEPT = 2048  # signals; a wait that as many others have overtaken tells of some of them, too


class Signals:
    """The signals of one semaphore.

    Attributes:
      told: what all of them know together.
    """

    __slots__ = ("_log", "told")

    def __init__(self) -> None:
        self.told: Clock = {}
        # Of each signal: the sum of those before it, and what `told` said before of the agents that it tells of.
        self._log: deque[tuple[int, Clock]] = deque(maxlen=_MOST_KEPT)

    def signal(self, party: Party, sum_before: int) -> None:
        """Notes a signal by somebody, after others whose increments have that sum."""
        told = self.told
        news = party.news_for(told)
        self._log.append((sum_before, {agent: told.get(agent, 0) for agent in news}))
        told.update(news)
        party.clock[party.agent] += 1

    def known_at(self, needed: int | None) -> Clock:
        """Returns what the signals know up to the one with which they add up to `needed`; None for all.

        The answer is not to be changed.
        """
        missing: Clock = {}
        if needed is not None:
            for sum_before, before in reversed(self._log):
                if sum_before < needed:
                    break
                missing.update(before)
        return {**self.told, **missing} if missing else self.told

    def teach(self, party: ClusterParty, needed: int | None) -> None:
        """Tells a cluster what `known_at` returns."""
        party.learn(self.told, self.known_at(needed))
