"""Records the unmodified kernels of a JAX function: each launch gives a Capture to whoever asked."""

from __future__ import annotations

import dataclasses
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
        self._trees: tuple[Any, Any] | None = None
        self.captures: list[Capture] = []
        """One for each launch, in the order in which the words arrived; XLA may hand them over in another one."""

    def replace(self, equation: Any) -> Callable[..., Sequence[Any]] | None:
        """Returns what launches a kernel equation with recording; None for one that records itself, or is no kernel."""
        if "in_tree" in equation.params and "out_tree" in equation.params:  # JAX's wrapper around each kernel
            self._trees = equation.params["in_tree"], equation.params["out_tree"]
        if not is_kernel_equation(equation) or is_recorded(equation):
            return None

        trees = self._trees

        def launch(*operands: Any) -> Sequence[Any]:
            kernel = instrument(equation, self._capacity, self._trace_scope, self._window, trees)
            results, words = kernel.bind(*operands)
            # A machine without a GPU only lowers kernels: JAX has no callback there, and nothing will run.
            if on_gpu():
                jax.debug.callback(lambda received: self._receive(kernel, received), words)
            return results

        return launch

    def in_launch_order(self) -> list[Capture]:
        """Returns the captures in the order in which the GPU ran them, and numbers the launches of a kernel so."""
        numbers: dict[str, Any] = {}
        found = []
        for capture in sorted(self.captures, key=lambda each: int(each.tracks["ns_begin"].min(initial=0))):
            number = next(numbers.setdefault(capture.header.kernel, itertools.count(1)))
            found.append(dataclasses.replace(capture, header=dataclasses.replace(capture.header, launch=number)))
        return found

    def _receive(self, kernel: InstrumentedKernel, words: Any) -> None:
        number = self._launches.setdefault(kernel.program.name, itertools.count(1))
        self.captures.append(
            read_capture(
                kernel.program, kernel.plan, kernel.record_format, self._device, np.asarray(words), next(number)
            )
        )
