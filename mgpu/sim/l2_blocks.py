"""Which parts of a buffer are in L2: a grid of blocks, and what is remembered of each.

A buffer's boxes usually have one row pitch, so its bytes form rows and columns, and a box covers a rectangle of
blocks. The blocks are as large as the first box allows and are split when a box appears that does not fit the grid;
they never get smaller than 8 rows of 128 bytes. Boxes of different pitch in one buffer use grids of their own and do
not see each other's blocks; that matters only for kernels that reread the same bytes in another shape.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

MAX_BLOCK_ROWS = 128
MAX_BLOCK_WIDTH_BYTES, MIN_BLOCK_WIDTH_BYTES = 1024, 128
MIN_BLOCK_BYTES = 1024
LINEAR_PITCH_BYTES = 1024
"""Contiguous boxes of a buffer without a pitch of its own are seen as rows of this length."""

MAX_KNOWN_BOXES = 1 << 16
"""Boxes of a buffer whose blocks are remembered, so that a long kernel does not fill the memory with them."""

_NEVER = -(1 << 62)
_YOUNG_PART = 8  # of the smallest room
_SCATTERED = 1 << 16
_SCATTER = 40503  # odd, near 2 ** 16 divided by the golden ratio: multiples are spread evenly


class Box(NamedTuple):
    """A TMA box, or any rectangle of GMEM bytes, flattened to equally spaced rows.

    Attributes:
      buffer: number that `MemorySystem.add_buffer` gave.
      offset_bytes: of the first row's first byte.
      rows, row_bytes: extent.
      pitch_bytes: from a row's first byte to the next row's; at least `row_bytes` if there are several rows.
    """

    buffer: int
    offset_bytes: int
    rows: int
    row_bytes: int
    pitch_bytes: int


class Capacity:
    """How long blocks stay in a cache whose sets do not fill up evenly.

    A block leaves when as many bytes have been touched since it was touched itself as its set has room for. Addresses
    are hashed to sets, so that rooms differ: here evenly between the smallest and the whole cache.

    Args:
      nbytes: of the cache.
      uneven_fraction: by which the smallest room is below that.

    Attributes:
      young_bytes: a block that is touched again before so many bytes of others are touched is not counted again.
    """

    __slots__ = ("_largest", "_smallest", "young_bytes")

    def __init__(self, nbytes: int, uneven_fraction: float) -> None:
        self._largest = nbytes
        self._smallest = round(nbytes * (1 - uneven_fraction))
        self.young_bytes = self._smallest // _YOUNG_PART

    def rooms(self, count: int) -> tuple[int, ...]:
        """Returns the rooms of so many blocks, the same in each run."""
        return _rooms(self._smallest, self._largest, count)


@functools.lru_cache(maxsize=64)
def _rooms(smallest: int, largest: int, count: int) -> tuple[int, ...]:
    span = largest - smallest
    return tuple(smallest + block * _SCATTER % _SCATTERED * span // _SCATTERED for block in range(count))


class Touched:
    """What was found when a box was looked up.

    Attributes:
      blocks: numbers of the blocks that the box covers.
      num_hits, num_misses: blocks.
      missed_bytes, copied_bytes, aged_bytes, shared_bytes, dirtied_bytes: parts of the box that were not in L2, that
        were only in another partition of it, that were there but no longer young, that another SM touched recently,
        that became dirty by this write.
      ready: cycle at which everything that was on its way, or has to be fetched, is in L2.
    """

    __slots__ = (
        "aged_bytes",
        "blocks",
        "copied_bytes",
        "dirtied_bytes",
        "missed_bytes",
        "num_hits",
        "num_misses",
        "ready",
        "shared_bytes",
    )

    def __init__(
        self,
        blocks: tuple[int, ...],
        num_misses: int,
        missed_bytes: int,
        copied_bytes: int,
        aged_bytes: int,
        shared_bytes: int,
        dirtied_bytes: int,
        ready: int,
    ) -> None:
        self.blocks = blocks
        self.num_hits = len(blocks) - num_misses
        self.num_misses = num_misses
        self.missed_bytes = missed_bytes
        self.copied_bytes = copied_bytes
        self.aged_bytes = aged_bytes
        self.shared_bytes = shared_bytes
        self.dirtied_bytes = dirtied_bytes
        self.ready = ready


class BlockMap:
    """The grid of one buffer and pitch.

    Args:
      nbytes: size of the buffer.
      pitch_bytes: length of a row of the buffer.
      first: the box for which the map is made; its position and extent set the size of the blocks.
      capacity: of the cache.
    """

    __slots__ = (
        "_block_bytes",
        "_block_rows",
        "_capacity",
        "_columns",
        "_covered",
        "_dirty",
        "_last_sm",
        "_last_time",
        "_num_rows",
        "_partitions",
        "_ready",
        "_room",
        "_stamp",
        "pitch_bytes",
    )

    def __init__(self, nbytes: int, pitch_bytes: int, first: Box, capacity: Capacity) -> None:
        self.pitch_bytes = pitch_bytes
        self._capacity = capacity
        self._num_rows = -(-nbytes // pitch_bytes)
        row, column, rows, width = self._rectangle(first)
        self._block_bytes = _power_of_two(column | width, MIN_BLOCK_WIDTH_BYTES, MAX_BLOCK_WIDTH_BYTES)
        self._block_rows = _power_of_two(row | rows, self._fewest_rows, MAX_BLOCK_ROWS)
        self._columns = -(-pitch_bytes // self._block_bytes)
        num_blocks = -(-self._num_rows // self._block_rows) * self._columns
        # Plain lists: a box covers few blocks, and indexing a NumPy array is several times slower.
        self._stamp = [_NEVER] * num_blocks  # bytes that the launch had touched when the block was last touched
        self._room = capacity.rooms(num_blocks)  # bytes that may be touched before the block leaves
        self._ready = [0] * num_blocks  # cycle at which it is in L2
        self._last_time = [_NEVER] * num_blocks  # cycle of the last touch
        self._last_sm = [-1] * num_blocks
        self._dirty = [False] * num_blocks
        self._partitions = [0] * num_blocks  # bit mask of the partitions that hold a copy
        self._covered: dict[Box, tuple[int, ...]] = {}  # tiles are read again and again: the blocks of each box

    def look_up(self, box: Box, sm: int, partition: int, touched_bytes: int, recent: int, *, is_write: bool) -> Touched:
        """Finds out what of a box is in L2.

        Args:
          box: the bytes; of this map's buffer.
          sm: who asks.
          partition: bit of the L2 partition on the SM's side.
          touched_bytes: bytes that the launch has touched so far, as in the blocks' stamps.
          recent: a touch by another SM at or after this cycle makes a block shared.
          is_write: count what becomes dirty.
        """
        blocks = self._covered.get(box) or self._cover(box)
        missed = copied = aged = shared = dirtied = latest = 0
        stamp, ready, dirty, partitions = self._stamp, self._ready, self._dirty, self._partitions
        room, young_bytes = self._room, self._capacity.young_bytes
        last_time, last_sm = self._last_time, self._last_sm
        for block in blocks:
            age = touched_bytes - stamp[block]
            if age < room[block]:
                if age > young_bytes:
                    aged += 1
                if ready[block] > latest:
                    latest = ready[block]
                if last_time[block] >= recent and last_sm[block] != sm:
                    shared += 1
                if not partitions[block] & partition:
                    copied += 1
                if not dirty[block]:
                    dirtied += 1
            else:
                missed += 1
                dirtied += 1
                dirty[block] = False
                partitions[block] = 0
        count = len(blocks)
        nbytes = box.rows * box.row_bytes
        return Touched(
            blocks,
            missed,
            missed and nbytes * missed // count,
            copied and nbytes * copied // count,
            aged and nbytes * aged // count,
            shared and nbytes * shared // count,
            nbytes * dirtied // count if is_write else 0,
            latest,
        )

    def mark(
        self, box: Box, sm: int, partition: int, stamp: int, now: int, touched: Touched, *, is_write: bool
    ) -> None:
        """Marks the blocks of a box as touched now, and in L2 from `touched.ready` on."""
        ready = now if is_write else touched.ready
        stamps, readies, partitions = self._stamp, self._ready, self._partitions
        last_time, last_sm = self._last_time, self._last_sm
        for block in touched.blocks:
            stamps[block] = stamp
            readies[block] = ready
            last_time[block] = now
            last_sm[block] = sm
            partitions[block] |= partition
            if is_write:
                self._dirty[block] = True

    def _cover(self, box: Box) -> tuple[int, ...]:
        """Returns the blocks that a box covers, after splitting blocks that do not fit it, and remembers them."""
        row, column, rows, width = self._rectangle(box)
        self._split_until_aligned(row | rows, column | width)
        first, end = column // self._block_bytes, -(-(column + width) // self._block_bytes)
        blocks = tuple(
            block_row * self._columns + block_column
            for block_row in range(row // self._block_rows, -(-(row + rows) // self._block_rows))
            for block_column in range(first, min(self._columns, end))
        )
        if len(self._covered) >= MAX_KNOWN_BOXES:
            self._covered.clear()
        self._covered[box] = blocks
        return blocks

    def _rectangle(self, box: Box) -> tuple[int, int, int, int]:
        """Returns first row, first column byte, rows and width in bytes, within this map's pitch."""
        row, column = divmod(box.offset_bytes, self.pitch_bytes)
        if box.pitch_bytes == self.pitch_bytes and box.rows > 1:
            return row, column, box.rows, box.row_bytes
        nbytes = box.rows * box.row_bytes
        if column + nbytes <= self.pitch_bytes:
            return row, column, 1, nbytes
        end_row = -(-(box.offset_bytes + nbytes) // self.pitch_bytes)
        return row, 0, end_row - row, self.pitch_bytes

    @property
    def _fewest_rows(self) -> int:
        return MIN_BLOCK_BYTES // self._block_bytes

    def _split_until_aligned(self, rows: int, columns: int) -> None:
        while columns % self._block_bytes and self._block_bytes > MIN_BLOCK_WIDTH_BYTES and columns != self.pitch_bytes:
            if self._block_rows <= self._fewest_rows:
                break
            self._rebuild(self._block_rows, self._block_bytes // 2)
        while rows % self._block_rows and self._block_rows > self._fewest_rows:
            self._rebuild(self._block_rows // 2, self._block_bytes)

    def _rebuild(self, block_rows: int, block_bytes: int) -> None:
        """Splits every block; the parts inherit what is known of the whole."""
        columns = -(-self.pitch_bytes // block_bytes)
        block_row_count = -(-self._num_rows // block_rows)
        row_factor, column_factor = self._block_rows // block_rows, self._block_bytes // block_bytes
        parents = [
            row // row_factor * self._columns + column // column_factor
            for row in range(block_row_count)
            for column in range(columns)
        ]
        for name in ("_stamp", "_ready", "_last_time", "_last_sm", "_dirty", "_partitions"):
            values = getattr(self, name)
            setattr(self, name, [values[parent] for parent in parents])
        self._room = self._capacity.rooms(len(parents))
        self._block_rows, self._block_bytes, self._columns = block_rows, block_bytes, columns
        self._covered.clear()


def block_map_for(maps: dict[int, BlockMap], nbytes: int, pitch_bytes: int, box: Box, capacity: Capacity) -> BlockMap:
    """Returns the map of a buffer in which a box is looked up, and makes it if there is none.

    Args:
      maps: the buffer's maps by pitch, in order of creation.
      nbytes: size of the buffer.
      pitch_bytes: the buffer's own pitch.
      box: what is accessed.
      capacity: of the cache.
    """
    if box.rows > 1 and box.pitch_bytes != box.row_bytes:
        pitch = box.pitch_bytes
    else:
        pitch = next((known for known in maps if _fits(box, known)), pitch_bytes)
    found = maps.get(pitch)
    if found is None:
        found = maps[pitch] = BlockMap(nbytes, pitch, box, capacity)
    return found


def _fits(box: Box, pitch: int) -> bool:
    """True if a contiguous box is a part of one row, or a number of whole rows."""
    nbytes = box.rows * box.row_bytes
    column = box.offset_bytes % pitch
    return column + nbytes <= pitch or (column == 0 and nbytes % pitch == 0)


def _power_of_two(aligned: int, smallest: int, largest: int) -> int:
    """Returns the largest power of two that divides `aligned`, within limits that are powers of two."""
    return min(largest, max(smallest, aligned & -aligned))
