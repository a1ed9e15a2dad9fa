"""The memories of the PTX machine: bytes that know their bounds, so that every stray access is an error.

Shared memory of a CTA begins at `SHARED_BASE` of its own window; the CTA of rank r in the cluster is seen by its peers
at (r + 1) << 24. Global memory and parameters are regions at addresses of their own.
"""

from __future__ import annotations

import numpy as np

from support.ptx.parse import PtxError

SHARED_BASE = 1024  # as on the device, where the first KiB belongs to the system
PEER_SHIFT = 24
PARAM_BASE = 1 << 44
UNINITIALISED = 0xCD


class Region:
    """Bytes from `base` on.

    Args:
      name: what errors call it.
      base: address of its first byte.
      data: uint8 array; a view, so that the owner sees what is stored.
    """

    def __init__(self, name: str, base: int, data: np.ndarray) -> None:
        self.name, self.base, self.data = name, base, data
        self._views = {size: data[: len(data) // size * size].view(np.dtype(f"<u{size}")) for size in (1, 2, 4, 8)}
        self.is_barrier = np.zeros(-(-len(data) // 8), bool)
        """Which 8-byte words hold an mbarrier, which only its own instructions may touch."""

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.base + len(self.data)

    def _index(self, addresses: np.ndarray, size: int) -> np.ndarray:
        offsets = addresses.astype(np.int64) - self.base
        if offsets.min() < 0 or offsets.max() + size > len(self.data):
            bad = next(int(o) for o in offsets if o < 0 or o + size > len(self.data))
            raise PtxError(f"access of {size} bytes at offset {bad} of {self.name}, which has {len(self.data)} bytes")
        if (offsets % size).any():
            raise PtxError(f"misaligned access of {size} bytes at offset {int(offsets[0])} of {self.name}")
        if self.is_barrier[offsets // 8].any():
            raise PtxError(f"access to the mbarrier at offset {int(offsets[0])} of {self.name} as if it were data")
        return offsets // size

    def load(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Returns the values of `size` bytes at these addresses, uint64."""
        return self._views[size][self._index(addresses, size)].astype(np.uint64)

    def store(self, addresses: np.ndarray, values: np.ndarray, size: int) -> None:
        """Stores the low `size` bytes of each value; of equal addresses the last one wins."""
        self._views[size][self._index(addresses, size)] = values.astype(np.dtype(f"<u{size}"))

    def bytes_at(self, address: int, size: int) -> np.ndarray:
        """Returns a view of `size` bytes."""
        start = address - self.base
        if start < 0 or start + size > len(self.data):
            raise PtxError(f"{size} bytes at offset {start} of {self.name}, which has {len(self.data)} bytes")
        if self.is_barrier[start // 8 : -(-(start + size) // 8)].any():
            raise PtxError(f"a copy of {size} bytes at offset {start} of {self.name} covers an mbarrier")
        return self.data[start : start + size]


class Regions:
    """Regions that do not overlap; each address belongs to one, or to none."""

    def __init__(self, regions: list[Region]) -> None:
        self._regions = regions

    def at(self, address: int) -> Region:
        """Returns the region of an address."""
        for region in self._regions:
            if region.base <= address < region.end:
                return region
        raise PtxError(f"access to {address:#x}, where there is no memory")
