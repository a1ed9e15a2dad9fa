"""The recorder's PTX: what each of its four pieces says, as text for inline assembly.

State lives in PTX registers declared once at kernel scope, so nothing is threaded through the kernel's loops and
branches, and later pieces may name it: `ptxas` reads one function body, in which inline assembly stands verbatim.

    mgpu_on     predicate: this lane writes its track's events
    mgpu_count  events so far
    mgpu_next   where the next event goes; in GMEM only within a run of events
    mgpu_spill  the first of the spill places behind the last event: what does not fit goes there, again and again;
                SMEM: an address, GMEM: a number of events
    mgpu_base   GMEM only: where the first event went

Where only some iterations are recorded (`ProfileWindow.iterations`), each level of loops, from 1 on, has its own:

    mgpu_on1    predicate: this iteration is recorded by this lane; events inside look at it instead of mgpu_on
    mgpu_was1   predicate: the iteration before was recorded, or there was none
    mgpu_turn1  turns of the loop so far, for loops that do not count themselves

An event is one predicated 8-byte store, one bump and one count. A **run** is up to `RUN_EVENTS` events between which
the kernel neither branches nor loops: its bumps and counts are constants that `ptxas` folds into the stores' addresses.
Once in a run, at its end in SMEM and at its begin in GMEM, the place is clamped to the first spill place. There are as
many spill places as a run has events, so nothing outside the track's own words is ever written, whatever the count.
Registers, predicates and special registers: PTX ISA 8.7, sections 4, 5, 9.7 and 10.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from mgpu.capture import EVENT_BYTES
from mgpu.passes.budget import SPILL_EVENTS

# Words of a track in GMEM before its events; see `mgpu.gpu.capture_reader`.
HEADER_WORDS = 12
HEADER_BYTES = 4 * HEADER_WORDS
_COUNT, _SM, _CLOCK_BEGIN, _CLOCK_END, _NS_BEGIN, _NS_END = 0, 4, 8, 16, 24, 32  # byte offsets in the header
_WARP_LANES = 32

RUN_EVENTS = SPILL_EVENTS
"""Events after which a run ends at the latest, and so the spill places of a track."""


def track_bytes(capacity: int) -> int:
    """Returns the bytes of a track's events in SMEM, the spill places included."""
    return (capacity + RUN_EVENTS) * EVENT_BYTES


def gmem_track_bytes(capacity: int) -> int:
    """Returns the bytes of a track in the GMEM output: header, events, spill places."""
    return HEADER_BYTES + track_bytes(capacity)


def declare(
    capacity: int,
    *,
    per_warp: bool,
    in_smem: bool,
    warpgroups: Sequence[int] | None = None,
    has_row: bool = False,
    levels: int = 0,
) -> str:
    """Returns the first piece: declares the registers, finds the track, writes its first anchor.

    Operands: the SMEM buffer's address (32 bit) if `in_smem`, then the address of this CTA's words in GMEM (64 bit),
    then if `has_row` the CTA's number among the recorded ones (32 bit), negative if it is not recorded.

    Args:
      capacity: events that a track can store.
      per_warp: a track is a warp.
      in_smem: where events go.
      warpgroups: the warpgroups that are recorded; None for all. Only they have tracks.
      has_row: some CTAs are not recorded.
      levels: levels of loops of which only some iterations are recorded.
    """
    gmem, row = ("$1", "$2") if in_smem else ("$0", "$1")
    place = (
        f"""
        mad.lo.u32 mgpu_next, track, {track_bytes(capacity)}, $0;
        add.u32 mgpu_spill, mgpu_next, {capacity * EVENT_BYTES};
        """
        if in_smem
        else f"""
        add.u64 mgpu_base, header, {HEADER_BYTES};
        mov.u32 mgpu_spill, {capacity};
        """
    )
    next_event = ".reg .b32 mgpu_next;" if in_smem else ".reg .b64 mgpu_base, mgpu_next;"
    loops = "\n".join(
        f".reg .pred mgpu_in{n}, mgpu_on{n}, mgpu_was{n};\n.reg .b32 mgpu_turn{n};" for n in range(1, levels + 1)
    )
    return _text(f"""
    .reg .pred mgpu_on;
    .reg .b32 mgpu_spill, mgpu_count;
    {next_event}
    {loops}
    {{
    .reg .b32 track;
    .reg .b64 header, clock, ns;
    {_find_track(capacity, per_warp, gmem, "mgpu_on", warpgroups, row if has_row else "")}
    {place}
    mov.u32 mgpu_count, 0;
    mov.u64 ns, %globaltimer;
    mov.u64 clock, %clock64;
    @mgpu_on st.global.u64 [header+{_CLOCK_BEGIN}], clock;
    @mgpu_on st.global.u64 [header+{_NS_BEGIN}], ns;
    }}
    """)


def event(
    tag: int, *, in_smem: bool, has_payload: bool, level: int = 0, is_first: bool = True, is_last: bool = True
) -> str:
    """Returns the piece that records one event.

    Args:
      tag: tag word (see `mgpu.capture`), without the payload if that is known only at run time.
      in_smem: where the events go.
      has_payload: operand $0 is the payload (32 bit).
      level: how many loops of which only some iterations are recorded stand around it.
      is_first: it begins a run.
      is_last: it ends the run; if it does not, another event must, or in SMEM `settle`.
    """
    payload = f"mad.lo.u32 tag, $0, 65536, {tag};" if has_payload else f"mov.b32 tag, {tag};"
    # Only the first lane writes, but all count: they copy the events together at the end.
    guard = f"@mgpu_in{level} " if level else ""
    store = _store(in_smem, f"mgpu_on{level or ''}", guard, is_first=is_first, is_last=is_last)
    return _text(f"""
    {{
    .reg .b32 tag, clock;
    {payload}
    {store}
    }}
    """)


def settle() -> str:
    """Returns the piece that ends a run in SMEM behind its last event."""
    return "min.u32 mgpu_next, mgpu_next, mgpu_spill;"


def enter_loop(level: int) -> str:
    """Returns the piece before a loop of which only some iterations are recorded; it is the `level`-th one, from 1."""
    return _text(f"""
    mov.u32 mgpu_turn{level}, 0;
    setp.eq.u32 mgpu_was{level}, mgpu_turn{level}, 0;
    """)


def iteration(
    level: int, first: int, end: int | None, begin_tag: int, end_tag: int, *, in_smem: bool, has_counter: bool
) -> str:
    """Returns the piece at the start of an iteration: says whether it is recorded, and marks where that changes.

    Args:
      level: as for `enter_loop`.
      first, end: iterations that are recorded, `end` left out; None: to the last.
      begin_tag, end_tag: tag words of begin and end of a stretch that is not recorded.
      in_smem: where the events go.
      has_counter: operand $0 is the iteration's number (32 bit); else turns are counted.
    """
    before_end = f"setp.lt.s32 switch, turn, {end};\nand.pred now, now, switch;" if end is not None else ""
    outer = f"and.pred switch, switch, mgpu_in{level - 1};" if level > 1 else ""
    inside = f"and.pred mgpu_in{level}, now, mgpu_in{level - 1};" if level > 1 else f"mov.pred mgpu_in{level}, now;"
    return _text(f"""
    {{
    .reg .pred now, switch, writes;
    .reg .b32 turn, tag, clock;
    mov.b32 turn, {"$0" if has_counter else f"mgpu_turn{level}"};
    setp.ge.s32 now, turn, {first};
    {before_end}
    xor.pred switch, now, mgpu_was{level};
    {outer}
    mov.pred mgpu_was{level}, now;
    {inside}
    and.pred mgpu_on{level}, mgpu_in{level}, mgpu_on;
    and.pred writes, switch, mgpu_on;
    selp.b32 tag, {end_tag}, {begin_tag}, now;
    {_store(in_smem, "writes", "@switch ")}
    add.u32 mgpu_turn{level}, mgpu_turn{level}, 1;
    }}
    """)


def leave_loop(level: int, end_tag: int, *, in_smem: bool) -> str:
    """Returns the piece behind such a loop: ends a stretch that is not recorded, if one is open."""
    outer = f"and.pred switch, switch, mgpu_in{level - 1};" if level > 1 else ""
    return _text(f"""
    {{
    .reg .pred switch, writes;
    .reg .b32 tag, clock;
    not.pred switch, mgpu_was{level};
    {outer}
    and.pred writes, switch, mgpu_on;
    mov.b32 tag, {end_tag};
    {_store(in_smem, "writes", "@switch ")}
    }}
    """)


def _store(in_smem: bool, writes: str, counts: str, *, is_first: bool = True, is_last: bool = True) -> str:
    """Stores `tag` and the clock for lanes with the predicate `writes`; `counts` guards the bumps and the count."""
    begin = f"""
        .reg .b32 number;
        min.u32 number, mgpu_count, mgpu_spill;
        mad.wide.u32 mgpu_next, number, {EVENT_BYTES}, mgpu_base;
    """
    return f"""
    {begin if is_first and not in_smem else ""}
    mov.u32 clock, %clock;
    @{writes} st.{"shared" if in_smem else "global"}.v2.b32 [mgpu_next], {{tag, clock}};
    {counts}add.{"u32" if in_smem else "u64"} mgpu_next, mgpu_next, {EVENT_BYTES};
    {counts}add.u32 mgpu_count, mgpu_count, 1;
    {settle() if is_last and in_smem else ""}
    """


def finish(
    capacity: int, *, per_warp: bool, in_smem: bool, warpgroups: Sequence[int] | None = None, has_row: bool = False
) -> str:
    """Returns the last piece: writes count, SM and last anchor, and copies events from SMEM.

    Operands and arguments as `declare`.
    """
    gmem, row = ("$1", "$2") if in_smem else ("$0", "$1")
    is_filtered = has_row or warpgroups is not None
    return _text(f"""
    {{
    .reg .b32 track, sm;
    .reg .b64 header, clock, ns;
    .reg .pred writes;
    mov.u64 clock, %clock64;
    mov.u64 ns, %globaltimer;
    {_find_track(capacity, per_warp, gmem, "writes", warpgroups, row if has_row else "")}
    mov.u32 sm, %smid;
    @writes st.global.u32 [header+{_COUNT}], mgpu_count;
    @writes st.global.u32 [header+{_SM}], sm;
    @writes st.global.u64 [header+{_CLOCK_END}], clock;
    @writes st.global.u64 [header+{_NS_END}], ns;
    {_copy_events(capacity, per_warp=per_warp, is_filtered=is_filtered) if in_smem else ""}
    }}
    """)


def _find_track(
    capacity: int, per_warp: bool, gmem: str, writer: str, warpgroups: Sequence[int] | None, row: str
) -> str:
    """Computes `track`, the address of its `header`, and the predicate of the lane that writes it.

    With a filter, `recorded` is the predicate of the warpgroups (and the CTA) that are recorded.
    """
    shift, lanes = (5, 31) if per_warp else (7, 127)
    own = f"""
    mov.u32 track, %tid.x;
    and.b32 track, track, {lanes};
    setp.eq.u32 {writer}, track, 0;
    mov.u32 track, %tid.x;
    shr.u32 track, track, {shift};
    """
    filters = ".reg .pred recorded;" if row or warpgroups is not None else ""
    if warpgroups is not None:
        filters += _number_of_warpgroup(warpgroups, per_warp) + f"\nand.pred {writer}, {writer}, recorded;"
    if row:
        and_row = "and.pred recorded, recorded, there;" if warpgroups is not None else "mov.pred recorded, there;"
        filters += f"""
        .reg .pred there;
        setp.ge.s32 there, {row}, 0;
        {and_row}
        and.pred {writer}, {writer}, there;
        """
    return f"{own}\n{filters}\nmad.wide.u32 header, track, {gmem_track_bytes(capacity)}, {gmem};"


def _number_of_warpgroup(warpgroups: Sequence[int], per_warp: bool) -> str:
    """Turns `track` into its number among the tracks of the recorded warpgroups."""
    found = "\n".join(
        f"setp.eq.u32 recorded, group, {warpgroup};\n@recorded mov.u32 number, {number};"
        for number, warpgroup in enumerate(warpgroups)
    )
    within = "and.b32 track, track, 3;\nshl.b32 group, number, 2;\nadd.u32 track, track, group;"
    return f"""
    .reg .b32 group, number;
    mov.u32 group, %tid.x;
    shr.u32 group, group, 7;
    mov.u32 number, {len(warpgroups)};
    {found}
    setp.lt.u32 recorded, number, {len(warpgroups)};
    {within if per_warp else "mov.u32 track, number;"}
    """


def _copy_events(capacity: int, *, per_warp: bool, is_filtered: bool) -> str:
    """Copies the stored events of a track, 8 bytes a lane, with the warp that wrote them."""
    skip = "@!recorded bra finished;" if is_filtered else ""
    return f"""
    .reg .b32 lane, events, index, from, tag, clock32;
    .reg .b64 to;
    .reg .pred done;
    bar.warp.sync 0xffffffff;
    {skip}
    mov.u32 lane, %tid.x;
    and.b32 lane, lane, {31 if per_warp else 127};
    min.u32 events, mgpu_count, {capacity};
    mov.u32 index, lane;
    setp.ge.u32 done, lane, {_WARP_LANES};
    @done bra finished;
    next_event:
    setp.ge.u32 done, index, events;
    @done bra finished;
    mad.lo.u32 from, track, {track_bytes(capacity)}, $0;
    mad.lo.u32 from, index, {EVENT_BYTES}, from;
    mad.wide.u32 to, index, {EVENT_BYTES}, header;
    ld.shared.v2.b32 {{tag, clock32}}, [from];
    st.global.v2.b32 [to+{HEADER_BYTES}], {{tag, clock32}};
    add.u32 index, index, {_WARP_LANES};
    bra next_event;
    finished:
    """


def _text(source: str) -> str:
    lines = (line.strip() for line in textwrap.dedent(source).splitlines())
    return "\n".join(line for line in lines if line)
