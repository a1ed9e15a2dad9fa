"""Failures of a simulated run, told in the kernel author's terms: source lines, warpgroups, barriers."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from mgpu.errors import DeadlockError, MgpuError, SimulationError
from mgpu.jax_internals import SourceLine
from mgpu.sim.compile.compiler import WarpgroupCode
from mgpu.sim.mbarrier import BarrierWait
from mgpu.sim.warpgroup import Warpgroup
from mgpu.sites import Site, SiteKind

_MOST_LINES = 8


def explain(error: Exception, codes: Sequence[WarpgroupCode], kernel: str) -> Exception:
    """Returns the error to raise for an exception that came out of generated code: with the user's source line."""
    line = _line_of(error.__traceback__, codes)
    if line is None:
        return error
    if isinstance(error, MgpuError):
        return type(error)(f"{line} kernel {kernel}: {error}")
    return SimulationError(f"{line} kernel {kernel}: {type(error).__name__}: {error}")


def _line_of(traceback: TracebackType | None, codes: Sequence[WarpgroupCode]) -> SourceLine | None:
    files = {code.file: code for code in codes}
    found = None
    while traceback is not None:
        code = files.get(traceback.tb_frame.f_code.co_filename)
        if code is not None:
            found = code.source_of(traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def deadlock(
    now: int,
    warpgroups: Sequence[Warpgroup],
    codes: Sequence[WarpgroupCode],
    kernel: str,
    sites: Sequence[Site] = (),
) -> DeadlockError:
    """Returns the error for a run in which nothing happens any more although warpgroups have not finished.

    Args:
      now: cycle of the last event.
      warpgroups: all warpgroups that were started.
      codes: code of each warpgroup index.
      kernel: name of the kernel.
      sites: the program's sites, to tell who could have arrived.
    """
    stuck = [warpgroup for warpgroup in warpgroups if not warpgroup.process.done]
    groups: dict[tuple[int, SourceLine, str], list[int]] = {}
    for warpgroup in stuck:
        line = codes[warpgroup.index].source_of(warpgroup.generator.gi_frame.f_lineno)
        reason = str(warpgroup.process.waiting_on or "an event that never comes")
        groups.setdefault((warpgroup.index, line, reason), []).append(warpgroup.cta.index)
    lines = [
        f"  warpgroup {index} at {line} waits on {reason}: {_ctas(ctas)}"
        for (index, line, reason), ctas in list(groups.items())[:_MOST_LINES]
    ]
    if len(groups) > _MOST_LINES:
        lines.append(f"  and {len(groups) - _MOST_LINES} more")
    stuck_ctas = {warpgroup.cta.index for warpgroup in stuck}
    finished = sorted({w.index for w in warpgroups if w.process.done and w.cta.index in stuck_ctas})
    if finished:
        lines.append(f"  warpgroup {', '.join(map(str, finished))} of these CTAs has already finished")
    lines += _possible_arrivals(stuck, warpgroups, codes, sites)
    return DeadlockError(
        f"kernel {kernel}: deadlock at cycle {now:,}: {len(stuck)} warpgroups wait for what nobody will do any more.\n"
        + "\n".join(lines)
        + "\nLook for a missing arrival, a num_arrivals that is too large, or waits and arrivals in another order."
    )


def _possible_arrivals(
    stuck: Sequence[Warpgroup],
    warpgroups: Sequence[Warpgroup],
    codes: Sequence[WarpgroupCode],
    sites: Sequence[Site],
) -> list[str]:
    """Says of each barrier that the first stuck CTA waits on which places arrive on it, and where they are now."""
    cta = stuck[0].cta.index
    here = {warpgroup.index: warpgroup for warpgroup in warpgroups if warpgroup.cta.index == cta and warpgroup.warp < 0}
    reasons = [warpgroup.process.waiting_on for warpgroup in stuck if warpgroup.cta.index == cta]
    awaited = dict.fromkeys(
        reason.barrier.label.partition("[")[0] for reason in reasons if isinstance(reason, BarrierWait)
    )
    lines = []
    for barrier in awaited:
        found = [
            f"{site.kind.value.replace('_', ' ')} at {SourceLine(site.file, site.line, site.function)} "
            f"by warpgroup {index}, {_state(here.get(index), codes[index])}"
            for site in sites
            if site.barrier == barrier and site.kind in (SiteKind.BARRIER_ARRIVE, SiteKind.TMA_LOAD)
            for index in range(len(codes))
            if any((line.file, line.line) == (site.file, site.line) for line in codes[index].sources)
        ]
        lines.append(f"  arrivals on {barrier} come from: " + ("; ".join(found[:_MOST_LINES]) or "nowhere"))
    return lines


def _state(warpgroup: Warpgroup | None, code: WarpgroupCode) -> str:
    if warpgroup is None or warpgroup.process.done:
        return "which has finished"
    return f"which is at {code.source_of(warpgroup.generator.gi_frame.f_lineno)}"


def _ctas(ctas: Sequence[Any]) -> str:
    return f"CTA {ctas[0]}" if len(ctas) == 1 else f"{len(ctas)} CTAs, first CTA {ctas[0]}"
