"""How to simulate: which checks, whether values are computed, which order ties take."""

from __future__ import annotations

import dataclasses

from mgpu.errors import ParamsError

DEFAULT_MAX_EVENTS = 500_000_000


@dataclasses.dataclass(frozen=True)
class InterpretGPUParams:
    """Options of a simulated run, for the `interpret` argument of `kernel`.

    Attributes:
      numerics: compute values; False simulates time only, and outputs are zeros.
      seed: shuffle events of equal time with this seed; a correct kernel gives the same values under every seed.
      record_cycles: cycles that recording an event costs the warpgroup; None takes the device's number, 0 gives the
        timeline that the kernel has when nobody records.
      max_events: stop with an error after so many simulation events: a loop that never ends.
      detect_races: look for accesses to shared memory that nothing orders, and for stores that need a `commit_smem`;
        `mgpu.get_races()` returns them. None watches the first CTAs only, which costs little and shows what all CTAs
        have in common; True watches all, for up to 40 % more time; False watches none. Needs
        `numerics`; clusters, warp-level code and semaphores are not followed.
      warm_l2: start with the operands in L2 as far as it holds them, the last ones first to stay, as after an earlier
        launch; by default L2 starts empty.

    Raises:
      ParamsError: a value out of range.
    """

    numerics: bool = True
    seed: int | None = None
    record_cycles: int | None = None
    max_events: int = DEFAULT_MAX_EVENTS
    warm_l2: bool = False
    detect_races: bool | None = None

    def __post_init__(self) -> None:
        if self.record_cycles is not None and self.record_cycles < 0:
            raise ParamsError(f"InterpretGPUParams: record_cycles must be at least 0, got {self.record_cycles}.")
        if self.max_events < 1:
            raise ParamsError(f"InterpretGPUParams: max_events must be positive, got {self.max_events}.")
