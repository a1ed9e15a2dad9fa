"""Why a tensor core had nothing in flight: the causes, what each means, and what to read about it."""

from __future__ import annotations

import dataclasses
import enum


class Cause(enum.StrEnum):
    """Why nothing was in flight. Every bubble cycle has exactly one cause."""

    FILL = "fill"
    DATA_NOT_READY = "data not ready"
    SLOT_NOT_FREE = "slot not free"
    DEPENDENCY = "dependency"
    EPILOGUE = "epilogue"
    STORE_WAIT = "store wait"
    SKEW = "warpgroup or cluster skew"
    DRAIN = "drain/CTA switch"
    SCHEDULING = "scheduling"
    RECORDING = "recording"


class Detail(enum.StrEnum):
    """The finer reason inside a cause."""

    NONE = ""
    LATENCY_BOUND = "latency-bound"
    BANDWIDTH_BOUND = "bandwidth-bound"
    ISSUED_LATE = "issued late"
    BACK_PRESSURE = "back-pressure"
    UNKNOWN_LOAD = "load unknown"
    OWN_RESULT = "own result"
    ISSUE = "issue overhead"
    REGISTER_WORK = "register work"
    STORE = "store"
    WARPGROUP = "other warpgroup"
    SYNC = "sync"
    FIRST_DATA = "first data"
    NOT_STARTED = "not started"
    EXITED = "CTA exit and launch"
    TAIL = "tail"
    RAMP = "launch ramp"


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a cause means, what usually helps, and where that is explained."""

    meaning: str
    remedy: str
    source: str


_PIPELINING = (
    "JAX docs, Pallas Mosaic GPU software pipelining: https://docs.jax.dev/en/latest/pallas/gpu/pipelining.html"
)
_REFERENCE = (
    "JAX docs, Writing Mosaic GPU kernels with Pallas: https://docs.jax.dev/en/latest/pallas/gpu/reference.html"
)
_CUTLASS = "CUTLASS docs, Efficient GEMM: https://github.com/NVIDIA/cutlass/blob/main/media/docs/cpp/efficient_gemm.md"
_FLASH_3 = "FlashAttention-3 (ping-pong, softmax under MMA): https://arxiv.org/abs/2407.08608"
_STREAM_K = "Stream-K (wave quantisation): https://arxiv.org/abs/2301.03598"

_READINGS = {
    (Cause.FILL, Detail.NONE): Reading(
        "the CTA had not issued its first MMA: setup and the first tile's way from memory",
        "make CTAs persistent and load the next tile during the epilogue; shorten the prologue",
        _PIPELINING,
    ),
    (Cause.DATA_NOT_READY, Detail.NONE): Reading(
        "the next MMA's operands had not landed; when they were requested is not known",
        "record the loads too (TMA sites), then look again",
        _PIPELINING,
    ),
    (Cause.DATA_NOT_READY, Detail.LATENCY_BOUND): Reading(
        "the load took its normal time but was requested too late to hide it, with a slot at hand",
        "issue loads earlier: a producer warpgroup, or more steps in flight",
        _PIPELINING,
    ),
    (Cause.DATA_NOT_READY, Detail.BANDWIDTH_BOUND): Reading(
        "the load took over 1.5 times the fastest of its size: it queued for TMA, L2 or HBM",
        "move fewer bytes per FLOP: larger tiles, multicast over a cluster, an L2-friendly tile order",
        _CUTLASS,
    ),
    (Cause.DATA_NOT_READY, Detail.ISSUED_LATE): Reading(
        "the slot was free but the producer had not issued the load",
        "take work off the producer; check what it does between loads",
        _REFERENCE,
    ),
    (Cause.SLOT_NOT_FREE, Detail.NONE): Reading(
        "the load was late because its producer waited for an empty slot: back-pressure from the consumers",
        "more stages, or smaller ones if SMEM is full; release slots right after the MMA that read them",
        _PIPELINING,
    ),
    (Cause.DEPENDENCY, Detail.NONE): Reading(
        "the warpgroup waited for its own last MMA, or issued between two groups, with nothing else in flight",
        "keep one group in flight (wait with a delay), or let a second consumer warpgroup fill in",
        _REFERENCE,
    ),
    (Cause.EPILOGUE, Detail.NONE): Reading(
        "register work (softmax, conversion, epilogue) between MMAs, with no other warpgroup's MMA beneath it",
        "overlap it: two consumers in ping-pong, or issue the next MMA before the register work",
        _FLASH_3,
    ),
    (Cause.STORE_WAIT, Detail.NONE): Reading(
        "the warpgroup waited for its stores before it could go on",
        "double-buffer the output and wait only before reuse",
        _PIPELINING,
    ),
    (Cause.SKEW, Detail.NONE): Reading(
        "the warpgroup waited for another warpgroup or CTA of its cluster",
        "check the order barriers and the balance of work between them",
        _REFERENCE,
    ),
    (Cause.DRAIN, Detail.NONE): Reading(
        "a CTA had issued its last MMA and the next one had not started on the SM",
        "persistent CTAs, or two CTAs per SM, so that one's epilogue runs under the other's MMAs",
        _CUTLASS,
    ),
    (Cause.SCHEDULING, Detail.NONE): Reading(
        "the SM had no CTA to run",
        "choose tiles so that the last wave is full, or split work evenly over persistent CTAs",
        _STREAM_K,
    ),
    (Cause.RECORDING, Detail.NONE): Reading(
        "the warpgroup stored profiling events: the profiler's own cost",
        "ignore it, or record fewer sites",
        _REFERENCE,
    ),
}


def recommended_reading(cause: Cause, detail: Detail = Detail.NONE) -> Reading:
    """Returns what a cause means and what to do about it, as precisely as the detail allows."""
    return _READINGS.get((cause, detail)) or _READINGS[cause, Detail.NONE]
