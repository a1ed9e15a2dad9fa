"""Records the unmodified kernels of a JAX function: each launch gives a Capture to whoever asked."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from mgpu.capture import Capture
from mgpu.devices import Device
from mgpu.frontend.from_pallas import is_kernel_equation
from mgpu.gpu.capture_reader import read_capture
from mgpu.gpu.instrument import InstrumentedKernel, instrument, is_recorded
from mgpu.gpu.launch import on_gpu
from mgpu.params import TraceScope
from mgpu.profile_window import EVERYTHING, ProfileWindow


class KernelRecorder:
    """Replaces kernel equations by instrumented ones and keeps their captures.

    Args:
      device: table of the GPU that runs them.
      capacity: events that each track can store.
      trace_scope: a track for each warpgroup, or each warp.
      window: the part of each launch that is recorded.
    """

    def __init__(
        self, device: Device, capacity: int, trace_scope: TraceScope, window: ProfileWindow = EVERYTHING
    ) -> None:
        self._device = device
        self._capacity = capacity
        self._trace_scope = trace_scope
        self._window = window
        self._launches: dict[str, Any] = {}
        self.captures: list[Capture] = []
        """One for each launch, in the order in which the words arrived."""

    def replace(self, equation: Any) -> Callable[..., Sequence[Any]] | None:
        """Returns what launches a kernel equation with recording; None for one that records itself, or is no kernel."""
        if not is_kernel_equation(equation) or is_recorded(equation):
            return None

        def launch(*operands: Any) -> Sequence[Any]:
            kernel = instrument(equation, self._capacity, self._trace_scope, self._window)
            results, words = kernel.bind(*operands)
            # A machine without a GPU only lowers kernels: JAX has no callback there, and nothing will run.
            if on_gpu():
                jax.debug.callback(lambda received: self._receive(kernel, received), words)
            return results

        return launch

    def _receive(self, kernel: InstrumentedKernel, words: Any) -> None:
        number = self._launches.setdefault(kernel.program.name, itertools.count(1))
        self.captures.append(
            read_capture(
                kernel.program, kernel.plan, kernel.record_format, self._device, np.asarray(words), next(number)
            )
        )
