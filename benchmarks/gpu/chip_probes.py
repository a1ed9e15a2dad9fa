"""Probes of the whole chip: memory bandwidth, the life of CTAs, the clock under load."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
from benchmarks.gpu.probe import Probe, Read, duration_ns
from benchmarks.gpu.sm_probes import (
    SLOTS,
    TILE,
    multiply_repeatedly,
    multiply_scratch,
    stream_scratch,
    stream_tiles,
)
from mgpu.capture import Capture

TILE_BYTES = 4 * TILE[0] * TILE[1]
PAUSE_NS = 2000
WHOLE_SM_BYTES = 200_000  # SMEM that leaves no room for a second CTA


def _stream(count: int, sms: int, tiles_per_cta: int, **options: Any) -> Any:
    """Every SM loads `count` tiles of its own, `tiles_per_cta` different ones."""

    def body(x: Any, _out: Any, tiles: Any, full: Any) -> None:
        first = lax.axis_index("cta") * tiles_per_cta

        def tile(k: Any) -> Any:
            return x.at[pl.ds((first + lax.rem(jnp.int32(k), tiles_per_cta)) * TILE[0], TILE[0])]

        stream_tiles(count, tile, tiles, full)

    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(TILE, jnp.float32),
        scratch_types=stream_scratch(),
        grid=(sms,),
        grid_names=("cta",),
        name="probe",
        **options,
    )
    return kernel, [np.zeros((sms * tiles_per_cta * TILE[0], TILE[1]), np.float32)]


def stream_hbm(count: int, sms: int, **options: Any) -> Any:
    """Every SM loads tiles that nobody has loaded before."""
    return _stream(count, sms, count, **options)


def stream_l2(count: int, sms: int, **options: Any) -> Any:
    """Every SM loads the same few tiles of its own again and again."""
    return _stream(count, sms, SLOTS, **options)


def two_waves(_count: int, sms: int, **options: Any) -> Any:
    """Twice as many CTAs as fit, each pausing for a while."""

    def body(_x: Any, _out: Any, _room: Any) -> None:
        pl.delay(PAUSE_NS)

    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
        scratch_types=[plgpu.SMEM((WHOLE_SM_BYTES,), jnp.int8)],
        grid=(2 * sms,),
        grid_names=("cta",),
        name="probe",
        **options,
    )
    return kernel, [np.zeros(128, np.float32)]


def load_tensor_cores(count: int, sms: int, **options: Any) -> Any:
    """Two warpgroups on every SM keep its tensor core in use."""

    def body(_x: Any, _out: Any, a: Any, b: Any) -> None:
        multiply_repeatedly(count, 1, a, b)

    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
        scratch_types=multiply_scratch(),
        grid=(sms,),
        grid_names=("cta",),
        num_threads=2,
        thread_name="wg",
        name="probe",
        **options,
    )
    return kernel, [np.zeros(128, np.float32)]


def _bandwidth(few: Capture, many: Capture, steps: int, _event_cycles: float) -> float:
    num_bytes = steps * TILE_BYTES * int(np.prod(many.header.grid))
    return num_bytes / (duration_ns(many) - duration_ns(few)) / 1000


def _waves(capture: Capture) -> list[np.ndarray]:
    """Returns the tracks of each SM that ran two CTAs, in order of time."""
    tracks = np.sort(capture.tracks, order=["sm", "ns_begin"])
    return [tracks[tracks["sm"] == sm] for sm in np.unique(tracks["sm"])]


def _gap(_few: Capture, many: Capture, _steps: int, _event_cycles: float) -> float:
    gaps = [int(t["ns_begin"][1]) - int(t["ns_end"][0]) for t in _waves(many) if len(t) > 1]
    return float(np.median(gaps))


def _dispatch(_few: Capture, many: Capture, _steps: int, _event_cycles: float) -> float:
    entries = [int(tracks["ns_begin"][0]) for tracks in _waves(many)]
    return (max(entries) - min(entries)) / (len(entries) - 1)


def _clock(_few: Capture, many: Capture, _steps: int, _event_cycles: float) -> float:
    tracks = many.tracks
    cycles = (tracks["clock_end"] - tracks["clock_begin"]).astype(np.float64)
    return float(np.median(cycles / (tracks["ns_end"] - tracks["ns_begin"])))


def _probe(
    name: str, unit: str, make: Any, read: Read, expected: Any, numbers: tuple[str, ...], **fields: Any
) -> Probe:
    return Probe(name, unit, make, read, expected, numbers, **fields)


CLOCK = "clock under tensor-core load"

PROBES = [
    _probe(
        "HBM read bandwidth",
        "TB/s",
        stream_hbm,
        _bandwidth,
        lambda device: device.hbm_bandwidth / 1e12,
        ("hbm_bandwidth",),
        counts=(64, 192),
        simulated_counts=(16, 48),
        tolerance=0.05,
    ),
    _probe(
        "L2 read bandwidth, lines of one SM each",
        "TB/s",
        stream_l2,
        _bandwidth,
        lambda device: device.l2_bandwidth / 1e12,
        ("l2_bandwidth",),
        counts=(400, 2000),
        simulated_counts=(32, 96),
        tolerance=0.05,
    ),
    _probe(
        "exit of a CTA to the next one's kernel body",
        "ns",
        two_waves,
        _gap,
        lambda device: device.relaunch_gap_ns,
        ("relaunch_gap_ns",),
        counts=(1, 1),
        simulated_counts=(1, 1),
    ),
    _probe(
        "entries of two CTAs of the first wave",
        "ns",
        two_waves,
        _dispatch,
        lambda device: device.cta_dispatch_ns,
        ("cta_dispatch_ns",),
        counts=(1, 1),
        simulated_counts=(1, 1),
        tolerance=0.35,  # the timer's step is a quarter of what is measured
    ),
    _probe(
        CLOCK,
        "GHz",
        load_tensor_cores,
        _clock,
        lambda device: device.clock_hz / 1e9,
        ("clock_hz",),
        counts=(1, 500_000),
        simulated_counts=(1, 400),
        tolerance=0.01,
    ),
]
