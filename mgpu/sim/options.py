"""How to simulate: which checks, whether values are computed, which order ties take."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from mgpu.errors import ParamsError

DEFAULT_MAX_EVENTS = 500_000_000


@dataclasses.dataclass(frozen=True)
class InterpretGPUParams:
    """Options of a simulated run, for the `interpret` argument of `kernel`.

    Attributes:
      numerics: compute values; False simulates time only, and outputs are zeros. Then control flow and indices must not
        depend on what TMA loads or wgmmas bring, or an error says so; what it reads from its inputs itself is there.
      seed: shuffle events of equal time with this seed; a correct kernel gives the same values under every seed.
      record_cycles: cycles that recording an event costs the warpgroup; None takes the device's number, 0 gives the
        timeline that the kernel has when nobody records.
      max_events: stop with an error after so many simulation events: a loop that never ends.
      detect_races: look for accesses to SMEM and GMEM that nothing orders, for stores that need a `commit_smem`, and
        for copies that are in flight when their CTA exits; `mgpu.get_races()` returns them. None watches four
        CTAs in full (the first two, the last and the middle one; of clusters with more than one CTA, fewer clusters),
        and of the others what clusters do to each other in GMEM: this costs little. True watches all in full; False
        watches none. Needs `numerics`.
      warm_l2: start with the operands in L2 as far as it holds them, the first ones first to stay, as after an earlier
        launch; by default L2 starts empty.
      compute_scale: for what-ifs, factor on the time of a warpgroup's own work, by its index: arithmetic on registers,
        and moving them to and from SMEM. `{1: 0.5}` makes warpgroup 1 twice as fast, 0 lets it compute at once. Tensor
        cores and copies are the device's: change its numbers.

    Raises:
      ParamsError: a value out of range.
    """

    numerics: bool = True
    seed: int | None = None
    record_cycles: int | None = None
    max_events: int = DEFAULT_MAX_EVENTS
    warm_l2: bool = False
    detect_races: bool | None = None
    compute_scale: Mapping[int, float] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.record_cycles is not None and self.record_cycles < 0:
            raise ParamsError(f"InterpretGPUParams: record_cycles must be at least 0, got {self.record_cycles}.")
        if self.max_events < 1:
            raise ParamsError(f"InterpretGPUParams: max_events must be positive, got {self.max_events}.")
        for warpgroup, factor in self.compute_scale.items():
            if factor < 0:
                raise ParamsError(
                    f"InterpretGPUParams: compute_scale of warpgroup {warpgroup} must be at least 0, got {factor}."
                )

    @property
    def compute_scale_pairs(self) -> tuple[tuple[int, float], ...]:
        """`compute_scale` as a value that can be hashed."""
        return tuple(sorted(self.compute_scale.items()))

    def check_warpgroups(self, num_warpgroups: int) -> None:
        """Checks that a kernel has the warpgroups that `compute_scale` names.

        Raises:
          ParamsError: it does not.
        """
        for warpgroup in self.compute_scale:
            if not 0 <= warpgroup < num_warpgroups:
                raise ParamsError(
                    f"InterpretGPUParams: compute_scale names warpgroup {warpgroup}, but the kernel has "
                    f"{num_warpgroups}: 0 to {num_warpgroups - 1}."
                )
