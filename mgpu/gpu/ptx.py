"""The recorder's PTX: what each of its four pieces says, as text for inline assembly.

State lives in PTX registers declared once at kernel scope, so nothing is threaded through the kernel's loops and
branches, and later pieces may name it: `ptxas` reads one function body, in which inline assembly stands verbatim.

    mgpu_on     predicate: this lane writes its track's events
    mgpu_next   where the next event goes (SMEM: a 32-bit address; GMEM: an offset in bytes from mgpu_base)
    mgpu_spill  the place behind the last event: what does not fit goes there, again and again
    mgpu_count  events so far

An event is one predicated 8-byte store, one bump that the spill place clamps, and one count. Nothing outside the
track's own words is ever written, whatever the count. Registers, predicates and special registers: PTX ISA 8.7,
sections 4, 5 and 10.
"""

from __future__ import annotations

import textwrap

from mgpu.capture import EVENT_BYTES

# Words of a track in GMEM before its events; see `mgpu.gpu.capture_reader`.
HEADER_WORDS = 12
HEADER_BYTES = 4 * HEADER_WORDS
_COUNT, _SM, _CLOCK_BEGIN, _CLOCK_END, _NS_BEGIN, _NS_END = 0, 4, 8, 16, 24, 32  # byte offsets in the header
_WARP_LANES = 32


def track_bytes(capacity: int) -> int:
    """Returns the bytes of a track's events in SMEM, the spill place included."""
    return (capacity + 1) * EVENT_BYTES


def gmem_track_bytes(capacity: int) -> int:
    """Returns the bytes of a track in the GMEM output: header, events, spill place."""
    return HEADER_BYTES + track_bytes(capacity)


def declare(capacity: int, *, per_warp: bool, in_smem: bool) -> str:
    """Returns the first piece: declares the registers, finds the track, writes its first anchor.

    Operands: the SMEM buffer's address (32 bit) if `in_smem`, then the address of this CTA's words in GMEM (64 bit).
    """
    gmem = "$1" if in_smem else "$0"
    place = (
        f"""
        mad.lo.u32 mgpu_next, track, {track_bytes(capacity)}, $0;
        add.u32 mgpu_spill, mgpu_next, {capacity * EVENT_BYTES};
        """
        if in_smem
        else f"""
        add.u64 mgpu_base, header, {HEADER_BYTES};
        mov.u32 mgpu_next, 0;
        mov.u32 mgpu_spill, {capacity * EVENT_BYTES};
        """
    )
    base = "" if in_smem else ".reg .b64 mgpu_base;"
    return _text(f"""
    .reg .pred mgpu_on;
    .reg .b32 mgpu_next, mgpu_spill, mgpu_count;
    {base}
    {{
    .reg .b32 track;
    .reg .b64 header, clock, ns;
    {_find_track(capacity, per_warp=per_warp, gmem=gmem, writer="mgpu_on")}
    {place}
    mov.u32 mgpu_count, 0;
    mov.u64 ns, %globaltimer;
    mov.u64 clock, %clock64;
    @mgpu_on st.global.u64 [header+{_CLOCK_BEGIN}], clock;
    @mgpu_on st.global.u64 [header+{_NS_BEGIN}], ns;
    }}
    """)


def event(tag: int, *, in_smem: bool, has_payload: bool) -> str:
    """Returns the piece that records one event.

    Args:
      tag: tag word (see `mgpu.capture`), without the payload if that is known only at run time.
      in_smem: where the events go.
      has_payload: operand $0 is the payload (32 bit).
    """
    store = "@mgpu_on st.shared.v2.b32 [mgpu_next], {tag, clock};"
    address = ""
    if not in_smem:
        address = ".reg .b64 at;\ncvt.u64.u32 at, mgpu_next;\nadd.u64 at, at, mgpu_base;"
        store = "@mgpu_on st.global.v2.b32 [at], {tag, clock};"
    payload = "shl.b32 tag, $0, 16;\nor.b32 tag, tag, " if has_payload else "mov.b32 tag, "
    return _text(f"""
    {{
    .reg .b32 tag, clock;
    {payload}{tag};
    {address}
    mov.u32 clock, %clock;
    {store}
    add.u32 mgpu_next, mgpu_next, {EVENT_BYTES};
    min.u32 mgpu_next, mgpu_next, mgpu_spill;
    add.u32 mgpu_count, mgpu_count, 1;
    }}
    """)


def finish(capacity: int, *, per_warp: bool, in_smem: bool) -> str:
    """Returns the last piece: writes count, SM and last anchor, and copies events from SMEM. Operands as `declare`."""
    gmem = "$1" if in_smem else "$0"
    return _text(f"""
    {{
    .reg .b32 track, sm;
    .reg .b64 header, clock, ns;
    .reg .pred writes;
    mov.u64 clock, %clock64;
    mov.u64 ns, %globaltimer;
    {_find_track(capacity, per_warp=per_warp, gmem=gmem, writer="writes")}
    mov.u32 sm, %smid;
    @writes st.global.u32 [header+{_COUNT}], mgpu_count;
    @writes st.global.u32 [header+{_SM}], sm;
    @writes st.global.u64 [header+{_CLOCK_END}], clock;
    @writes st.global.u64 [header+{_NS_END}], ns;
    {_copy_events(capacity, per_warp=per_warp) if in_smem else ""}
    }}
    """)


def _find_track(capacity: int, *, per_warp: bool, gmem: str, writer: str) -> str:
    """Computes `track`, the address of its `header`, and the predicate of the lane that writes it."""
    shift, lanes = (5, 31) if per_warp else (7, 127)
    return f"""
    mov.u32 track, %tid.x;
    and.b32 track, track, {lanes};
    setp.eq.u32 {writer}, track, 0;
    mov.u32 track, %tid.x;
    shr.u32 track, track, {shift};
    mad.wide.u32 header, track, {gmem_track_bytes(capacity)}, {gmem};
    """


def _copy_events(capacity: int, *, per_warp: bool) -> str:
    """Copies the stored events of a track, 8 bytes a lane, with the warp that wrote them."""
    return f"""
    .reg .b32 lane, events, index, from, tag, clock32;
    .reg .b64 to;
    .reg .pred done;
    bar.warp.sync 0xffffffff;
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
