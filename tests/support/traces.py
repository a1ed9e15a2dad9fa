"""Traces written by hand, row by row, for tests of the analyses: no capture, no clock, no pairing."""

from __future__ import annotations

from typing import Any

import polars as pl

from mgpu.capture import CaptureHeader
from mgpu.sites import BarrierInfo, Site, SiteKind
from profiler.trace import SCHEMAS, Trace

FILE = "kernels/hand.py"


class TraceBuilder:
    """Collects tracks, spans, loads, MMAs and arrivals in any order; `build` fills in what follows from them."""

    def __init__(
        self, *, num_sms: int = 1, record_cycles: int = 0, peak: float = 0.0, provenance: str = "simulated"
    ) -> None:
        self.num_sms = num_sms
        self.record_cycles = record_cycles
        self.peak = peak
        self.provenance = provenance
        self.sites: dict[tuple[SiteKind, str, int], Site] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEMAS}
        self.span_barrier: list[str] = []

    def site(self, kind: SiteKind, barrier: str = "", line: int = 0, flops: int = 0) -> int:
        new = Site(len(self.sites), f"{kind} {barrier}".strip(), kind, FILE, line, "hand", barrier, flops=flops)
        return self.sites.setdefault((kind, barrier, line), new).id

    def track(
        self, role: str, begin: int, end: int, *, sm: int = 0, cta: int = 0, known_until: int | None = None
    ) -> int:
        """Adds a warpgroup. `known_until`: its buffer was full there."""
        rows = self.rows["tracks"]
        warpgroup = sum(row["cta"] == cta for row in rows)
        rows.append(
            {
                "track": len(rows), "sm": sm, "cta": cta, "cluster": cta, "warpgroup": warpgroup, "warp": -1,
                "role": role, "name": f"WG{warpgroup} {role}", "begin": begin, "end": end, "kept": 10,
                "dropped": 0 if known_until is None else 7, "last": end if known_until is None else known_until,
            }
        )  # fmt: skip
        return len(rows) - 1

    def span(
        self,
        track: int,
        kind: SiteKind,
        begin: int,
        end: int,
        barrier: str = "",
        slot: int = -1,
        line: int = 0,
        flops: int = 0,
    ) -> None:
        site = self.site(kind, barrier, line, flops)
        self.span_barrier.append(barrier)
        self.rows["spans"].append(
            {
                "span": len(self.rows["spans"]), "track": track, "site": site, "kind": str(kind), "slot": slot,
                "category": str(kind.category), "name": f"{kind} {barrier}".strip(), "begin": begin, "dur": end - begin,
                "closed": True,
            }
        )  # fmt: skip

    def load(
        self, track: int, begin: int, end: int, barrier: str, slot: int = 0, line: int = 0, size_bytes: int = 4096
    ) -> None:
        """Adds a TMA load in flight that completes a phase of `barrier[slot]` when it lands."""
        site = self.site(SiteKind.TMA_LOAD, barrier, line)
        self._async("tma_load", track, site, slot, begin, end, size_bytes, 0)
        self.arrive(end, barrier, slot, track, source="tma_load")

    def mma(self, track: int, begin: int, end: int, line: int = 0, flops: int = 0) -> None:
        """Adds an MMA group in flight."""
        self._async("tensor_core", track, self.site(SiteKind.MMA_ISSUE, "", line), -1, begin, end, 0, flops)

    def arrive(self, time: int, barrier: str, slot: int, track: int, source: str = "", cta: int | None = None) -> None:
        """Adds an arrival that completes a phase of `barrier[slot]`."""
        where = self.rows["tracks"][track]
        owner = where["cta"] if cta is None else cta
        self.rows["arrivals"].append(
            {
                "barrier": barrier, "slot": slot, "sm": where["sm"], "cta": owner, "time": time, "site": -1,
                "completes": True, "source": source or f"WG{where['warpgroup']}", "source_track": track,
                "provenance": "simulated",
            }
        )  # fmt: skip

    def cta(self, cta: int, begin: int, end: int, sm: int = 0) -> None:
        self.rows["ctas"].append({"cta": cta, "cluster": cta, "sm": sm, "begin": begin, "end": end})

    def defect(self, kind: str, message: str, count: int = 1) -> None:
        self.rows["defects"].append({"kind": kind, "track": -1, "count": count, "message": message})

    def build(self) -> Trace:
        self._nest_spans()
        self._count_phases()
        self._match_waits()
        tables = {
            name: pl.DataFrame(self.rows[name], schema=dict(schema), orient="row") for name, schema in SCHEMAS.items()
        }
        return Trace(self._header(), 0, 99, alignment_residual_cycles=0, **tables)

    def _async(self, unit: str, track: int, site: int, slot: int, begin: int, end: int, size: int, flops: int) -> None:
        where = self.rows["tracks"][track]
        self.rows["async_spans"].append(
            {
                "async_span": len(self.rows["async_spans"]), "unit": unit, "sm": where["sm"], "cta": where["cta"],
                "warpgroup": where["warpgroup"], "lane": 0, "site": site, "name": unit, "slot": slot, "begin": begin,
                "dur": end - begin, "bytes": size, "flops": flops, "provenance": "simulated",
            }
        )  # fmt: skip

    def _nest_spans(self) -> None:
        """Encloses a span in the shortest span of its track that contains it."""
        spans = self.rows["spans"]
        for span in spans:
            around = [other for other in spans if _encloses(other, span)]
            span["parent"] = min(around, key=_size)["span"] if around else -1
            span["depth"] = len(around)

    def _count_phases(self) -> None:
        seen: dict[tuple[object, ...], int] = {}
        for i, arrival in enumerate(sorted(self.rows["arrivals"], key=lambda row: row["time"])):
            key = ("arrival", arrival["cta"], arrival["barrier"], arrival["slot"])
            arrival["phase"] = seen.get(key, 0)
            arrival["arrival"] = i
            seen[key] = seen.get(key, 0) + 1
        self.rows["arrivals"].sort(key=lambda row: row["arrival"])
        for span in sorted(self.rows["spans"], key=lambda row: row["begin"]):
            key = (span["track"], span["kind"], self.span_barrier[span["span"]], span["slot"])
            span["phase"] = seen.get(key, 0) if span["slot"] != -1 else -1
            seen[key] = seen.get(key, 0) + 1

    def _match_waits(self) -> None:
        completed = {(row["cta"], row["barrier"], row["slot"], row["phase"]): row for row in self.rows["arrivals"]}
        for span in self.rows["spans"]:
            if span["kind"] != str(SiteKind.BARRIER_WAIT):
                continue
            track = self.rows["tracks"][span["track"]]
            barrier = self.span_barrier[span["span"]]
            arrival = completed.get((track["cta"], barrier, span["slot"], span["phase"]))
            source = str(arrival["source"]) if arrival else ""
            by_track = self.rows["tracks"][arrival["source_track"]] if arrival else {}
            known = {name: track[name] for name in ("sm", "cta", "warpgroup", "role")}
            moved = {name: span[name] for name in ("span", "track", "site", "slot", "phase", "begin", "dur")}
            self.rows["waits"].append(
                known | moved | {
                    "barrier": barrier,
                    "blocked": arrival["time"] > span["begin"] if arrival else span["dur"] > 8,
                    "arrival": arrival["arrival"] if arrival else -1,
                    "released_at": arrival["time"] if arrival else -1,
                    "released_by": source,
                    "released_by_role": by_track.get("role", "") if source.startswith("WG") else source,
                }
            )  # fmt: skip

    def _header(self) -> CaptureHeader:
        names = list(dict.fromkeys(site.barrier for site in self.sites.values() if site.barrier))
        return CaptureHeader(
            kernel="hand", launch=1, provenance=self.provenance, device="h100", clock_hz=1e9, num_sms=self.num_sms,
            grid=(1,), grid_names=("i",), cluster=(1,), num_warpgroups=3, trace_scope="warpgroup", capacity=64,
            profile_smem_bytes=1536, record_cycles=self.record_cycles, smem_bytes=65536, ctas_per_sm=1,
            peaks={"tensor_flops": self.peak} if self.peak else {}, sites=tuple(self.sites.values()),
            barriers=tuple(BarrierInfo(i, name, 4, 1) for i, name in enumerate(names)),
        )  # fmt: skip


def _size(span: dict[str, Any]) -> tuple[int, int]:
    """Orders spans from inner to outer; of two equal ones the later is inside."""
    return span["dur"], -span["span"]


def _encloses(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    inside = outer["begin"] <= inner["begin"] and inner["begin"] + inner["dur"] <= outer["begin"] + outer["dur"]
    return inside and outer["track"] == inner["track"] and _size(outer) > _size(inner)
