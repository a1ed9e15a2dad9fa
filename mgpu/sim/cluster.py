"""A cluster of CTAs: who is whose peer along which axes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.frontend.program import Launch

if TYPE_CHECKING:
    from mgpu.sim.cta import CtaState


class Cluster:
    """The CTAs of one cluster, in order of rank.

    Args:
      launch: names and sizes of the cluster axes.

    Attributes:
      sizes: size of each cluster axis by name.
      ctas: CTAs that have started so far, by rank; complete before any of their warpgroups runs.
    """

    def __init__(self, launch: Launch) -> None:
        self.sizes = launch.cluster_sizes
        self.ctas: dict[int, CtaState] = {}
        self._names, self._sizes = launch.cluster_names, launch.cluster
        self._groups: dict[tuple[int, tuple[str, ...]], list[int]] = {}
        self._running = launch.cluster_size

    def exit_one(self) -> bool:
        """Counts a CTA that has exited. Returns True for the last one."""
        self._running -= 1
        return self._running == 0

    def group(self, rank: int, axes: tuple[str, ...]) -> list[int]:
        """Returns the ranks of the CTAs that differ from `rank` only along `axes`, in the order of those axes."""
        key = (rank, axes)
        if key not in self._groups:
            self._groups[key] = list(self._find_group(rank, axes))
        return self._groups[key]

    def _find_group(self, rank: int, axes: tuple[str, ...]) -> Sequence[int]:
        position = {}
        for name, size in zip(reversed(self._names), reversed(self._sizes), strict=True):
            rank, position[name] = divmod(rank, size)
        ranks = []
        for indices in itertools.product(*(range(self.sizes[axis]) for axis in axes)):
            moved = position | dict(zip(axes, indices, strict=True))
            ranks.append(self._rank(moved))
        return ranks

    def _rank(self, position: dict[str, int]) -> int:
        rank = 0
        for name, size in zip(self._names, self._sizes, strict=True):
            rank = rank * size + position[name]
        return rank
