"""Conditions on a report that scripts and CI check: `time > +2%`, `bubbles > 10%`, `wait:full >= 8%`, `dropped > 0`.

    METRIC  > | >= | < | <=  VALUE

A VALUE with a sign is a change from the baseline launch (`+2%` is relative, `+500` in the metric's unit); without a
sign it is the metric itself.
"""

from __future__ import annotations

import dataclasses
import operator
import re

from mgpu.errors import ParamsError
from profiler.report import Report

_FORM = re.compile(
    r"\s*(?P<metric>[\w:.-]+?)\s*(?P<operator>>=|<=|>|<)\s*(?P<sign>[+-]?)(?P<number>\d+(\.\d*)?)\s*(?P<percent>%?)\s*"
)
_OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
METRICS = {
    "time": "length of the launch in µs",
    "cycles": "length of the launch in SM cycles",
    "busy": "part of the launch in which the tensor cores in use had work",
    "peak": "part of the device's peak rate",
    "bubbles": "tensor-core bubbles, as a part of the launch",
    "dropped": "events that did not fit the buffer",
    "wait:BARRIER": "part of the lifetime of the role that waits there most",
}


@dataclasses.dataclass(frozen=True)
class Condition:
    """A parsed condition.

    Attributes:
      text: as it was written.
      metric: name of the metric.
      comparison: ">", ">=", "<" or "<=".
      value: to compare with; a part (0.02) if it was given in percent.
      is_change: True if `value` is a change from the baseline.
      is_relative: True if that change is a part of the baseline.
    """

    text: str
    metric: str
    comparison: str
    value: float
    is_change: bool
    is_relative: bool

    def holds(self, report: Report, baseline: Report | None = None) -> bool:
        """Returns whether the condition is true of a report.

        Raises:
          ParamsError: it speaks of a change, but there is no baseline; or its metric does not exist.
        """
        actual = measure(report, self.metric)
        if self.is_change:
            if baseline is None:
                raise ParamsError(
                    f"{self.text!r} is about a change, and there is nothing to compare with. "
                    "Use `mgpu compare A B --fail-if ...`, or give a value without a sign."
                )
            before = measure(baseline, self.metric)
            actual -= before
            if self.is_relative:
                actual = actual / before if before else float("inf") * (actual > 0)
        return bool(_OPERATORS[self.comparison](actual, self.value))


def parse_condition(text: str) -> Condition:
    """Reads a condition such as `time > +2%`.

    Raises:
      ParamsError: it has another form, or names no metric.
    """
    match = _FORM.fullmatch(text)
    known = ", ".join(METRICS)
    if not match:
        raise ParamsError(
            f"condition {text!r}: expected METRIC > VALUE, such as 'time > +2%' or 'bubbles > 10%'. Metrics: {known}."
        )
    metric, sign, percent = match["metric"], match["sign"], match["percent"]
    if metric not in METRICS and not metric.startswith("wait:"):
        raise ParamsError(f"condition {text!r}: no metric is called {metric!r}. Metrics: {known}.")
    value = float(match["number"]) * (-1 if sign == "-" else 1) / (100 if percent else 1)
    return Condition(text, metric, match["operator"], value, bool(sign), bool(sign and percent))


def measure(report: Report, metric: str) -> float:
    """Returns the value of a metric; parts are 0 to 1.

    Raises:
      ParamsError: a `wait:BARRIER` names a barrier that nobody waits on.
    """
    if metric.startswith("wait:"):
        return _wait_share(report, metric.removeprefix("wait:"))
    values = {
        "time": report.kernel_us,
        "cycles": float(report.kernel_cycles),
        "busy": report.utilisation.busy_share_of_used_sms,
        "peak": report.utilisation.peak_share,
        "bubbles": report.bubbles.bubble_share,
        "dropped": float(report.trace.events_dropped),
    }
    return values[metric]


def _wait_share(report: Report, barrier: str) -> float:
    role, share = report.categories.waiting_share(barrier)
    if not role:
        names = sorted({*report.categories.waits["barrier"].to_list()} - {""})
        known = ", ".join(names) or "none"
        raise ParamsError(f"wait:{barrier}: nobody waits on a barrier of that name, only on {known}.")
    return share
