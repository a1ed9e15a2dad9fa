"""`Device`: the numbers of one GPU as typed fields, and how to change some of them.

The fields are grouped by the hardware unit that they describe. What each number is worth, and who measured it, is in
the device's TOML file and in `Device.number(name)`. Cycles are SM clock cycles; rates are per SM unless the name says
chip.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from mgpu.errors import DeviceError
from mgpu.units import POWER_CAPPED

POSITIVE_UNITS = ("count", "Hz", "bytes", "bytes/s", "bytes/cycle", "rows/cycle", "lanes/cycle", "slots/cycle")


class DeviceNumber(NamedTuple):
    """One number of a device and where it comes from.

    Attributes:
      value: the number.
      unit: unit of the value, as in the device file.
      source: public source: paper and table, vendor document, or repository and experiment.
      confidence: "H" measured and confirmed by a second source, "M" measured once or on a sibling part, "L" inferred.
      note: what to know before relying on it; may be empty.
    """

    value: int | float
    unit: str
    source: str
    confidence: str
    note: str = ""


def _number(unit: str, *, may_be_zero: bool = False) -> Any:
    return dataclasses.field(metadata={"unit": unit, "may_be_zero": may_be_zero or unit not in POSITIVE_UNITS})


@dataclasses.dataclass(frozen=True)
class Device:
    """The numbers of one GPU. Frozen and hashable; compare by value.

    Build one with `load_device` or `device_from_file`, change numbers with `override`.
    """

    name: str

    # Clocks. `clock_hz` is that of a run: by default the clock under tensor-core load, below the boost clock. If
    # `is_power_capped`, runs start with it and settle at the clock of `mgpu.devices.power`.
    num_sms: int = _number("count")
    clock_hz: int = _number("Hz")
    boost_clock_hz: int = _number("Hz")
    full_load_clock_hz: int = _number("Hz")  # power-capped, with tensor cores that never pause
    power_base_load: float = _number("fraction")  # power of the rest, relative to that of busy tensor cores
    power_hbm_bandwidth: int = _number("bytes/s")  # HBM traffic that takes the whole power limit
    globaltimer_step_ns: int = _number("ns")

    # What an SM holds.
    smem_per_sm_bytes: int = _number("bytes")
    smem_per_cta_bytes: int = _number("bytes")
    smem_reserved_per_cta_bytes: int = _number("bytes")
    registers_per_sm: int = _number("count")
    registers_per_lane: int = _number("count")
    register_allocation_unit: int = _number("count")  # registers per warp are rounded up to this
    max_warps_per_sm: int = _number("count")
    max_ctas_per_sm: int = _number("count")
    max_cluster_size: int = _number("count")
    max_clusters_of_2: int = _number("count")  # clusters that the whole chip holds at one CTA per SM
    max_clusters_of_4: int = _number("count")
    max_clusters_of_8: int = _number("count")

    # L2 and HBM, shared by all SMs.
    hbm_bytes: int = _number("bytes")
    hbm_peak_bandwidth: int = _number("bytes/s")
    hbm_bandwidth: int = _number("bytes/s")  # achievable
    hbm_queueing_fraction: float = _number("fraction")  # of the bytes on their way that are served first
    hbm_passing_fraction: float = _number("fraction")  # of what is on its way at the full rate, for which nobody waits
    l2_bytes: int = _number("bytes")
    l2_partitions: int = _number("count")  # that each keep a copy of what SMs on their side use
    l2_uneven_fraction: float = _number("fraction")  # of L2, over which blocks begin to leave
    l2_bandwidth: int = _number("bytes/s")  # lines that one SM reads
    l2_shared_bandwidth: int = _number("bytes/s")  # lines that other SMs read at about the same time
    l2_write_bandwidth: int = _number("bytes/s")  # whole sectors
    l2_partial_sector_bytes: int = _number("bytes")  # what a sector counts that is written in part
    l2_sharing_window_cycles: int = _number("cycles")
    l2_queueing_fraction: float = _number("fraction")  # of the bytes in flight that are served first
    l2_latency_cycles: int = _number("cycles")
    dram_latency_cycles: int = _number("cycles")

    # TMA engine.
    tma_issue_cycles: int = _number("cycles")
    tma_descriptor_fetch_cycles: int = _number("cycles")
    tma_latency_l2_cycles: int = _number("cycles")
    tma_latency_dram_cycles: int = _number("cycles")
    tma_row_bytes: int = _number("bytes")
    tma_rows_per_cycle: int = _number("rows/cycle")
    tma_bytes_per_cycle: int = _number("bytes/cycle")
    tma_wgmma_contention: float = _number("fraction")  # by which a load takes longer that starts while wgmmas run
    tma_store_latency_cycles: int = _number("cycles")
    tma_store_read_latency_cycles: int = _number("cycles")
    tma_store_bytes_per_cycle: int = _number("bytes/cycle")

    # Tensor core, wgmma. All zero on a device without wgmma.
    wgmma_flops_per_cycle: int = _number("flop/cycle")  # 16-bit operands, 32-bit accumulators
    wgmma_rows: int = _number("rows")  # M of one instruction
    wgmma_k_bytes: int = _number("bytes", may_be_zero=True)  # K of one instruction, in operand bytes
    wgmma_smem_bytes_per_cycle: int = _number("bytes/cycle", may_be_zero=True)
    wgmma_interval_overhead_cycles: float = _number("cycles")
    wgmma_latency_cycles: int = _number("cycles")
    wgmma_latency_per_column_cycles: float = _number("cycles")
    wgmma_issue_cycles: int = _number("cycles")

    # Synchronisation.
    mbarrier_arrive_cycles: int = _number("cycles")
    mbarrier_try_wait_cycles: int = _number("cycles")
    mbarrier_hop_cycles: int = _number("cycles")  # phase complete -> waiter runs
    named_barrier_cycles: int = _number("cycles")
    named_barrier_cycles_per_warp: int = _number("cycles")
    fence_proxy_async_cycles: int = _number("cycles")
    fence_cta_cycles: int = _number("cycles")
    fence_gpu_cycles: int = _number("cycles")
    setmaxnreg_cycles: int = _number("cycles")
    elect_cycles: int = _number("cycles")
    cluster_sync_cycles: int = _number("cycles")
    cluster_sync_first_ns: int = _number("ns")
    dsmem_latency_cycles: int = _number("cycles")
    dsmem_bandwidth: int = _number("bytes/s")
    gmem_semaphore_hop_ns: int = _number("ns")
    gmem_atomics_per_second: int = _number("Hz")
    nvlink_bandwidth: int = _number("bytes/s")
    nvlink_latency_ns: int = _number("ns")

    # CUDA cores: lanes per SM and clock, latency of a dependent operation.
    issue_slots_per_cycle: int = _number("slots/cycle")
    fma_lanes_per_cycle: int = _number("lanes/cycle")
    alu_lanes_per_cycle: int = _number("lanes/cycle")
    mufu_lanes_per_cycle: int = _number("lanes/cycle")
    cvt_lanes_per_cycle: int = _number("lanes/cycle")
    shuffle_lanes_per_cycle: int = _number("lanes/cycle")
    smem_bytes_per_cycle: int = _number("bytes/cycle")
    lone_warp_factor: float = _number("factor")  # on the sum of the times on the pipes
    arithmetic_latency_cycles: int = _number("cycles")
    mufu_latency_cycles: int = _number("cycles")
    shuffle_latency_cycles: int = _number("cycles")
    smem_latency_cycles: int = _number("cycles")

    # Launch and CTA life cycle. Measured in time, not in SM cycles.
    launch_ramp_ns: int = _number("ns")
    cta_dispatch_ns: int = _number("ns")
    cta_setup_ns: int = _number("ns")
    relaunch_gap_ns: int = _number("ns")  # exit of a CTA -> first operation of the next one on its SM

    # Recording.
    record_event_cycles: int = _number("cycles")

    is_power_capped: bool = False

    numbers: Mapping[str, DeviceNumber] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    @property
    def has_wgmma(self) -> bool:
        """True if the tensor core is programmed with wgmma (Hopper)."""
        return self.wgmma_flops_per_cycle > 0

    def cycles(self, ns: float) -> int:
        """Returns a duration in ns as SM cycles of this device's clock, rounded to the nearest."""
        return round(ns * self.clock_hz / 1_000_000_000)

    def number(self, name: str) -> DeviceNumber:
        """Returns a number with its unit and source.

        Raises:
          DeviceError: the device has no such number.
        """
        check_number_names(self.name, (name,))
        return self.numbers[name]

    def override(self, **numbers: Any) -> Device:
        """Returns a copy of the device with some numbers replaced.

        Args:
          **numbers: field name and new value, in the field's unit. `clock_hz="power_capped"` lets each kernel settle at
            the clock that the power limit allows it.

        Raises:
          DeviceError: a name is unknown, or a value has the wrong type or sign.
        """
        check_number_names(self.name, numbers)
        is_power_capped = self.is_power_capped
        if "clock_hz" in numbers:
            is_power_capped = numbers["clock_hz"] == POWER_CAPPED
            if is_power_capped:
                del numbers["clock_hz"]
        values = {name: check_value(self.name, name, value) for name, value in numbers.items()}
        changed = dict(self.numbers)
        for name, value in values.items():
            changed[name] = DeviceNumber(value, unit_of(name), "set by Device.override", "L")
        return dataclasses.replace(self, **values, is_power_capped=is_power_capped, numbers=changed)


_FIELDS = {field.name: field for field in dataclasses.fields(Device) if "unit" in field.metadata}
NUMBER_NAMES = tuple(_FIELDS)


def unit_of(name: str) -> str:
    """Returns the unit of a number, such as "cycles"."""
    return _FIELDS[name].metadata["unit"]


def check_number_names(where: str, names: Any) -> None:
    """Refuses names that are not numbers of a device.

    Raises:
      DeviceError: names the unknown one, and the nearest that exists.
    """
    for name in names:
        if name not in _FIELDS:
            near = difflib.get_close_matches(name, NUMBER_NAMES, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]!r}?" if near else "mgpu.devices.Device lists them."
            raise DeviceError(f"{where}: no device number is called {name!r}. {hint}")


def check_value(where: str, name: str, value: Any) -> int | float:
    """Returns `value` in the number's own type.

    Raises:
      DeviceError: not a finite number, a fraction where an integer is needed, negative, or zero for a rate or a size.
    """
    field = _FIELDS[name]
    expected = "a number" if field.type == "float" else "an integer"
    unit, may_be_zero = field.metadata["unit"], field.metadata["may_be_zero"]
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or (field.type == "int" and value != int(value)):
        raise DeviceError(f"{where}: {name} is {value!r}, expected {expected} of {unit}.")
    if value < 0 or (value == 0 and not may_be_zero):
        least = "at least 0" if may_be_zero else "more than 0"
        raise DeviceError(f"{where}: {name} is {value} {unit}, expected {least}.")
    return int(value) if field.type == "int" else float(value)
