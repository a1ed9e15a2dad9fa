"""Compiler parameters of a kernel: `CompilerParams` and the enumerations it takes. No JAX needed.

The fields and their defaults are those of `jax.experimental.pallas.mosaic_gpu.CompilerParams` (of JAX 0.10.2; of the
installed JAX where that changed), and `delay_release`, which its reference page documents; `profile_window` is this
project's own.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib.metadata
from collections.abc import Sequence
from typing import Any, Literal, get_args

from mgpu.errors import ParamsError
from mgpu.profile_window import EVERYTHING, ProfileWindow

DimensionSemantics = Literal["parallel", "sequential"]


class TraceScope(enum.Enum):
    """What one profile track is: a whole warpgroup, or each of its four warps."""

    WARP = "warp"
    WARPGROUP = "warpgroup"


class LoweringSemantics(enum.Enum):
    """How layouts and transforms come about: given by the kernel (Lane) or inferred by the compiler (Warpgroup)."""

    Lane = 1
    Warpgroup = 2


def default_semantics() -> LoweringSemantics:
    """Returns the default of the JAX that is installed: Lane before 0.11, Warpgroup from then on and without JAX."""
    try:
        release = importlib.metadata.version("jax").split(".")
    except importlib.metadata.PackageNotFoundError:
        return LoweringSemantics.Warpgroup
    return LoweringSemantics.Lane if [int(part) for part in release[:2]] < [0, 11] else LoweringSemantics.Warpgroup


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompilerParams:
    """Compiler options of a kernel.

    Attributes:
      approx_math: allow approximate implementations of functions such as `exp`. Charged as MUFU work either way;
        with it, division and `tanh` take the fast instruction.
      dimension_semantics: for each grid dimension, "parallel" (any order) or "sequential".
      max_concurrent_steps: sequential pipeline stages that are active at once.
      delay_release: steps to wait before an operand's slot is reused; less than `max_concurrent_steps`.
      unsafe_no_auto_barriers: do not synchronise loads and stores of a warpgroup automatically.
      reduction_scratch_bytes: SMEM reserved for reductions across warps.
      profile_space: events that each track can record in one launch; 0 records nothing. The buffer takes 8 bytes an
        event from SMEM if there is room, else GMEM. Events that do not fit are counted, never written elsewhere.
      profile_dir: directory that receives one folder per launch (see `mgpu.profile_dir`).
      profile_trace_scope: a track per warpgroup, or per warp.
      lowering_semantics: whether layouts and transforms must be given (Lane) or are inferred (Warpgroup); by default
        what the installed JAX does: Lane before 0.11, Warpgroup from then on.
      profile_window: the CTAs, warpgroups and iterations to record; by default all.

    Raises:
      ParamsError: a field has the wrong type or range, or `profile_space` and `profile_dir` are not given together.
    """

    approx_math: bool = False
    dimension_semantics: Sequence[DimensionSemantics] | None = None
    max_concurrent_steps: int = 1
    delay_release: int = 0
    unsafe_no_auto_barriers: bool = False
    reduction_scratch_bytes: int = 2048
    profile_space: int = 0
    profile_dir: str = ""
    profile_trace_scope: TraceScope = TraceScope.WARPGROUP
    lowering_semantics: LoweringSemantics = dataclasses.field(default_factory=default_semantics)
    profile_window: ProfileWindow = EVERYTHING

    def __post_init__(self) -> None:
        for name in ("approx_math", "unsafe_no_auto_barriers"):
            self._require(name, bool, "True or False")
        for name, least in (
            ("max_concurrent_steps", 1),
            ("delay_release", 0),
            ("reduction_scratch_bytes", 0),
            ("profile_space", 0),
        ):
            self._require_int(name, least)
        self._require("profile_trace_scope", TraceScope, "TraceScope.WARP or TraceScope.WARPGROUP")
        self._require("profile_window", ProfileWindow, "an mgpu.ProfileWindow")
        self._require("lowering_semantics", LoweringSemantics, "LoweringSemantics.Lane or LoweringSemantics.Warpgroup")
        object.__setattr__(self, "profile_dir", str(self.profile_dir))
        self._check_dimension_semantics()
        if self.delay_release >= self.max_concurrent_steps:
            raise ParamsError(
                f"CompilerParams: delay_release={self.delay_release} must be less than "
                f"max_concurrent_steps={self.max_concurrent_steps}: a slot that is never released cannot be reused. "
                f"Use max_concurrent_steps={self.delay_release + 1} or more."
            )
        if self.profile_space and not self.profile_dir:
            raise ParamsError(
                f"CompilerParams: profile_space={self.profile_space} without profile_dir: the events would have "
                "nowhere to go. Give profile_dir='some/directory' too, or drop profile_space."
            )
        if self.profile_dir and not self.profile_space:
            raise ParamsError(
                f"CompilerParams: profile_dir={self.profile_dir!r} without profile_space: no event would be recorded. "
                "Give profile_space (events per track, 512 is a good start) too, or drop profile_dir."
            )

    def _require(self, name: str, kind: type, expected: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, kind):
            raise ParamsError(f"CompilerParams: {name} must be {expected}, got {value!r}.")

    def _require_int(self, name: str, least: int) -> None:
        value: Any = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ParamsError(f"CompilerParams: {name} must be an integer of at least {least}, got {value!r}.")

    def _check_dimension_semantics(self) -> None:
        if self.dimension_semantics is None:
            return
        allowed = get_args(DimensionSemantics)
        wrong = [value for value in self.dimension_semantics if value not in allowed]
        if wrong:
            raise ParamsError(
                f"CompilerParams: dimension_semantics holds {wrong[0]!r}; each entry is 'parallel' or 'sequential'."
            )
        object.__setattr__(self, "dimension_semantics", tuple(self.dimension_semantics))
