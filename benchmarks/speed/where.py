"""Where a simulation spends its processor time: samples of what the main thread executes, by activity.

A timer of processor time interrupts the program. Python handles that at its next call or turn of a loop; so time inside
NumPy counts for what comes next: a copy `dst[...] = src` for the call behind it. Behind each product stands such a call
while samples are taken.
"""

from __future__ import annotations

import collections
import signal
from collections.abc import Callable
from types import FrameType

from mgpu.sim import simulation
from mgpu.sim.products import Product

INTERVAL_S = 0.001
MIN_SAMPLES = 2000

PRODUCTS = "matrix products (BLAS)"
GENERATED = "the kernel's generated code, with its tile arithmetic"
LANDING = "landing of TMA loads: copies, barriers"
TILES = "rounding, conversion and storing of tiles"
EVENTS = "event queue"
MEMORY = "TMA, L2 and HBM"
UNITS = "issue of asynchronous work, barriers, tensor core, schedulers"
LAUNCH = "CTAs: start, allocation, exit"
CHECKS = "race detection"
RECORDING = "recording and capture"

_BY_FUNCTION = {"multiply_ended": PRODUCTS, "mma_retire": PRODUCTS, "_land": LANDING, "_product_ends": PRODUCTS}
_BY_FILE = {
    "matmul.py": PRODUCTS,
    "products.py": PRODUCTS,
    "engine.py": EVENTS,
    "values.py": TILES,
    "tiles.py": TILES,
    "boxes.py": TILES,
    "tma.py": MEMORY,
    "memory_system.py": MEMORY,
    "l2_blocks.py": MEMORY,
    "in_flight.py": MEMORY,
    "fluid_queue.py": MEMORY,
    "tensor_core.py": UNITS,
    "warpgroup.py": UNITS,
    "mbarrier.py": UNITS,
    "warp_schedulers.py": UNITS,
    "recorder.py": RECORDING,
    "activity.py": RECORDING,
    "capture_writer.py": RECORDING,
}


def sample(run: Callable[[], object]) -> dict[str, float]:
    """Calls `run` until there are samples enough.

    Returns:
      For each activity, its share of the processor time, largest first.
    """
    counts: collections.Counter[str] = collections.Counter()

    def note(_signal: int, frame: FrameType | None) -> None:
        counts[_activity(frame)] += 1

    finish = Product.finish

    def finish_and_note(self: Product) -> None:
        finish(self)
        _product_ends()

    before = signal.signal(signal.SIGPROF, note)
    Product.finish = finish_and_note
    # What another core multiplies takes processor time too, which would count for what the main thread does meanwhile.
    new_multiplier, simulation.new_multiplier = simulation.new_multiplier, lambda: None
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    try:
        while counts.total() < MIN_SAMPLES:
            run()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        Product.finish = finish
        simulation.new_multiplier = new_multiplier
        signal.signal(signal.SIGPROF, before)
    return {activity: count / counts.total() for activity, count in counts.most_common()}


def _product_ends() -> None:
    """Python handles pending signals when a function begins."""


def _activity(frame: FrameType | None) -> str:
    """Returns the activity that the innermost of our frames belongs to."""
    while frame is not None:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        if file.startswith("<mgpu "):
            return GENERATED
        if "/mgpu/sim/races" in file:
            return CHECKS
        if function in _BY_FUNCTION:
            return _BY_FUNCTION[function]
        caller = frame.f_back
        if caller is not None and caller.f_code.co_name == "_land":
            return LANDING
        if "/mgpu/sim/" in file:
            return _BY_FILE.get(file.rpartition("/")[2], LAUNCH)
        frame = caller
    return LAUNCH
