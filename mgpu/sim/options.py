"""How to simulate: which checks, whether values are computed, which order ties take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

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
      record_ctas: CTAs to record, by number (the last grid axis counts fastest), so that a long kernel fits a small
        buffer with the same stretch of every role; None records all. The others run as if they were recorded too:
        storing events costs them the same cycles, so the timeline is that of a full recording.
      record_warpgroups: warpgroups to record in each of these CTAs; None records all. The same holds for the others.
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
    record_ctas: Sequence[int] | None = None
    record_warpgroups: Sequence[int] | None = None
    max_events: int = DEFAULT_MAX_EVENTS
    warm_l2: bool = False
    detect_races: bool | None = None

    def __post_init__(self) -> None:
        if self.record_cycles is not None and self.record_cycles < 0:
            raise ParamsError(f"InterpretGPUParams: record_cycles must be at least 0, got {self.record_cycles}.")
        for name in ("record_ctas", "record_warpgroups"):
            numbers = getattr(self, name)
            if numbers is None:
                continue
            if not len(numbers) or min(numbers) < 0:
                raise ParamsError(f"InterpretGPUParams: {name} must name at least one, from 0 on, got {numbers!r}.")
            object.__setattr__(self, name, tuple(sorted({int(number) for number in numbers})))
        if self.max_events < 1:
            raise ParamsError(f"InterpretGPUParams: max_events must be positive, got {self.max_events}.")

    def check_filters(self, num_ctas: int, num_warpgroups: int) -> None:
        """Checks that a launch has the CTAs and warpgroups that are to be recorded.

        Raises:
          ParamsError: it does not.
        """
        for name, numbers, limit in (
            ("record_ctas", self.record_ctas, num_ctas),
            ("record_warpgroups", self.record_warpgroups, num_warpgroups),
        ):
            if numbers is not None and max(numbers) >= limit:
                raise ParamsError(
                    f"InterpretGPUParams: {name} names {max(numbers)}, but the launch has {limit}: 0 to {limit - 1}."
                )

    def records(self, cta: int, warpgroup: int) -> bool:
        """True if the events of a warpgroup of a CTA are to be stored."""
        return self.records_cta(cta) and (self.record_warpgroups is None or warpgroup in self.record_warpgroups)

    def records_cta(self, cta: int) -> bool:
        """True if something of a CTA is to be stored."""
        return self.record_ctas is None or cta in self.record_ctas
