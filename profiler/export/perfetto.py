"""Writes a Trace as a Perfetto trace file, to be opened in ui.perfetto.dev or any Perfetto UI.

One SM cycle is one ns of the file, so that the time axis reads as cycles. Track descriptors and interned strings are
built with the `perfetto` package; the events, which may be millions, by `profiler.export.track_events`.
"""

from __future__ import annotations

import dataclasses
import gzip
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from mgpu.errors import CaptureError, ParamsError
from profiler.event_tables import SiteColumns
from profiler.export import batches
from profiler.export.interning import Interner
from profiler.export.layout import Layout, build_layout
from profiler.export.track_events import SEQUENCE_ID, EventBatch, SequenceFlags, encode_batch
from profiler.trace import Trace

MAX_SLICES = 3_000_000  # the UI needs about 9 s per million slices to load (measured with v52 on two cores)
_MAX_THREADS = 4


@dataclasses.dataclass(frozen=True)
class ExportCounts:
    """What an export wrote, exactly.

    Attributes:
      slices, instants: rows of Perfetto's slice table with and without a duration of their own.
      flows: arrows. counters: counter values. tracks: track descriptors.
      sms, sms_total: SMs in the file, and in the trace.
    """

    slices: int
    instants: int
    flows: int
    counters: int
    tracks: int
    sms: int
    sms_total: int

    def to_text(self) -> str:
        """Returns the counts in a line."""
        line = (
            f"{self.slices + self.instants:,} slices ({self.instants:,} of them instants), {self.flows:,} flows, "
            f"{self.counters:,} counter values on {self.tracks:,} tracks"
        )
        if self.sms < self.sms_total:
            line += f"; the first {self.sms} of {self.sms_total} SMs (choose others with sms=, or raise max_slices=)"
        return line


def export_perfetto(
    trace: Trace, path: str | Path, *, sms: Sequence[int] | None = None, max_slices: int = MAX_SLICES
) -> ExportCounts:
    """Writes `trace` to `path` (`.pftrace`, or `.pftrace.gz`) and returns what was written.

    Args:
      sms: SM numbers to write. Default: all, or as many of the first ones as stay within `max_slices`.

    Raises:
      ParamsError: `sms` names an SM that did not run anything.
      CaptureError: the file cannot be written. An earlier file of that name is left as it was.
    """
    chosen, total = _choose_sms(trace, sms, max_slices)
    layout = build_layout(trace, chosen, _description(trace, len(chosen), total))
    interner = Interner(trace.header.sites)
    sites = SiteColumns.of(trace.header)
    units = batches.async_rows(trace, layout)
    instants = batches.instant_rows(trace, layout)
    arrows = batches.find_arrows(trace, units["async_span"].to_numpy(), instants["instant"].to_numpy(), layout)
    slices = [
        batches.slice_batch(trace, layout, sites, interner),
        batches.lost_batch(trace, layout, interner),
        batches.async_batch(units, arrows, interner),
    ]
    points = [
        batches.instant_batch(instants, layout, arrows, sites, interner),
        batches.release_batch(arrows, interner),
    ]
    counters = batches.counter_batch(trace, layout)
    _write(Path(path), _file_parts(trace, layout, interner, [*slices, *points, counters], len(chosen), total))
    return ExportCounts(
        slices=sum(len(batch) for batch in slices) // 2 + 1,  # one for the kernel
        instants=sum(len(batch) for batch in points),
        flows=arrows.edges.height,
        counters=len(counters),
        tracks=len(layout.packets),
        sms=len(chosen),
        sms_total=total,
    )


def _choose_sms(trace: Trace, sms: Sequence[int] | None, max_slices: int) -> tuple[list[int], int]:
    """Returns the SMs to write and how many there are."""
    used = sorted({*trace.tracks["sm"].to_list(), *trace.async_spans["sm"].to_list()})
    if sms is not None:
        unknown = sorted(set(sms) - set(used))
        if unknown:
            raise ParamsError(f"export: SM {unknown[0]} ran nothing in this launch; SMs {used[:1]}..{used[-1:]} did.")
        return sorted(set(sms)), len(used)
    of_spans = trace.tracks["sm"].gather(trace.spans["track"])
    counts = pl.concat([of_spans, trace.async_spans["sm"]]).value_counts().sort("sm")
    total = dict(zip(counts["sm"].to_list(), np.cumsum(counts["count"].to_numpy()).tolist(), strict=True))
    chosen = [sm for sm in used if total.get(sm, 0) <= max_slices]
    return chosen or used[:1], len(used)


def _description(trace: Trace, num_sms: int, total: int) -> str:
    header = trace.header
    lines = [
        f"1 ns here is 1 SM cycle. The SM clock ran at {header.clock_hz / 1e6:.0f} MHz "
        f"({trace.to_ns(1):.4f} ns per cycle).",
        f"Timeline {header.provenance} on {header.device}; recording an event cost {header.record_cycles} cycles.",
    ]
    if trace.alignment_residual_cycles:
        lines.append(f"Times of different SMs may be off by {trace.alignment_residual_cycles} cycles.")
    if trace.events_dropped:
        lines.append(
            f"{trace.events_dropped} of {trace.events_kept + trace.events_dropped} events did not fit: "
            f"profile_space={trace.sufficient_profile_space} would have kept all."
        )
    if num_sms < total:
        lines.append(f"This file holds {num_sms} of {total} SMs.")
    return "\n".join(lines)


def _file_parts(
    trace: Trace,
    layout: Layout,
    interner: Interner,
    events: Iterable[EventBatch],
    num_sms: int,
    total: int,
) -> Iterator[bytes]:
    """Yields the file: interned tables first, but encoded last, when every string has its number."""
    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as pool:
        encoded = [part for batch in events for part in encode_batch(batch, interner, pool)]
    first = TracePacket(
        trusted_packet_sequence_id=SEQUENCE_ID,
        sequence_flags=int(SequenceFlags.CLEARED),
        interned_data=interner.to_message(),
    )
    yield TraceMessage(
        packet=[first, *layout.packets, *_kernel_packets(trace, layout, num_sms, total)]
    ).SerializeToString()
    yield from encoded


def _kernel_packets(trace: Trace, layout: Layout, num_sms: int, total: int) -> list[TracePacket]:
    """Returns begin and end of the one slice that carries everything known about the launch."""
    header = trace.header
    facts: dict[str, str | int] = {
        "device": header.device,
        "provenance": header.provenance,
        "time unit": "1 ns in this file = 1 SM cycle",
        "clock_hz": int(header.clock_hz),
        "duration_ns": round(trace.to_ns(trace.end)),
        "grid": " x ".join(map(str, header.grid)),
        "cluster": " x ".join(map(str, header.cluster)) or "none",
        "warpgroups per CTA": header.num_warpgroups,
        "CTAs per SM": header.ctas_per_sm,
        "SMEM bytes per CTA": header.smem_bytes,
        "profile SMEM bytes per CTA": header.profile_smem_bytes,
        "cycles per recorded event": header.record_cycles,
        "events kept": trace.events_kept,
        "events dropped": trace.events_dropped,
        "sufficient profile_space": trace.sufficient_profile_space,
        "SM alignment residual in cycles": trace.alignment_residual_cycles,
        "SMs in this file": f"{num_sms} of {total}",
        "tool": header.tool,
    }
    begin = TrackEvent(type=TrackEvent.TYPE_SLICE_BEGIN, track_uuid=layout.kernel, name=header.kernel)
    for name, fact in facts.items():
        field = {"int_value": fact} if isinstance(fact, int) else {"string_value": fact}
        begin.debug_annotations.add(name=name, **field)
    end = TrackEvent(type=TrackEvent.TYPE_SLICE_END, track_uuid=layout.kernel)
    return [
        TracePacket(
            timestamp=time,
            trusted_packet_sequence_id=SEQUENCE_ID,
            sequence_flags=int(SequenceFlags.NEEDS),
            track_event=event,
        )
        for time, event in ((0, begin), (trace.end, end))
    ]


def _write(path: Path, parts: Iterable[bytes]) -> None:
    """Writes a file whole or not at all."""
    staging = path.with_name(f".writing-{os.getpid()}-{path.name}")
    try:
        with staging.open("wb") as raw:
            if path.suffix == ".gz":
                # No name and no time in the header: equal traces give equal files.
                with gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as packed:
                    packed.writelines(parts)
            else:
                raw.writelines(parts)
        staging.replace(path)
    except OSError as error:
        raise CaptureError(f"{path}: cannot write the Perfetto trace: {error.strerror or error}.") from error
    finally:
        staging.unlink(missing_ok=True)
