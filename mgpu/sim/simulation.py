"""One simulated launch: operands in, outputs and a Capture out. Everything it changes belongs to this run."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import threadpoolctl

from mgpu.capture import Capture
from mgpu.devices import Device
from mgpu.frontend.program import KernelProgram
from mgpu.lang.transforms import bits_of
from mgpu.params import TraceScope
from mgpu.passes.budget import Budget, plan_budget
from mgpu.passes.checks import check_program
from mgpu.passes.layouts import check_layouts
from mgpu.passes.sites import SitePlan, plan_sites
from mgpu.sim.activity import Activity
from mgpu.sim.capture_writer import make_capture
from mgpu.sim.cluster import Cluster
from mgpu.sim.compile.compiler import WarpgroupCode, compile_warpgroup
from mgpu.sim.compile.context import Options
from mgpu.sim.compile.race_hooks import can_detect_races
from mgpu.sim.compile.storage_choice import find_byte_exact
from mgpu.sim.compile.warps import has_warp_regions
from mgpu.sim.cta import CtaState
from mgpu.sim.engine import Engine
from mgpu.sim.failures import deadlock, explain
from mgpu.sim.machine import Cta, CtaResources, Machine
from mgpu.sim.options import InterpretGPUParams
from mgpu.sim.progress import show_progress
from mgpu.sim.races import WATCHED_CTAS, CtaRaces, Race, RaceLog
from mgpu.sim.recorder import Recorder
from mgpu.sim.semaphore import Semaphore
from mgpu.sim.values import carrier_dtype, from_carrier, to_carrier, uninitialised
from mgpu.sim.warpgroup import Warpgroup


@dataclasses.dataclass(frozen=True, eq=False)
class PreparedKernel:
    """A program made ready for one device: checked, budgeted, compiled. Launch it as often as you like."""

    program: KernelProgram
    device: Device
    num_sms: int
    options: InterpretGPUParams
    plan: SitePlan
    budget: Budget
    record_cycles: int | None
    codes: tuple[WarpgroupCode, ...]
    byte_exact: frozenset[int] = frozenset()
    detect_races: bool = False

    @property
    def resources(self) -> CtaResources:
        """What one CTA takes from its SM."""
        budget = self.budget
        return CtaResources(budget.total_smem_bytes, budget.num_warpgroups, budget.registers_per_thread)


def prepare(program: KernelProgram, device: Device, num_sms: int, options: InterpretGPUParams) -> PreparedKernel:
    """Checks, budgets and compiles a program for a device.

    Raises:
      KernelError: the program is illegal, does not fit, or uses what the simulator does not run.
    """
    check_program(program)
    check_layouts(program)
    options.check_filters(program.launch.num_ctas, program.launch.num_threads)
    budget = plan_budget(
        program, smem_per_cta_bytes=device.smem_per_cta_bytes, registers_per_sm=device.registers_per_sm
    )
    plan = plan_sites(program)
    record_cycles = None
    if program.params.profile_space:
        record_cycles = device.record_event_cycles if options.record_cycles is None else options.record_cycles
    detect_races = options.detect_races is not False and options.numerics and can_detect_races(program)
    compile_options = Options(record_cycles, options.numerics, detect_races)
    codes = tuple(
        compile_warpgroup(program, plan, device, compile_options, warpgroup)
        for warpgroup in range(program.launch.num_threads)
    )
    return PreparedKernel(
        program, device, num_sms, options, plan, budget, record_cycles, codes, find_byte_exact(program), detect_races
    )


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a launch gives.

    Attributes:
      outputs: the output arrays, in the program's dtypes.
      cycles: from the first CTA's start to the last one's end.
      events: simulation events that it took.
      capture: recorded events and activity; None if nothing was recorded.
      races: accesses to shared memory that nothing orders, in the order in which they were found.
      ctas: when and where each CTA ran, an array of `mgpu.capture.CTA_DTYPE`; cycles count from the launch.
    """

    outputs: list[np.ndarray]
    cycles: int
    events: int
    capture: Capture | None
    ctas: np.ndarray
    races: tuple[Race, ...] = ()


def simulate(kernel: PreparedKernel, consts: Sequence[Any], inputs: Sequence[Any], launch_number: int = 1) -> RunResult:
    """Runs a prepared kernel once.

    Args:
      kernel: what to run.
      consts: closed-over arrays of the program.
      inputs: input arrays, of the program's shapes and dtypes.
      launch_number: written into the capture.

    Raises:
      SimulationError: deadlock, access out of bounds, a misused barrier, a loop that never ends.
    """
    # A tile's matmul is too small for several BLAS threads: they spin against each other.
    # Overflow and division by zero give infinities and NaNs, as on the device, without a warning.
    quiet = np.errstate(all="ignore")
    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"), _PausedCollector(), quiet:
        return _Run(kernel, consts, inputs).run(launch_number)


class _PausedCollector:
    """Pauses the cyclic collector: a run makes many objects and few cycles."""

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_enabled:
            gc.enable()


class _Run:
    """State of one launch."""

    def __init__(self, kernel: PreparedKernel, consts: Sequence[Any], inputs: Sequence[Any]) -> None:
        program = kernel.program
        self.kernel = kernel
        self.engine = Engine(kernel.options.seed, kernel.options.max_events)
        self.machine = Machine(self.engine, kernel.device, kernel.num_sms)
        self.activity = Activity() if program.params.profile_space else None
        self.consts = [to_carrier(np.asarray(value)) for value in consts]
        self.outputs = [uninitialised(tuple(aval.shape), aval.dtype) for aval in program.out_avals]
        if not kernel.options.numerics:
            self.outputs = [np.zeros(aval.shape, carrier_dtype(aval.dtype)) for aval in program.out_avals]
        self.outputs = [
            values.astype(aval.dtype) if len(inputs) + number in kernel.byte_exact else values
            for number, (values, aval) in enumerate(zip(self.outputs, program.out_avals, strict=True))
        ]
        self.gmem = [
            np.asarray(value) if number in kernel.byte_exact else to_carrier(np.asarray(value))
            for number, value in enumerate(inputs)
        ] + self.outputs
        for number, output in program.input_output_aliases:
            self.outputs[output][...] = self.gmem[number]
            self.gmem[number] = self.outputs[output]
        for aval in (*program.in_avals, *program.out_avals):
            row_bytes = math.prod(aval.shape[-1:]) * bits_of(aval.dtype) // 8
            self.machine.memory.add_buffer(math.prod(aval.shape[:-1]) * row_bytes, row_bytes)
        if kernel.options.warm_l2:
            for buffer in range(len(program.in_avals) + len(program.out_avals)):
                self.machine.memory.warm(buffer)
        self.warpgroups: list[Warpgroup] = []
        # Warps that never leave their warpgroup write what it does: one recorder serves all four tracks.
        scope = program.params.profile_trace_scope
        self._has_warp_tracks = scope is TraceScope.WARP and has_warp_regions(program)
        self._race_log = RaceLog(program.name)
        self._clusters: dict[int, Cluster] = {}
        self._waiting_ctas: dict[int, list[tuple[Cta, CtaState]]] = {}
        self._semaphores: dict[int, list[Semaphore]] = {}
        self._cta_done: Callable[[], None] | None = None

    def run(self, launch_number: int) -> RunResult:
        kernel, launch = self.kernel, self.kernel.program.launch
        self.machine.launch(launch.num_ctas, launch.cluster_size, kernel.resources, self._start_cta)
        progress = show_progress(kernel.program.name, launch.num_ctas, self.engine, kernel.device.clock_hz)
        try:
            with progress as self._cta_done:
                self.engine.run()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"kernel {kernel.program.name}: simulation stopped at cycle {self.engine.now:,}, after "
                f"{len(self.machine.cta_log)} of {launch.num_ctas} CTAs and {self.engine.events:,} events."
            ) from None
        except Exception as error:
            raise explain(error, kernel.codes, kernel.program.name) from error
        if self.engine.unfinished():
            raise deadlock(self.engine.now, self.warpgroups, kernel.codes, kernel.program.name, kernel.plan.sites)
        ctas = self.machine.cta_table()
        outputs = [
            values if values.dtype == aval.dtype else from_carrier(values, aval.dtype)
            for values, aval in zip(self.outputs, kernel.program.out_avals, strict=True)
        ]
        capture = None
        if self.activity is not None:
            per_sm = self.machine.ctas_per_sm(kernel.resources)
            traffic = self.machine.memory.counters
            capture = make_capture(kernel, launch_number, per_sm, ctas, self.warpgroups, self.activity, traffic)
        cycles = int(ctas["end"].max() - ctas["begin"].min())
        return RunResult(outputs, cycles, self.engine.events, capture, ctas, self._race_log.races())

    def _start_cta(self, cta: Cta) -> None:
        """Sets up a CTA. The warpgroups of a cluster start when all its CTAs are there, as after a cluster barrier."""
        kernel = self.kernel
        program, budget = kernel.program, kernel.budget
        cluster = self._clusters.setdefault(cta.cluster, Cluster(program.launch))
        state = CtaState(
            self.engine,
            kernel.device,
            cta.sm,
            cta.index,
            program.launch.axis_indices(cta.index),
            self.gmem,
            self.consts,
            self.machine.memory,
            budget.num_warpgroups,
            self.activity,
            kernel.plan.barrier_ids,
            cluster,
            cta.rank,
            self._semaphores,
        )
        if kernel.detect_races and (kernel.options.detect_races or cta.index < WATCHED_CTAS):
            state.races = CtaRaces(self._race_log, cta.index, budget.num_warpgroups, self.engine)
        self._waiting_ctas.setdefault(cta.cluster, []).append((cta, state))
        if len(cluster.ctas) == program.launch.cluster_size:
            del self._clusters[cta.cluster]
            for waiting, its_state in self._waiting_ctas.pop(cta.cluster):
                self._start_warpgroups(waiting, its_state)

    def _start_warpgroups(self, cta: Cta, state: CtaState) -> None:
        kernel, budget = self.kernel, self.kernel.budget
        running = [budget.num_warpgroups]
        for index, code in enumerate(kernel.codes):
            recorder = self._recorder(cta.index, index)
            warpgroup = Warpgroup(state, index, recorder, budget.registers_per_thread)
            warpgroup.begin = self.engine.now
            warpgroup.generator = code.start(warpgroup)
            warpgroup.process = self.engine.start(warpgroup.generator, f"CTA {cta.index} warpgroup {index}")
            warpgroup.process.on_exit = functools.partial(self._exit_warpgroup, warpgroup, cta, running)
            self.warpgroups.append(warpgroup)

    def _recorder(self, cta: int, warpgroup: int) -> Recorder | None:
        program = self.kernel.program
        if self.kernel.record_cycles is None or not self.kernel.options.records(cta, warpgroup):
            return None
        return Recorder(self.engine, program.params.profile_space, per_warp=self._has_warp_tracks)

    def _exit_warpgroup(self, warpgroup: Warpgroup, cta: Cta, running: list[int]) -> None:
        warpgroup.end = self.engine.now
        running[0] -= 1
        if running[0] == 0:
            cta.exit()
            if self._cta_done is not None:
                self._cta_done()
