"""wgmmas that have been issued and are not multiplied yet.

A product is added to its accumulator when that is read, or before SMEM that it reads is overwritten. So one product
often stands for many wgmmas: those of a loop over k whose operands lie side by side in GMEM, where the tiles that TMA
loads put into the slots of a ring come from. Which wgmmas are one product depends on the order of issue alone, so a
kernel gives the same sums under every order of equal times.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mgpu.sim.matmul import MatmulFunction, add_product
from mgpu.sim.multiplier import Multiplier

Mma = tuple[int, bool, MatmulFunction, np.ndarray, np.ndarray, np.ndarray, int | None, int | None]
"""A wgmma: the cycle at which it ends, whether an operand lies in SMEM that may be overwritten, function, acc, a, b,
and where a and b lie in the arrays that they are views of, in bytes; None if that is not known."""

FULL_FLOPS = 1 << 25
"""A product with so many operations takes no more wgmmas: it is long enough for BLAS, and for another core's turn."""
MOST_PENDING = 8
"""So many products, and those that have ended are added up, so that a long loop does not fill the memory with them."""


class Product:
    """A wgmma, or several whose operands follow each other in memory along k.

    Args:
      mma: the first one.
      count: how many follow each other.

    Attributes:
      end: the cycle at which the last one ends.
      in_smem: whether an operand lies in SMEM that may be overwritten.
      num_mmas: how many there are.
    """

    __slots__ = ("_lock", "_mma", "_product", "end", "in_smem", "num_mmas")

    def __init__(self, mma: Mma, count: int = 1) -> None:
        self._mma: Mma | None = mma  # the first one; None when all has been added to the accumulator
        self._product: np.ndarray | None = None
        self._lock = threading.Lock()
        self.end, self.in_smem = mma[:2]
        self.num_mmas = count

    def extend(self, mma: Mma) -> bool:
        """Takes a further wgmma in and returns True, if that adds to the same accumulator what follows along k."""
        assert self._mma is not None
        _, _, _, acc, a, b, a_place, b_place = self._mma
        end, in_smem, multiply, other, next_a, next_b, next_a_place, next_b_place = mma
        if other is not acc or multiply is not add_product or in_smem or not (_alike(a, next_a) and _alike(b, next_b)):
            return False
        if a_place is None or b_place is None or next_a_place is None or next_b_place is None:
            a_place, b_place, next_a_place, next_b_place = map(_address, (a, b, next_a, next_b))
        steps = self.num_mmas
        if next_a_place != a_place + steps * a.shape[1] * a.strides[1]:
            return False
        if next_b_place != b_place + steps * b.shape[0] * b.strides[0]:
            return False
        self.end = end
        self.num_mmas = steps + 1
        return True

    def split(self, count: int) -> tuple[Product, Product]:
        """Returns its first `count` wgmmas and the others, as products that take its place."""
        assert self._mma is not None
        (end, in_smem, multiply, acc, a, b, _, _), self._mma = self._mma, None
        k, whole_a, whole_b = a.shape[1], _extended(a, 1, self.num_mmas), _extended(b, 0, self.num_mmas)
        rest = slice(count * k, (count + 1) * k)
        others: Mma = (end, in_smem, multiply, acc, whole_a[:, rest], whole_b[rest], None, None)
        first: Mma = (end, in_smem, multiply, acc, a, b, None, None)
        return Product(first, count), Product(others, self.num_mmas - count)

    def compute(self) -> None:
        """Multiplies, unless somebody has done so or is at it. To be called by another thread than the simulation's."""
        if self._lock.acquire(blocking=False):
            try:
                if self._mma is not None and self._product is None:
                    _, _, _, _, a, b, _, _ = self._mma
                    self._product = _extended(a, 1, self.num_mmas) @ _extended(b, 0, self.num_mmas)
            finally:
                self._lock.release()

    def finish(self) -> None:
        """Adds the product to the accumulator, and multiplies first if nobody has."""
        with self._lock:
            assert self._mma is not None
            (_, _, multiply, acc, a, b, _, _), self._mma = self._mma, None
            if self._product is None:
                multiply(acc, _extended(a, 1, self.num_mmas), _extended(b, 0, self.num_mmas))
            else:
                acc += self._product
                self._product = None


class Products:
    """The wgmmas of one warpgroup, which are added up in the order of issue.

    Args:
      multiplier: multiplies full products ahead of time; None if nobody does.
    """

    __slots__ = ("_in_smem", "_multiplier", "_num_mmas", "_products", "_room")

    def __init__(self, multiplier: Multiplier | None = None) -> None:
        self._multiplier = multiplier
        self._products: deque[Product] = deque()
        self._num_mmas = 0  # in all products
        self._in_smem = 0  # products whose operands may be overwritten
        self._room = 0  # wgmmas that the newest product may still take

    def add(self, now: int, mma: Mma) -> None:
        """Takes a wgmma that is issued at `now`."""
        self._num_mmas += 1
        if self._room and self._products[-1].extend(mma):
            self._room -= 1
        else:
            _, in_smem, multiply, acc, a, _, _, _ = mma
            can_grow = multiply is add_product and not in_smem
            self._room = max(1, FULL_FLOPS // (2 * acc.size * a.shape[1])) - 1 if can_grow else 0
            self._in_smem += in_smem
            self._products.append(Product(mma))
            self._add_up(now)
            if not can_grow:
                return
        if not self._room and self._multiplier is not None:
            self._multiplier.submit(self._products[-1])

    def _add_up(self, now: int) -> None:
        """Adds up what has ended by `now`, if there is much of it."""
        products = self._products
        while len(products) > MOST_PENDING and products[0].end <= now:
            self._finish_first()

    def before_overwriting(self, now: int) -> None:
        """Multiplies what has ended by `now`, if SMEM that will be overwritten then may be among the operands."""
        while self._in_smem and self._products[0].end <= now:
            self._finish_first()

    def retire(self, in_flight: int) -> None:
        """Adds up all but the `in_flight` newest wgmmas."""
        while (due := self._num_mmas - in_flight) > 0:
            if self._products[0].num_mmas > due:
                self._products.extendleft(reversed(self._products.popleft().split(due)))
            self._finish_first()
        self._room = 0  # what comes next is read later

    def _finish_first(self) -> None:
        product = self._products.popleft()
        self._num_mmas -= product.num_mmas
        self._in_smem -= product.in_smem
        if not self._products:
            self._room = 0
        product.finish()


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
