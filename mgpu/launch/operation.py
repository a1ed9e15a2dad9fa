"""A simulated kernel as a JAX operation: works eagerly, under `jax.jit`, in loops and on several host devices.

The operation is lowered to a Python callback that receives NumPy arrays. (`jax.pure_callback` would hand over JAX
arrays, whose conversion waits for a runtime thread that another callback may be holding.)
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend import core as jex_core
from jax.interpreters import mlir

from mgpu.errors import CaptureError
from mgpu.frontend.program import KernelProgram
from mgpu.launch.interruption import stopped
from mgpu.launch.race_log import note_races, note_unwritten
from mgpu.profile_dir import check_writable, save_launch
from mgpu.sim.interrupts import interrupts
from mgpu.sim.power import settle_clock
from mgpu.sim.simulation import PreparedKernel, RunResult, simulate


@dataclasses.dataclass(frozen=True, eq=False)
class SimulatedKernel:
    """A prepared kernel and the count of its launches; a static parameter of the operation, compared by identity."""

    prepared: PreparedKernel
    launches: Any = dataclasses.field(default_factory=lambda: itertools.count(1))
    settled: list[PreparedKernel] = dataclasses.field(default_factory=list)
    batch: Callable[[int, tuple[bool, ...]], Callable[[list[Any]], list[Any]]] | None = None

    def __call__(self, *operands: Any) -> list[np.ndarray]:
        """Runs the kernel once on consts and inputs, saves its capture, and returns the outputs.

        Raises:
          SimulationError: the kernel fails.
          CaptureError: the profile directory cannot be written; found before the simulation where possible.
        """
        program: KernelProgram = self.prepared.program
        if program.params.profile_dir:
            try:
                check_writable(program.params.profile_dir)
            except CaptureError as error:
                raise CaptureError(f"{program.source} kernel {program.name}: {error}") from error
        consts, inputs = operands[: program.num_consts], operands[program.num_consts :]
        result = self._simulate(consts, inputs)
        note_races(result.races)
        if not result.races:  # which explain it mostly
            note_unwritten(result.unwritten)
        if result.capture is not None:
            save_launch(program.params.profile_dir, result.capture)
        return result.outputs

    def _simulate(self, consts: Sequence[Any], inputs: Sequence[Any]) -> RunResult:
        """Runs the kernel once; on a power-capped device at the clock that its first launch settles at."""
        number = next(self.launches)
        if self.settled or not self.prepared.device.is_power_capped:
            return simulate((self.settled or [self.prepared])[0], consts, inputs, number)
        settled, result = settle_clock(self.prepared, consts, inputs, number)
        self.settled.append(settled)
        return result


simulate_p = jex_core.Primitive("mgpu_simulate")
simulate_p.multiple_results = True


@simulate_p.def_abstract_eval
def _abstract_eval(*_operands: Any, kernel: SimulatedKernel) -> list[ShapedArray]:
    return list(kernel.prepared.program.out_avals)


@simulate_p.def_impl
def _impl(*operands: Any, kernel: SimulatedKernel) -> list[jax.Array]:
    # No JAX runtime between the caller and the simulation: errors arrive as they were raised.
    # Explicit transfers, which a transfer guard lets through.
    return jax.device_put(kernel(*jax.device_get(operands)))


def _lower(context: Any, *operands: Any, kernel: SimulatedKernel) -> Any:
    def callback(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        try:
            return tuple(kernel(*arrays))
        except KeyboardInterrupt as interrupt:
            how_far = str(interrupt)
        raise stopped(how_far)

    results, _, _ = mlir.emit_python_callback(
        context, callback, None, list(operands), context.avals_in, context.avals_out, has_side_effect=True
    )
    return results


mlir.register_lowering(simulate_p, _lower)


def launch(kernel: SimulatedKernel, operands: list[Any]) -> list[jax.Array]:
    """Runs a kernel on consts and inputs, as part of whatever JAX is doing: eager, or a trace."""
    interrupts.listen()
    return simulate_p.bind(*operands, kernel=kernel)
