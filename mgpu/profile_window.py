"""Which part of a launch is recorded, so that a long kernel fits a small buffer with the same stretch of every role.

One object serves both targets: `CompilerParams(profile_window=)`, `mgpu.profile(window=)`, and in its text form the
environment variable MGPU_PROFILE_WINDOW, which `mgpu run --record-ctas 0-3 --record-iterations 10:20` sets.

    ctas=0-3,8 warpgroups=0,2 iterations=10:20

Iterations are numbers of the loop's own counter (`fori_loop`, `pl.loop`), so that iteration 10 of the producer and
iteration 10 of the consumer are both in or both out. A loop without a counter counts its turns from 0.

That holds where both loops count the same steps, as loops that authors write do, and `emit_pipeline_warp_specialized`
does. The pipeline of JAX's own module, which `from_pallas` translates as it is, loads its first stages in a loop of
their own and counts the others from 0: its iteration k loads what iteration k + stages of the consumers uses. Widen the
window by the stages there.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from mgpu.errors import ParamsError

_NAMED = 8  # numbers that a note lists
_FORM = "such as 'ctas=0-3,8 warpgroups=0,2 iterations=10:20'"


@dataclasses.dataclass(frozen=True)
class ProfileWindow:
    """The part of a launch that is recorded; everything outside runs as always, and costs as if it were recorded.

    Attributes:
      ctas: CTAs to record, by number (the last grid axis counts fastest); None records all.
      warpgroups: warpgroups to record in each of these CTAs; None records all. Tracks that are left out take no room.
      iterations: iterations of a warpgroup's loops to record. A `range`, or a `slice` with an open end, is for the
        outermost loops; a tuple of those is for nested loops, outermost first, with None for all iterations. What
        stands outside of loops is recorded always. Time that is left out is told apart from idle and busy time.

    Raises:
      ParamsError: nothing would be recorded, or a number is negative, or a range has a step.

    Example:
      >>> ProfileWindow(ctas=range(2), iterations=range(10, 20)).to_text()
      'ctas=0-1 iterations=10:20'
      >>> ProfileWindow(iterations=(range(1), slice(8, None))).iterations  # tile 0, its steps from the ninth on
      ((0, 1), (8, None))
    """

    ctas: Sequence[int] | None = None
    warpgroups: Sequence[int] | None = None
    iterations: range | slice | Sequence[range | slice | tuple[int, int | None] | None] | None = None

    def __post_init__(self) -> None:
        for name in ("ctas", "warpgroups"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        object.__setattr__(self, "iterations", _levels(self.iterations))

    @property
    def levels(self) -> tuple[tuple[int, int | None], ...]:
        """First iteration and the one behind the last (None: no end) for each level of loops, outermost first."""
        levels: tuple[tuple[int, int | None], ...] = self.iterations or ()  # pyright: ignore[reportAssignmentType]
        return levels

    def check(self, kernel: str, num_ctas: int, num_warpgroups: int) -> None:
        """Checks that a launch has what is to be recorded.

        Args:
          kernel: how the kernel is called, for the error.
          num_ctas, num_warpgroups: what the launch has.

        Raises:
          ParamsError: it does not.
        """
        for name, limit in (("ctas", num_ctas), ("warpgroups", num_warpgroups)):
            numbers = getattr(self, name)
            if numbers is not None and numbers[-1] >= limit:
                raise ParamsError(
                    f"{kernel}: ProfileWindow({name}=) names {numbers[-1]}, but the launch has {limit}: "
                    f"0 to {limit - 1}."
                )

    def records(self, cta: int, warpgroup: int) -> bool:
        """True if events of a warpgroup of a CTA are to be stored."""
        return self.records_cta(cta) and (self.warpgroups is None or warpgroup in self.warpgroups)

    def records_cta(self, cta: int) -> bool:
        """True if something of a CTA is to be stored."""
        return self.ctas is None or cta in self.ctas

    def recorded_warpgroups(self, num_warpgroups: int) -> tuple[int, ...]:
        """Returns the numbers of the warpgroups that are recorded, of a CTA that has so many."""
        return tuple(range(num_warpgroups)) if self.warpgroups is None else tuple(self.warpgroups)

    def recorded_ctas(self, num_ctas: int) -> tuple[int, ...]:
        """Returns the numbers of the CTAs that are recorded, of a launch that has so many."""
        return tuple(range(num_ctas)) if self.ctas is None else tuple(self.ctas)

    def notes(self, num_ctas: int, num_warpgroups: int) -> tuple[str, ...]:
        """Says in sentences what of a launch is left out."""
        notes = []
        for name, numbers, limit in (("CTAs", self.ctas, num_ctas), ("warpgroups", self.warpgroups, num_warpgroups)):
            if numbers is not None and len(numbers) < limit:
                first = ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")
                notes.append(
                    f"only {name} {first} were recorded, {len(numbers)} of {limit}; "
                    "tensor-core use and every share are of these"
                )
        if self.levels:
            loops = " of nested loops" if len(self.levels) > 1 else ""
            notes.append(
                f"only iterations {_iterations_text(self.levels)}{loops} were recorded; "
                "the time of the others is left out of every share"
            )
        return tuple(notes)

    def to_text(self) -> str:
        """Returns the form that `parse_window` reads."""
        parts = [
            f"{name}={_runs_text(getattr(self, name))}"
            for name in ("ctas", "warpgroups")
            if getattr(self, name) is not None
        ]
        if self.levels:
            parts.append(f"iterations={_iterations_text(self.levels)}")
        return " ".join(parts)


def make_window(
    ctas: str | None = None, warpgroups: str | None = None, iterations: str | None = None
) -> ProfileWindow | None:
    """Returns the window of some texts ("0-3,8", "0,2", "10:20" or, for nested loops, "2:3,10:20"); None if all are.

    Raises:
      ParamsError: a text has another form.
    """
    if ctas is warpgroups is iterations is None:
        return None
    return ProfileWindow(
        None if ctas is None else parse_numbers("ctas", ctas),
        None if warpgroups is None else parse_numbers("warpgroups", warpgroups),
        None if iterations is None else parse_iterations(iterations),
    )


def parse_window(text: str) -> ProfileWindow:
    """Reads `ctas=0-3,8 warpgroups=0,2 iterations=10:20`, any of the three.

    Raises:
      ParamsError: the text has another form.
    """
    parts: dict[str, str] = {}
    for part in text.split():
        name, equals, value = part.partition("=")
        if not equals or name not in ("ctas", "warpgroups", "iterations") or name in parts:
            raise ParamsError(f"{part!r} is no part of a recorded window: expected a text {_FORM}.")
        parts[name] = value
    return make_window(**parts) or EVERYTHING


def parse_numbers(name: str, text: str) -> tuple[int, ...]:
    """Reads `0-3,8`.

    Raises:
      ParamsError: the text has another form.
    """
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ParamsError(f"{text!r} names no {name}: expected numbers and ranges such as 0-3,8.")
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(numbers)


def parse_iterations(text: str) -> tuple[tuple[int, int | None], ...]:
    """Reads `10:20`, `10:` or `:20`; for nested loops one after another, such as `2:3,10:20`.

    Raises:
      ParamsError: the text has another form.
    """
    levels: list[tuple[int, int | None]] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d*):(\d*)", part.strip())
        if match is None:
            raise ParamsError(
                f"{text!r} names no iterations: expected FIRST:END such as 10:20 (10 to 19); "
                "for nested loops outermost first, such as 2:3,10:20."
            )
        levels.append((int(match[1] or 0), int(match[2]) if match[2] else None))
    return tuple(levels)


def _numbers(name: str, numbers: Iterable[int] | None) -> tuple[int, ...] | None:
    if numbers is None:
        return None
    distinct = sorted({int(number) for number in numbers})
    if not distinct or distinct[0] < 0:
        raise ParamsError(f"ProfileWindow: {name} must name at least one, from 0 on, got {numbers!r}.")
    return tuple(distinct)


def _levels(iterations: object) -> tuple[tuple[int, int | None], ...] | None:
    if iterations is None:
        return None
    if isinstance(iterations, (range, slice)) or not isinstance(iterations, Sequence):
        iterations = (iterations,)
    levels = tuple(map(_level, iterations))
    while levels and levels[-1] == (0, None):
        levels = levels[:-1]  # all iterations, as without it
    return levels or None


def _level(level: object) -> tuple[int, int | None]:
    if level is None:
        return 0, None
    start: object
    stop: object
    if isinstance(level, (range, slice)):
        start, stop, step = level.start or 0, level.stop, level.step
    elif isinstance(level, Sequence) and not isinstance(level, str) and len(level) == 2:
        (start, stop), step = level, None
    else:
        raise ParamsError(
            f"ProfileWindow: iterations must be a range such as range(10, 20), or one for each level of nested loops, "
            f"got {level!r}."
        )
    is_range = isinstance(start, int) and start >= 0 and (stop is None or (isinstance(stop, int) and stop > start))
    if not is_range or step not in (None, 1):
        raise ParamsError(
            f"ProfileWindow: iterations must count up by one from at least 0 and hold at least one, got {level!r}."
        )
    return start, stop  # pyright: ignore[reportReturnType]


def contiguous_runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Returns ascending numbers as runs (first, one behind the last)."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs


def _runs_text(numbers: Sequence[int]) -> str:
    return ",".join(str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in contiguous_runs(numbers))


def _iterations_text(levels: Sequence[tuple[int, int | None]]) -> str:
    return ",".join(f"{start or ''}:{'' if stop is None else stop}" for start, stop in levels)


EVERYTHING = ProfileWindow()
