"""Which parts of a buffer are in L2: a grid of blocks, and what is remembered of each.

A buffer's boxes usually have one row pitch, so its bytes form rows and columns, and a box covers a rectangle of
blocks. The blocks are as large as the first box allows and are split when a box appears that does not fit the grid;
they never get smaller than 8 rows of 128 bytes. Boxes of different pitch in one buffer use grids of their own and do
not see each other's blocks; that matters only for kernels that reread the same bytes in another shape.
"""

from __future__ import annotations

import dataclasses

MAX_BLOCK_ROWS = 128
MAX_BLOCK_WIDTH_BYTES, MIN_BLOCK_WIDTH_BYTES = 1024, 128
MIN_BLOCK_BYTES = 1024
LINEAR_PITCH_BYTES = 1024
"""Contiguous boxes of a buffer without a pitch of its own are seen as rows of this length."""

MAX_KNOWN_BOXES = 1 << 16
"""Boxes of an extent that are remembered, so that a long kernel does not fill the memory with them."""

_NEVER = -(1 << 62)
_YOUNG_PART = 8  # of the smallest room
_SCATTERED = 1 << 16
_SCATTER = 40503  # odd, near 2 ** 16 divided by the golden ratio: multiples are spread evenly


@dataclasses.dataclass(slots=True)
class Box:
    """A TMA box, or any rectangle of GMEM bytes, flattened to equally spaced rows.

    Attributes:
      buffer: number that `MemorySystem.add_buffer` gave.
      offset_bytes: of the first row's first byte.
      rows, row_bytes: extent.
      pitch_bytes: from a row's first byte to the next row's; at least `row_bytes` if there are several rows.
      nbytes: of all rows.
      blocks: that the box covers, as long as `known_at` is what the memory system says.
    """

    buffer: int
    offset_bytes: int
    rows: int
    row_bytes: int
    pitch_bytes: int
    nbytes: int = dataclasses.field(init=False, compare=False, repr=False)
    blocks: tuple[Block, ...] = dataclasses.field(default=(), init=False, compare=False, repr=False)
    known_at: object = dataclasses.field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.nbytes = self.rows * self.row_bytes


class Boxes(dict[int, Box]):
    """Boxes of one extent in one buffer by offset, made when they are first asked for: tiles are read again and again.

    Args:
      buffer, rows, row_bytes, pitch_bytes: see `Box`.
    """

    __slots__ = ("_buffer", "_pitch_bytes", "_row_bytes", "_rows")

    def __init__(self, buffer: int, rows: int, row_bytes: int, pitch_bytes: int) -> None:
        super().__init__()
        self._buffer, self._rows, self._row_bytes, self._pitch_bytes = buffer, rows, row_bytes, pitch_bytes

    def __missing__(self, offset_bytes: int) -> Box:
        if len(self) >= MAX_KNOWN_BOXES:
            self.clear()
        self[offset_bytes] = box = Box(self._buffer, offset_bytes, self._rows, self._row_bytes, self._pitch_bytes)
        return box


class BoxesByExtent(dict[tuple[int, int, int, int], Boxes]):
    """`Boxes` by the arguments that make them."""

    def __missing__(self, extent: tuple[int, int, int, int]) -> Boxes:
        self[extent] = boxes = Boxes(*extent)
        return boxes


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

    def room(self, number: int) -> int:
        """Returns the room of the block with that number, the same in each run."""
        return self._smallest + number * _SCATTER % _SCATTERED * (self._largest - self._smallest) // _SCATTERED


class Block:
    """What is remembered of a block.

    Args:
      room: bytes that may be touched before it leaves L2.

    Attributes:
      room: see above.
      stamp: bytes that the launch had touched when the block was last touched.
      ready: cycle at which it is in L2.
      last_time, last_sm: cycle of the last touch, and by whom.
      is_dirty: True if it holds bytes that HBM does not have.
      partitions: bit mask of the partitions that hold a copy.
    """

    __slots__ = ("is_dirty", "last_sm", "last_time", "partitions", "ready", "room", "stamp")

    def __init__(self, room: int) -> None:
        self.room = room
        self.stamp = self.last_time = _NEVER
        self.ready = self.partitions = 0
        self.last_sm = -1
        self.is_dirty = False

    def part(self, room: int) -> Block:
        """Returns a part of this block, which inherits what is known of the whole."""
        part = Block(room)
        for name in ("stamp", "ready", "last_time", "last_sm", "is_dirty", "partitions"):
            setattr(part, name, getattr(self, name))
        return part


def look_up(
    blocks: tuple[Block, ...], sm: int, partition: int, touched_bytes: int, recent: int, young_bytes: int
) -> tuple[int, int, int, int, int, int]:
    """Finds out what of a box is in L2, and forgets what L2 held of blocks that have left it.

    Args:
      blocks: that the box covers.
      sm: who asks.
      partition: bit of the L2 partition on the SM's side.
      touched_bytes: bytes that the launch has touched so far, as in the blocks' stamps.
      recent: a touch by another SM at or after this cycle makes a block shared.
      young_bytes: see `Capacity`.

    Returns:
      How many of the blocks were not in L2; were only in another partition of it; were there but no longer young; were
      touched recently by another SM; would become dirty by a write. And the cycle at which everything that is on its
      way is in L2.
    """
    missed = copied = aged = shared = clean = latest = 0
    for block in blocks:
        age = touched_bytes - block.stamp
        if age < block.room:
            if age > young_bytes:
                aged += 1
            if block.ready > latest:
                latest = block.ready
            if block.last_sm != sm and block.last_time >= recent:
                shared += 1
            if not block.partitions & partition:
                copied += 1
            if not block.is_dirty:
                clean += 1
        else:
            missed += 1
            clean += 1
            block.is_dirty = False
            block.partitions = 0
    return missed, copied, aged, shared, clean, latest


class BlockMap:
    """The grid of one buffer and pitch.

    Args:
      nbytes: size of the buffer.
      pitch_bytes: length of a row of the buffer.
      first: the box for which the map is made; its position and extent set the size of the blocks.
      capacity: of the cache.
    """

    __slots__ = ("_block_bytes", "_block_rows", "_blocks", "_capacity", "_columns", "_num_rows", "pitch_bytes")

    def __init__(self, nbytes: int, pitch_bytes: int, first: Box, capacity: Capacity) -> None:
        self.pitch_bytes = pitch_bytes
        self._capacity = capacity
        self._num_rows = -(-nbytes // pitch_bytes)
        row, column, rows, width = self._rectangle(first)
        self._block_bytes = _power_of_two(column | width, MIN_BLOCK_WIDTH_BYTES, MAX_BLOCK_WIDTH_BYTES)
        self._block_rows = _power_of_two(row | rows, self._fewest_rows, MAX_BLOCK_ROWS)
        self._columns = -(-pitch_bytes // self._block_bytes)
        self._blocks: dict[int, Block] = {}  # by number, row by row; only those that a box has covered

    def cover(self, box: Box) -> tuple[tuple[Block, ...], bool]:
        """Returns the blocks that a box covers.

        Returns:
          The blocks, and True if others had to be split because the box does not fit them: then what has been returned
          for other boxes does not hold any more.
        """
        row, column, rows, width = self._rectangle(box)
        has_split = self._split_until_aligned(row | rows, column | width)
        first_row, end_row = row // self._block_rows, -(-(row + rows) // self._block_rows)
        first, end = column // self._block_bytes, min(self._columns, -(-(column + width) // self._block_bytes))
        if end_row - first_row == end - first == 1:
            return (self._block(first_row * self._columns + first),), has_split
        blocks = [
            self._block(block_row * self._columns + block_column)
            for block_row in range(first_row, end_row)
            for block_column in range(first, end)
        ]
        return tuple(blocks), has_split

    def _block(self, number: int) -> Block:
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = Block(self._capacity.room(number))
        return block

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

    def _split_until_aligned(self, rows: int, columns: int) -> bool:
        has_split = False
        while columns % self._block_bytes and self._block_bytes > MIN_BLOCK_WIDTH_BYTES and columns != self.pitch_bytes:
            if self._block_rows <= self._fewest_rows:
                break
            self._rebuild(self._block_rows, self._block_bytes // 2)
            has_split = True
        while rows % self._block_rows and self._block_rows > self._fewest_rows:
            self._rebuild(self._block_rows // 2, self._block_bytes)
            has_split = True
        return has_split

    def _rebuild(self, block_rows: int, block_bytes: int) -> None:
        """Splits every block; the parts inherit what is known of the whole."""
        columns, block_row_count = -(-self.pitch_bytes // block_bytes), -(-self._num_rows // block_rows)
        row_factor, column_factor = self._block_rows // block_rows, self._block_bytes // block_bytes
        parts: dict[int, Block] = {}
        for number, block in self._blocks.items():
            first_row, first_column = number // self._columns * row_factor, number % self._columns * column_factor
            for row in range(first_row, min(first_row + row_factor, block_row_count)):
                for column in range(first_column, min(first_column + column_factor, columns)):
                    part = row * columns + column
                    parts[part] = block.part(self._capacity.room(part))
        self._blocks, self._block_rows, self._block_bytes, self._columns = parts, block_rows, block_bytes, columns


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
