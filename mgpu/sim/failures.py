"""Failures of a simulated run, told in the kernel author's terms: source lines, warpgroups, barriers."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from mgpu.errors import DeadlockError, MgpuError, SimulationError
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import walk
from mgpu.jax_internals import AbstractRef, SourceLine
from mgpu.sim.compile.compiler import WarpgroupCode
from mgpu.sim.deadlock_hints import GENERAL, Waits, find_hint, find_semaphore_hint, needs_all_ctas
from mgpu.sim.engine import Runaway
from mgpu.sim.mbarrier import BarrierWait, Mbarrier
from mgpu.sim.races import Race
from mgpu.sim.races.cta import THREADS_PER_WARPGROUP
from mgpu.sim.semaphore import SemaphoreWait
from mgpu.sim.warpgroup import Warpgroup
from mgpu.sites import Site, SiteKind

_MOST_LINES, _MOST_HINTS = 8, 3


def explain(
    error: Exception,
    codes: Sequence[WarpgroupCode],
    kernel: str,
    running: Sequence[Warpgroup] = (),
    so_far: str = "",
    races: Sequence[Race] = (),
) -> Exception:
    """Returns the error to raise for an exception of a run: with the user's source line.

    Args:
      error: what generated code raised; or `Runaway`, which tells of the warpgroups that go on.
      codes: code of each warpgroup index.
      kernel: name of the kernel.
      running: warpgroups that have been started and are not done.
      so_far: how far the run came (`how_far`), told of a `Runaway`.
      races: found so far.
    """
    if isinstance(error, Runaway):
        return _explain_runaway(error, codes, kernel, running, so_far + _before(races))
    line = _line_of(error.__traceback__, codes)
    if line is None:
        return error
    if isinstance(error, MgpuError):
        return type(error)(f"{line} kernel {kernel}: {error}{_before(races)}")
    return SimulationError(f"{line} kernel {kernel}: {type(error).__name__}: {error}{_before(races)}")


def _explain_runaway(
    error: Runaway,
    codes: Sequence[WarpgroupCode],
    kernel: str,
    running: Sequence[Warpgroup],
    so_far: str,
) -> SimulationError:
    active = [party for one in running for party in (one, *one.running_warps())]
    places: dict[tuple[str, SourceLine], list[int]] = {}
    for party in active:
        if not party.process.done and not party.process.is_parked:
            places.setdefault((_who(party), _line(party, codes)), []).append(party.cta.index)
    lines = [f"\n  {who} at {line}: {_ctas(ctas)}" for (who, line), ctas in list(places.items())[:_MOST_LINES]]
    what = "\nWhat goes on:" + "".join(lines) if lines else ""
    return SimulationError(f"kernel {kernel}: {error}{so_far and ' ' + so_far}{what}")


def how_far(exited: int, num_ctas: int, events: int) -> str:
    """Returns how many CTAs have exited after so many events, and how many events the whole grid takes at this rate.

    Events of CTAs that have not exited count as if those that have had taken them, so it is rather too many.
    """
    text = f"{exited:,} of {num_ctas:,} CTAs have exited."
    return f"{text} If CTAs are alike, all take up to {events * num_ctas // exited:,} events." if exited else text


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
    signals: Sequence[tuple[str, SourceLine]] = (),
    num_outside: int = 0,
    races: Sequence[Race] = (),
) -> DeadlockError:
    """Returns the error for a run in which nothing happens any more although warpgroups have not finished.

    Args:
      now: cycle of the last event.
      warpgroups: all warpgroups that were started.
      codes: code of each warpgroup index.
      kernel: name of the kernel.
      sites: the program's sites, to tell who could have arrived.
      signals: names of semaphores and the lines that signal them (`find_signals`).
      num_outside: CTAs that have not begun.
      races: found so far.
    """
    stuck = [warpgroup for warpgroup in warpgroups if not warpgroup.process.done]
    parties = [party for warpgroup in stuck for party in (warpgroup, *warpgroup.running_warps())]
    groups: dict[tuple[str, SourceLine, str], list[int]] = {}
    for party in parties:
        reason = str(party.process.waiting_on or "an event that never comes")
        groups.setdefault((_who(party), _line(party, codes), reason), []).append(party.cta.index)
    lines = [
        f"  {who} at {line} waits on {reason}: {_ctas(ctas)}"
        for (who, line, reason), ctas in list(groups.items())[:_MOST_LINES]
    ]
    if len(groups) > _MOST_LINES:
        lines.append(f"  and {len(groups) - _MOST_LINES} more")
    stuck_ctas = {warpgroup.cta.index for warpgroup in stuck}
    finished = sorted({w.index for w in warpgroups if w.process.done and w.cta.index in stuck_ctas})
    if finished:
        lines.append(f"  warpgroup {', '.join(map(str, finished))} of these CTAs has already finished")
    arrivals, hints = _possible_arrivals(parties, warpgroups, codes, sites)
    lines += arrivals
    lines += _possible_signals(parties, signals)
    hints += _semaphore_hints(parties)
    if num_outside:
        lines.append(f"  {num_outside:,} CTAs have not begun: an SM takes one when another exits")
        if any(_needs_others(party) for party in parties):
            hints = [needs_all_ctas(len(stuck_ctas), num_outside)]
    waiting = "one warpgroup waits" if len(stuck) == 1 else f"{len(stuck)} warpgroups wait"
    return DeadlockError(
        f"kernel {kernel}: deadlock at cycle {now:,}: {waiting} for what nobody will do any more.\n"
        + "\n".join(lines)
        + "\n"
        + ("\n".join(hints) or GENERAL)
        + _before(races)
    )


def _semaphore_hints(parties: Sequence[Warpgroup]) -> list[str]:
    reasons = [party.process.waiting_on for party in parties]
    found = [find_semaphore_hint(each.semaphore, each.value) for each in reasons if isinstance(each, SemaphoreWait)]
    return list(dict.fromkeys(filter(None, found)))[:1]


def _before(races: Sequence[Race]) -> str:
    """Returns what a report of a failure says of the races before it, which may be its cause."""
    if not races:
        return ""
    more = f"\nand {len(races) - 1} more." if len(races) > 1 else ""
    return f"\nBefore that, and perhaps its cause: {races[0]}{more}"


def _needs_others(party: Warpgroup) -> bool:
    """True if a party waits for what a CTA may do that has not begun: a signal of a semaphore that all share."""
    reason = party.process.waiting_on
    return isinstance(reason, SemaphoreWait) and reason.semaphore.is_global


def _possible_arrivals(
    stuck: Sequence[Warpgroup],
    warpgroups: Sequence[Warpgroup],
    codes: Sequence[WarpgroupCode],
    sites: Sequence[Site],
) -> tuple[list[str], list[str]]:
    """Says of each barrier that the first stuck cluster waits on which places arrive on it, and where they are now.

    Returns:
      These lines, and what to look at first.
    """
    ctas = [cta.index for _, cta in sorted(stuck[0].cta.cluster.items())]
    waiting = [(party, party.process.waiting_on) for party in stuck if party.cta.index in ctas]
    is_short = any(isinstance(reason, BarrierWait) and reason.barrier.tx_bytes for _, reason in waiting)
    here = {
        index: [one for cta in ctas for one in warpgroups if (one.cta.index, one.index) == (cta, index)]
        for index in range(len(codes))
    }
    awaited: dict[str, list[tuple[Warpgroup, Mbarrier]]] = {}
    for party, reason in waiting:
        if isinstance(reason, BarrierWait):
            awaited.setdefault(reason.barrier.label.partition("[")[0], []).append((party, reason.barrier))
    lines, hints = [], []
    for name, waits in awaited.items():
        places = [
            (site, index)
            for site in sites
            if site.barrier == name and site.kind in (SiteKind.BARRIER_ARRIVE, SiteKind.TMA_LOAD)
            for index in range(len(codes))
            if any((line.file, line.line) == (site.file, site.line) for line in codes[index].sources)
        ]
        every = (
            f"{site.kind.value.replace('_', ' ')} at {SourceLine(site.file, site.line, site.function)} "
            f"by warpgroup {index}, which {_states(here[index], codes, ctas)}"
            for site, index in places
        )
        found = list(dict.fromkeys(every))
        lines.append(f"  arrivals on {name} come from: " + ("; ".join(found[:_MOST_LINES]) or "nowhere"))
        finished = [all(one.process.done for one in here[index]) for _, index in places]
        by_copies = all(site.kind is SiteKind.TMA_LOAD for site, _ in places)
        for party, barrier in waits:
            by_waiter = all(index == party.index for _, index in places) and len(ctas) == 1
            if barrier.tx_bytes or not is_short:  # where bytes are missing, all else follows from that
                hints.append(
                    find_hint(barrier, finished, by_copies=by_copies, by_waiter=by_waiter, waits=_waits(party))
                )
    return lines, list(dict.fromkeys(filter(None, hints)))[:_MOST_HINTS]


def _waits(party: Warpgroup) -> Waits:
    """Returns how often a party has waited on each barrier of its CTA; nothing if nobody watches it."""
    races = party.cta.races
    return {} if races is None else races.waits(THREADS_PER_WARPGROUP * party.index + 1 + party.warp)


def _states(found: Sequence[Warpgroup], codes: Sequence[WarpgroupCode], ctas: Sequence[int]) -> str:
    """Says where a warpgroup of each CTA stands; those that have finished may not be among `found`."""
    states = dict.fromkeys(ctas, "has finished")
    for warpgroup in found:
        if not warpgroup.process.done:
            states[warpgroup.cta.index] = f"is at {_line(warpgroup, codes)}"
    if len(set(states.values())) == 1:
        return states[ctas[0]]
    return ", ".join(f"{state} in CTA {cta}" for cta, state in states.items())


def find_signals(program: KernelProgram) -> list[tuple[str, SourceLine]]:
    """Returns the name of the semaphore, and the line, of every signal in a program."""
    found = []
    for step in walk(program):
        if step.equation.primitive.name.endswith("semaphore_signal"):
            names = [step.refs[atom].name for atom in step.equation.invars if _is_ref(atom) and atom in step.refs]
            found += [(name, step.source) for name in names[:1]]
    return found


def _is_ref(atom: Any) -> bool:
    return isinstance(atom.aval, AbstractRef)


def _possible_signals(stuck: Sequence[Warpgroup], signals: Sequence[tuple[str, SourceLine]]) -> list[str]:
    """Says of each semaphore that somebody waits on where it is signalled."""
    reasons = [party.process.waiting_on for party in stuck]
    awaited = {
        reason.semaphore.label.partition("[")[0]: reason.semaphore.is_global
        for reason in reasons
        if isinstance(reason, SemaphoreWait)
    }
    lines = []
    for semaphore, is_global in awaited.items():
        places = dict.fromkeys(str(line) for name, line in signals if name == semaphore)
        lines.append(f"  signals of {semaphore} come from: " + ("; ".join(list(places)[:_MOST_LINES]) or "nowhere"))
        if places and not is_global:
            lines.append(f"  {semaphore} belongs to one CTA; pl.get_global gives a semaphore that all CTAs share")
    return lines


def _who(party: Warpgroup) -> str:
    return f"warpgroup {party.index}" if party.warp < 0 else f"warp {party.warp} of warpgroup {party.index}"


def _line(party: Warpgroup, codes: Sequence[WarpgroupCode]) -> SourceLine:
    return codes[party.index].source_of(party.generator.gi_frame.f_lineno)


def _ctas(ctas: Sequence[Any]) -> str:
    return f"CTA {ctas[0]}" if len(ctas) == 1 else f"{len(ctas)} CTAs, first CTA {ctas[0]}"
