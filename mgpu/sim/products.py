"""wgmmas that have been issued and are not multiplied yet.

A product is computed when its accumulator is read, or before SMEM that it reads is overwritten. So one product often
stands for many wgmmas: those of a loop over k whose operands lie side by side in GMEM, where the tiles that TMA loads
put into the slots of a ring come from.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mgpu.sim.matmul import MatmulFunction, add_product

Mma = tuple[int, bool, MatmulFunction, np.ndarray, np.ndarray, np.ndarray, int | None, int | None]
"""A wgmma: the cycle at which it ends, whether an operand lies in SMEM that may be overwritten, function, acc, a, b,
and where a and b lie in the arrays that they are views of, in bytes; None if that is not known."""


MOST_PENDING = 256
"""So many wgmmas, and those that have ended are multiplied, so that a long loop does not fill the memory with them."""


class Products:
    """The wgmmas of one warpgroup, which are multiplied in the order of issue."""

    __slots__ = ("_in_smem", "_mmas")

    def __init__(self) -> None:
        self._mmas: deque[Mma] = deque()
        self._in_smem = 0  # wgmmas in the queue whose operands may be overwritten

    def add(self, now: int, mma: Mma) -> None:
        """Takes a wgmma that is issued at `now`."""
        mmas = self._mmas
        if mmas and len(mmas) % MOST_PENDING == 0:
            self.retire(sum(end > now for end, *_ in mmas))
        mmas.append(mma)
        self._in_smem += mma[1]

    def before_overwriting(self, now: int) -> None:
        """Multiplies what has ended by `now`, if SMEM that will be overwritten then may be among the operands."""
        mmas = self._mmas
        while self._in_smem and mmas[0][0] <= now:
            self._multiply_first(1)

    def retire(self, in_flight: int) -> None:
        """Multiplies all but the `in_flight` newest wgmmas."""
        while (count := len(self._mmas) - in_flight) > 0:
            self._multiply_first(count)

    def _multiply_first(self, limit: int) -> None:
        """Multiplies the oldest wgmma and, up to `limit` in all, those that continue its product."""
        mmas = self._mmas
        _, in_smem, multiply, acc, a, b, a_place, b_place = mmas.popleft()
        self._in_smem -= in_smem
        if multiply is add_product and limit > 1:
            count = self._continuing(acc, a, b, a_place, b_place, limit - 1)
            for _ in range(count):
                self._in_smem -= mmas.popleft()[1]
            a, b = _extended(a, 1, 1 + count), _extended(b, 0, 1 + count)
        multiply(acc, a, b)

    def _continuing(
        self, acc: np.ndarray, a: np.ndarray, b: np.ndarray, a_place: int | None, b_place: int | None, limit: int
    ) -> int:
        """Returns how many of the oldest wgmmas add to `acc` what follows a and b in memory, along k."""
        a_step, b_step = a.shape[1] * a.strides[1], b.shape[0] * b.strides[0]
        is_known = a_place is not None and b_place is not None
        a_next, b_next = (a_place, b_place) if is_known else (_address(a), _address(b))
        count = 0
        for _, _, multiply, other, next_a, next_b, next_a_place, next_b_place in self._mmas:
            if count == limit or multiply is not add_product or other is not acc:
                break
            if not (_alike(a, next_a) and _alike(b, next_b)):
                break
            if not is_known:
                next_a_place, next_b_place = _address(next_a), _address(next_b)
            a_next, b_next = a_next + a_step, b_next + b_step
            if next_a_place != a_next or next_b_place != b_next:
                break
            count += 1
        return count


def _alike(first: np.ndarray, second: np.ndarray) -> bool:
    """True if two arrays are views of one, of the same shape and strides."""
    return first.base is second.base is not None and first.shape == second.shape and first.strides == second.strides


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _extended(array: np.ndarray, axis: int, count: int) -> np.ndarray:
    """Returns a view of `count` arrays that lie behind each other along an axis, from the first one."""
    if count == 1:
        return array
    shape = list(array.shape)
    shape[axis] *= count
    return as_strided(array, shape, array.strides)
