"""The tensor core of one SM under wgmma: in order, shared by all warpgroups.

An operation m x n x k is a sequence of instructions m64nNkK, K being 32 bytes of operand. One instruction may follow
another after

    interval = max(2 * 64 * N * K / flops per cycle, (bytes of A + bytes of B) / SMEM bytes per cycle) + overhead

cycles: it is bound by arithmetic or by streaming its operands from SMEM. For 16-bit operands that is
max(N/2, (32*64 + 32*N) / 128) + 0.7; the rule fits the measured intervals for N = 8 to 256 within 0.6 cycles
(flash-vla H100 notes, unit-mma). The last instruction's result is there 36 + 0.62 N cycles after its start (GH200
EXP-07), and never before its own interval is over.
"""

from __future__ import annotations

from fractions import Fraction

from mgpu.devices import Device
from mgpu.errors import Unsupported

MAX_COLUMNS = 256
"""Largest N of one wgmma instruction (PTX ISA, wgmma.mma_async)."""

_TICKS_PER_CYCLE = 1000


class TensorCore:
    """The tensor core of one SM.

    Attributes:
      free_at: the cycle at which the pipe has taken all instructions so far.
    """

    __slots__ = ("_busy_ticks", "_free_ticks", "free_at")

    def __init__(self) -> None:
        self.free_at = 0
        self._free_ticks = 0
        self._busy_ticks = 0

    @property
    def busy_cycles(self) -> int:
        """Cycles in which the pipe was taken by instructions."""
        return -(-self._busy_ticks // _TICKS_PER_CYCLE)

    def start(self, now: int, busy_ticks: int, last_ticks: int) -> tuple[int, int]:
        """Puts one operation into the pipe at time `now`, the cycle at which the warpgroup issues it.

        Args:
          now: see above.
          busy_ticks, last_ticks: what `mma_ticks` returns for the operation.

        Returns:
          The cycles at which its first instruction enters the pipe, and at which its last result is in the accumulator
          registers. `free_at` is when the pipe takes the next operation's first instruction.
        """
        # A `FluidQueue` in place, for speed.
        start_ticks = now * _TICKS_PER_CYCLE
        if self._free_ticks > start_ticks:
            start_ticks = self._free_ticks
        self._free_ticks = free_ticks = start_ticks + busy_ticks
        self._busy_ticks += busy_ticks
        self.free_at = free_at = -(-free_ticks // _TICKS_PER_CYCLE)
        # The last instruction starts when all before it have left the pipe.
        end = -(-(free_ticks + last_ticks) // _TICKS_PER_CYCLE)
        return -(-start_ticks // _TICKS_PER_CYCLE), end if end > free_at else free_at


def mma_ticks(
    device: Device, m: int, n: int, k: int, operand_bits: int, a_in_registers: bool = False, where: str = ""
) -> tuple[int, int]:
    """Returns for how many ticks an operation occupies the pipe, and how much longer its last result takes.

    Args:
      device: its rates and latencies.
      m, n, k: logical shape; m is rounded up to 64 rows, k to whole instructions.
      operand_bits: bits of an element of A and B: 8, 16 or 32 (tf32).
      a_in_registers: A is read from registers, so only B is streamed from SMEM.
      where: what an error begins with.

    Raises:
      Unsupported: the device has no wgmma, or not for this element size.
    """
    if not device.has_wgmma or operand_bits not in (8, 16, 32):
        raise Unsupported(
            f"{where}wgmma m{m}n{n}k{k} with {operand_bits}-bit operands on {device.name}: expected 8, 16 or 32 bits "
            "and a device with wgmma. Convert the operands, or simulate an h100."
        )
    steps = -(-m // device.wgmma_rows) * -(-k * operand_bits // (8 * device.wgmma_k_bytes))
    widths = [MAX_COLUMNS] * (n // MAX_COLUMNS) + ([n % MAX_COLUMNS] if n % MAX_COLUMNS else [])
    intervals = [_interval_ticks(device, width, a_in_registers) for width in widths]
    latency = device.wgmma_latency_cycles + Fraction(str(device.wgmma_latency_per_column_cycles)) * widths[-1]
    return steps * sum(intervals), round(latency * _TICKS_PER_CYCLE) - intervals[-1]


def _interval_ticks(device: Device, width: int, a_in_registers: bool) -> int:
    # K * bits is constant and the rate falls with the bits, so the 16-bit figure holds for every element size.
    flops = 2 * device.wgmma_rows * width * device.wgmma_k_bytes * 8 // 16
    streamed_bytes = device.wgmma_k_bytes * (width if a_in_registers else width + device.wgmma_rows)
    cycles = max(
        Fraction(flops, device.wgmma_flops_per_cycle), Fraction(streamed_bytes, device.wgmma_smem_bytes_per_cycle)
    )
    return round((cycles + Fraction(str(device.wgmma_interval_overhead_cycles))) * _TICKS_PER_CYCLE)
