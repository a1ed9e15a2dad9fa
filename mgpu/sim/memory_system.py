"""L2 and HBM, shared by all SMs: when does a box that is read now leave L2, and when is a written one complete.

- HBM and L2 are servers with a fixed rate and a queue (`FluidQueue`). Lines that other SMs fetched shortly before
  leave L2 at the higher, shared rate: the crossbar joins such requests.
- A buffer is divided into blocks. A block is in L2 if fewer bytes than its set holds were touched since it was last
  touched itself: an approximation of LRU that needs one number per block. Sets fill up unevenly
  (`l2_uneven_fraction`): on an H100 the first of the blocks that are read again and again leave when they take three
  quarters of L2, and the last when they take all of it.
- L2 may have partitions that each keep a copy of what SMs on their side use (`l2_partitions`); it takes room in each.
- A block that is on its way from DRAM is not fetched twice: a later reader waits for the first one's data.
- The slices serve requests of all SMs in no particular order, so a box waits for a share of the bytes that are in
  flight when it arrives (`l2_queueing_fraction`). Measured pipelines with 1 and 2 stages need this; see the device
  file.
- The channels of HBM fill up unevenly, so requests wait for each other before its rate is used up: for a share of the
  bytes that are on their way (`hbm_queueing_fraction`), without those that pass each other (`hbm_passing_fraction`).
- Written bytes go to HBM after a block has become dirty: once, however often it is written while it stays in L2. They
  wait in L2 until HBM has nothing to read, unless they fill L2.
- What goes to the SMs and what comes from them take different ways through the crossbar, each with its own rate.

Calls must come in time order.
"""

from __future__ import annotations

import dataclasses
from array import array
from fractions import Fraction

from mgpu.devices import Device
from mgpu.errors import OutOfBoundsError
from mgpu.sim.fluid_queue import FluidQueue, ReadFirstQueue, exact_ticks
from mgpu.sim.in_flight import InFlight
from mgpu.sim.l2_blocks import (
    LINEAR_PITCH_BYTES,
    MAX_BLOCK_ROWS,
    Block,
    BlockMap,
    Box,
    BoxesByExtent,
    Capacity,
    block_map_for,
    look_up,
)

__all__ = ["Box", "MemoryCounters", "MemorySystem"]


@dataclasses.dataclass(slots=True)
class MemoryCounters:
    """Traffic of one launch. Bytes are those asked for; hits and misses count blocks.

    Attributes:
      hbm_read_bytes, hbm_write_bytes: moved between HBM and L2.
      l2_read_bytes, l2_write_bytes: moved between L2 and the SMs.
      l2_shared_bytes: part of `l2_read_bytes` that another SM had fetched shortly before.
      l2_hits, l2_misses: blocks read or written that were, or were not, in L2.
      hbm_log: when HBM had moved something, and how many bytes; bytes written are negative.
    """

    hbm_read_bytes: int = 0
    hbm_write_bytes: int = 0
    l2_read_bytes: int = 0
    l2_write_bytes: int = 0
    l2_shared_bytes: int = 0
    l2_hits: int = 0
    l2_misses: int = 0
    hbm_log: array[int] = dataclasses.field(default_factory=lambda: array("q"), repr=False)


class MemorySystem:
    """The memory behind all SMs during one launch. L2 starts empty.

    Args:
      device: capacities, rates and latencies.

    Attributes:
      boxes: those that this launch remembers.
    """

    def __init__(self, device: Device) -> None:
        self.counters = MemoryCounters()
        clock = Fraction(device.clock_hz)
        hbm_ticks_per_cycle, (self._hbm_ticks,) = exact_ticks([clock / device.hbm_bandwidth])
        l2_ticks_per_cycle, (self._alone_ticks, self._shared_ticks, self._write_ticks) = exact_ticks(
            [clock / rate for rate in (device.l2_bandwidth, device.l2_shared_bandwidth, device.l2_write_bandwidth)]
        )
        self._hbm = ReadFirstQueue(hbm_ticks_per_cycle, device.l2_bytes * self._hbm_ticks)
        self._l2 = FluidQueue(l2_ticks_per_cycle)
        self._l2_writes = FluidQueue(l2_ticks_per_cycle)
        # Queueing delay per byte in flight, as a fraction, so that the delay is an exact integer operation.
        per_byte = Fraction(device.l2_queueing_fraction).limit_denominator(1000) * clock / device.l2_shared_bandwidth
        self._queueing_numerator, self._queueing_denominator = per_byte.as_integer_ratio()
        per_byte = Fraction(device.hbm_queueing_fraction).limit_denominator(1000) * clock / device.hbm_bandwidth
        self._hbm_numerator, self._hbm_denominator = per_byte.as_integer_ratio()
        # What is on its way at the full rate without any queue, in part: so much passes without waiting.
        under_way = device.tma_latency_dram_cycles * device.hbm_bandwidth / device.clock_hz
        self._hbm_passing_bytes = round(device.hbm_passing_fraction * under_way)
        self._hbm_in_flight = InFlight()
        self._buffers: list[tuple[int, int, dict[int, BlockMap]]] = []  # size, pitch, maps
        self._touched_bytes = 0  # so far, in turn: brought into L2, each copy counted, or made young again
        self._capacity = Capacity(device.l2_bytes, device.l2_uneven_fraction)
        self._young_bytes = self._capacity.young_bytes
        self._partition_masks = tuple(1 << partition for partition in range(device.l2_partitions))
        self._num_partitions = device.l2_partitions
        self._sharing_window = device.l2_sharing_window_cycles
        self._all_partitions = (1 << device.l2_partitions) - 1
        self._in_flight = InFlight()
        self._known_at = object()  # another one as soon as the blocks that boxes remember do not hold any more
        self.boxes = BoxesByExtent()
        # Of TMA and of plain loads: latency of L2, and how much longer DRAM takes.
        tma_latency, plain_latency = device.tma_latency_l2_cycles, device.l2_latency_cycles
        self._tma_latencies = tma_latency, device.tma_latency_dram_cycles - tma_latency
        self._plain_latencies = plain_latency, device.dram_latency_cycles - plain_latency

    def add_buffer(self, nbytes: int, pitch_bytes: int | None = None) -> int:
        """Registers a GMEM buffer, which is not in L2 yet, and returns its number, for `Box.buffer`.

        Args:
          nbytes: its size.
          pitch_bytes: length of the rows that it is made of, if known: then boxes of that pitch and contiguous ones see
            each other's lines.
        """
        # Shorter rows would only make smaller blocks.
        self._buffers.append((nbytes, max(pitch_bytes or 0, LINEAR_PITCH_BYTES), {}))
        return len(self._buffers) - 1

    def warm(self, buffer: int) -> None:
        """Brings a buffer into L2 before the launch, from its first byte to its last, as an earlier kernel would."""
        long_ago = -1 - self._sharing_window
        counters, self.counters = self.counters, MemoryCounters()
        nbytes, pitch_bytes, _ = self._buffers[buffer]
        step = MAX_BLOCK_ROWS * pitch_bytes
        for offset in range(0, nbytes, step):
            self._touch(long_ago, -1, Box(buffer, offset, 1, min(step, nbytes - offset), 0), 0, is_write=False)
        self.counters = counters

    def read(self, now: int, sm: int, box: Box, *, by_tma: bool = False) -> int:
        """Returns the cycle at which the last byte of a box leaves L2 toward an SM.

        Args:
          now: the cycle at which the request is made.
          sm: index of the reading SM.
          box: what is read.
          by_tma: charge the latencies of the TMA engine instead of those of plain loads.

        Raises:
          OutOfBoundsError: the box is not inside its buffer.
        """
        latency, dram_cycles = self._tma_latencies if by_tma else self._plain_latencies
        nbytes, counters = box.nbytes, self.counters
        block = box.blocks[0] if box.known_at is self._known_at and len(box.blocks) == 1 else None
        if (
            block is not None
            and self._touched_bytes - block.stamp <= self._young_bytes
            and block.partitions & self._partition_masks[sm % self._num_partitions]
        ):
            # What `_touch` does in the most frequent case: one block, in L2 and young, so nothing has to be moved.
            is_shared = block.last_sm != sm and block.last_time >= now - self._sharing_window
            missed_bytes, shared_bytes, ready = 0, nbytes if is_shared else 0, block.ready
            block.stamp, block.last_time, block.last_sm = self._touched_bytes, now, sm
            counters.l2_hits += 1
        else:
            missed_bytes, shared_bytes, _, ready = self._touch(now, sm, box, dram_cycles, is_write=False)
        counters.l2_read_bytes += nbytes
        counters.l2_shared_bytes += shared_bytes
        served = self._l2.serve(now, (nbytes - shared_bytes) * self._alone_ticks + shared_bytes * self._shared_ticks)
        leaves_at = ready if ready > now else now
        leaves_at += self._in_flight.settle(now) * self._queueing_numerator // self._queueing_denominator
        if served > leaves_at:
            leaves_at = served
        leaves_at += latency
        if missed_bytes:
            counters.hbm_read_bytes += missed_bytes
        else:
            self._in_flight.add(leaves_at, nbytes)
        return leaves_at

    def write(self, now: int, sm: int, box: Box, moved_bytes: int | None = None) -> int:
        """Returns the cycle at which a box written by an SM has arrived in L2, where every SM can read it.

        Args:
          now: the cycle at which the SM sends it.
          sm: index of the writing SM.
          box: what is written.
          moved_bytes: what the write moves if it fills sectors in parts; the bytes of the box if not given.

        Raises:
          OutOfBoundsError: the box is not inside its buffer.
        """
        _, _, dirtied_bytes, _ = self._touch(now, sm, box, 0, is_write=True)
        nbytes = box.nbytes
        self.counters.l2_write_bytes += nbytes
        self.counters.hbm_write_bytes += dirtied_bytes
        return self._l2_writes.serve(now, (nbytes if moved_bytes is None else moved_bytes) * self._write_ticks)

    def finish(self, now: int) -> None:
        """Logs what is still to be written back at the end of the launch."""
        self._log_written(now)
        self._hbm.do_all_deferred()
        self._log_written(self._hbm.free_at)

    def _touch(self, now: int, sm: int, box: Box, dram_cycles: int, *, is_write: bool) -> tuple[int, int, int, int]:
        """Looks the box's blocks up, charges HBM for what has to be moved, and marks the blocks as touched.

        Returns:
          Bytes of the box that were not in L2; that another SM touched recently; that became dirty by this write. And
          the cycle at which everything that was on its way, or has to be fetched, is in L2.
        """
        blocks = box.blocks if box.known_at is self._known_at else self._find_blocks(box)
        partition = self._partition_masks[sm % self._num_partitions] if sm >= 0 else self._all_partitions
        missed, copied, aged, shared, clean, ready = look_up(
            blocks, sm, partition, self._touched_bytes, now - self._sharing_window, self._young_bytes
        )
        nbytes, count = box.nbytes, len(blocks)
        dirtied_bytes = nbytes * clean // count if is_write else 0
        missed_bytes = 0
        if missed:
            missed_bytes = nbytes * missed // count
            self._touched_bytes += missed_bytes if sm >= 0 else missed_bytes * self._num_partitions
        if copied or aged:
            self._touched_bytes += nbytes * copied // count + nbytes * aged // count
        if now >= 0:
            if is_write:
                ready = now
                if dirtied_bytes:
                    self._log_written(now)
                    self._hbm.defer(now, dirtied_bytes * self._hbm_ticks)
            elif missed:
                arrives = self._fetch(now, missed_bytes) + dram_cycles
                self._hbm_in_flight.add(arrives, missed_bytes)
                if arrives > ready:
                    ready = arrives
        stamp = self._touched_bytes
        for block in blocks:
            block.stamp = stamp
            block.ready = ready
            block.last_time = now
            block.last_sm = sm
            block.partitions |= partition
            if is_write:
                block.is_dirty = True
        counters = self.counters
        counters.l2_hits += count - missed
        counters.l2_misses += missed
        return missed_bytes, shared and nbytes * shared // count, dirtied_bytes, ready

    def _fetch(self, now: int, nbytes: int) -> int:
        """Returns when HBM has read bytes that are asked for now, but for its latency."""
        self._log_written(now)
        served = self._hbm.serve(now, nbytes * self._hbm_ticks)
        self.counters.hbm_log.extend((served, nbytes))
        # Requests wait for each other in HBM's channels before its rate is used up.
        waiting = self._hbm_in_flight.settle(now) - self._hbm_passing_bytes
        queueing = waiting * self._hbm_numerator // self._hbm_denominator if waiting > 0 else 0
        return max(served, now + queueing)

    def _find_blocks(self, box: Box) -> tuple[Block, ...]:
        """Returns the blocks of a box, which lies in its buffer, and lets the box remember them."""
        self._check(box)
        nbytes, pitch_bytes, maps = self._buffers[box.buffer]
        blocks, has_split = block_map_for(maps, nbytes, pitch_bytes, box, self._capacity).cover(box)
        if has_split:
            self._known_at = object()
        box.blocks, box.known_at = blocks, self._known_at
        return blocks

    def _log_written(self, now: int) -> None:
        """Logs what HBM has written since the last call, as of `now`."""
        written = self._hbm.take_done(now) // self._hbm_ticks
        if written:
            self.counters.hbm_log.extend((now, -written))

    def _check(self, box: Box) -> None:
        size = self._buffers[box.buffer][0]
        end = box.offset_bytes + (box.rows - 1) * box.pitch_bytes + box.row_bytes
        if box.offset_bytes < 0 or end > size or box.rows < 1 or box.row_bytes < 1:
            raise OutOfBoundsError(
                f"{box} reaches from byte {box.offset_bytes} to {end}, but its buffer has {size} bytes. "
                "Clip the box to the buffer."
            )
