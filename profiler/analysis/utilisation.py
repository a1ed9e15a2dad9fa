"""How much of the tensor cores did the launch use?"""

from __future__ import annotations

import dataclasses

from profiler.analysis.mma_activity import find_mma_activity
from profiler.analysis.window import Window, known_window
from profiler.tensor_rate import peak_of_mix
from profiler.trace import Trace


@dataclasses.dataclass(frozen=True)
class UtilisationReport:
    """Use of the tensor cores.

    Attributes:
      window: the analysed stretch.
      provenance: where tensor-core activity comes from: "simulated" or "inferred".
      busy_cycles: cycles with an MMA in flight, over all SMs.
      sms_used, sms: SMs that issued an MMA; SMs of the device.
      flops: floating-point operations of the MMAs that ended in the window.
      peak_flops_per_cycle: the device's rate per SM for operands as wide as these, 0.0 if the capture does not tell.
    """

    window: Window
    provenance: str
    busy_cycles: int
    sms_used: int
    sms: int
    flops: int
    peak_flops_per_cycle: float

    @property
    def busy_share(self) -> float:
        """Busy cycles over the cycles of all SMs of the device, 0 to 1."""
        return self.busy_cycles / max(self.window.end * self.sms, 1)

    @property
    def busy_share_of_used_sms(self) -> float:
        """Busy cycles over the cycles of the SMs that issued an MMA, 0 to 1."""
        return self.busy_cycles / max(self.window.end * self.sms_used, 1)

    @property
    def flops_per_cycle(self) -> float:
        """Achieved floating-point operations per cycle and SM of the device."""
        return self.flops / max(self.window.end * self.sms, 1)

    @property
    def peak_share(self) -> float:
        """Achieved rate over the device's peak, 0 to 1; 0.0 if the peak is not known."""
        return self.flops_per_cycle / self.peak_flops_per_cycle if self.peak_flops_per_cycle else 0.0


def tensor_core_utilisation(trace: Trace) -> UtilisationReport:
    """Measures how long the tensor cores had work in flight, and what they achieved.

    In flight is not the same as at full rate: an MMA group's latency counts as busy, so that `peak_share` is the
      harder test.
    """
    window = known_window(trace)
    mma = find_mma_activity(trace, window)
    in_flight = mma.in_flight()
    complete = mma.end < window.end if not window.is_whole else mma.end <= window.end
    return UtilisationReport(
        window=window,
        provenance=mma.provenance,
        busy_cycles=int(in_flight.cycles.sum()),
        sms_used=len(dict.fromkeys(mma.sm.tolist())),
        sms=trace.header.num_sms,
        flops=int(mma.flops[complete].sum()),
        peak_flops_per_cycle=peak_of_mix(trace.header, mma.site, mma.flops),
    )
