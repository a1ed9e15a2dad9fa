"""One simulated launch: operands in, outputs and a Capture out. Everything it changes belongs to this run."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgpu.capture import Capture
from mgpu.devices import Device
from mgpu.errors import ResourceError
from mgpu.frontend.program import KernelProgram
from mgpu.lang.transforms import bits_of
from mgpu.params import TraceScope
from mgpu.passes.budget import Budget, plan_budget
from mgpu.passes.checks import check_program
from mgpu.passes.launch_size import check_grid, check_memory
from mgpu.passes.layouts import check_layouts
from mgpu.passes.loaded_data import check_time_only, find_read_operands
from mgpu.passes.sites import SitePlan, plan_sites
from mgpu.sim.activity import Activity
from mgpu.sim.capture_writer import FinishedTrack, make_capture
from mgpu.sim.cluster import Cluster
from mgpu.sim.compile.compiler import WarpgroupCode, compile_warpgroup
from mgpu.sim.compile.context import Options
from mgpu.sim.compile.race_hooks import written_operands
from mgpu.sim.compile.storage_choice import find_byte_exact
from mgpu.sim.compile.warps import has_warp_regions
from mgpu.sim.cta import CtaState
from mgpu.sim.engine import Engine
from mgpu.sim.failures import deadlock, explain, find_signals, how_far
from mgpu.sim.float_environment import subnormal_numbers
from mgpu.sim.interrupts import interrupts
from mgpu.sim.machine import Cta, CtaResources, Machine
from mgpu.sim.multiplier import new_multiplier
from mgpu.sim.options import InterpretGPUParams
from mgpu.sim.process_settings import simulation_settings
from mgpu.sim.progress import HowFar, LongRunWatch, show_progress
from mgpu.sim.races import Race, UnwrittenRead, Watchers
from mgpu.sim.races.shadow import Boxes
from mgpu.sim.recorder import Recorder
from mgpu.sim.registers import check_registers
from mgpu.sim.semaphore import Semaphore
from mgpu.sim.values import carrier_dtype, from_carrier, holds_uninitialised, to_carrier, uninitialised
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
    valued_operands: frozenset[int]  # whose values matter
    byte_exact: frozenset[int] = frozenset()
    detect_races: bool = False
    written_operands: frozenset[int] = frozenset()
    has_warps: bool = False  # whether warps leave their warpgroup
    accessed_boxes: Boxes = dataclasses.field(default_factory=dict)  # found out by launches, for those after them

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
    check_grid(program)
    options.check_warpgroups(program.launch.num_threads)
    _check_events(program, options.max_events)
    if not options.numerics:
        check_time_only(program)
    budget = plan_budget(
        program, smem_per_cta_bytes=device.smem_per_cta_bytes, registers_per_sm=device.registers_per_sm
    )
    check_memory(program, budget.profile_bytes, device)
    plan = plan_sites(program)
    record_cycles = None
    if program.params.profile_space:
        record_cycles = device.record_event_cycles if options.record_cycles is None else options.record_cycles
    detect_races = options.detect_races is not False and options.numerics
    written = written_operands(program)
    compile_options = Options(record_cycles, options.numerics, detect_races, written, options.compute_scale_pairs)
    codes = tuple(
        compile_warpgroup(program, plan, device, compile_options, warpgroup)
        for warpgroup in range(program.launch.num_threads)
    )
    at_end = [code.registers_at_end for code in codes]
    check_registers(f"{program.source} kernel {program.name}", budget.registers_per_thread, at_end)
    return PreparedKernel(
        program,
        device,
        num_sms,
        options,
        plan,
        budget,
        record_cycles,
        codes,
        frozenset(range(len(program.in_avals))) if options.numerics else find_read_operands(program),
        find_byte_exact(program),
        detect_races,
        written,
        has_warp_regions(program),
    )


def _check_events(program: KernelProgram, max_events: int) -> None:
    """Checks that a launch can end within its limit: a CTA takes an event to start, and each of its warpgroups one.

    Raises:
      ResourceError: it cannot.
    """
    launch = program.launch
    least = launch.num_ctas * (1 + launch.num_threads)
    if least > max_events:
        raise ResourceError(
            f"{program.source} kernel {program.name}: grid={launch.grid} starts {launch.num_ctas:,} CTAs, which takes "
            f"more than {least:,} simulation events; max_events is {max_events:,}. Simulate a part of the grid (CTAs "
            "beyond some waves run like those before), or raise InterpretGPUParams(max_events=...)."
        )


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a launch gives.

    Attributes:
      outputs: the output arrays, in the program's dtypes.
      cycles: from the first CTA's start to the last one's end.
      events: simulation events that it took.
      capture: recorded events and activity; None if nothing was recorded.
      races: accesses to the same memory that nothing orders, in the order in which they were found.
      unwritten: reads of memory that nobody had written, likewise, if there are such values in the outputs.
      ctas: when and where each CTA ran, an array of `mgpu.capture.CTA_DTYPE`; cycles count from the launch.
      tensor_cycles: cycles in which a tensor core worked, summed over SMs.
      hbm_bytes: moved between HBM and L2, in both directions.
    """

    outputs: list[np.ndarray]
    cycles: int
    events: int
    capture: Capture | None
    ctas: np.ndarray
    races: tuple[Race, ...] = ()
    unwritten: tuple[UnwrittenRead, ...] = ()
    tensor_cycles: int = 0
    hbm_bytes: int = 0


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
    # Overflow and division by zero give infinities and NaNs, as on the device, without a warning.
    with simulation_settings, subnormal_numbers(), np.errstate(all="ignore"):
        return _Run(kernel, consts, inputs).run(launch_number)


class _Run:
    """State of one launch."""

    def __init__(self, kernel: PreparedKernel, consts: Sequence[Any], inputs: Sequence[Any]) -> None:
        program = kernel.program
        self.kernel = kernel
        watch = self._watch = LongRunWatch(
            f"{program.source} kernel {program.name}",
            self._how_far,
            kernel.options.max_events,
            numerics=kernel.options.numerics,
        )
        raise_if_pressed = interrupts.check()

        def check() -> None:
            if raise_if_pressed is not None:
                raise_if_pressed()
            watch()

        self.engine = Engine(kernel.options.seed, kernel.options.max_events, check)
        self.machine = Machine(self.engine, kernel.device, kernel.num_sms)
        self.activity = Activity() if program.params.profile_space else None
        self.consts = [to_carrier(np.asarray(value)) for value in consts]
        self.outputs = [self._new_output(number, aval) for number, aval in enumerate(program.out_avals, len(inputs))]
        self.gmem = [self._operand(number, value) for number, value in enumerate(inputs)] + self.outputs
        for number, output in program.input_output_aliases:
            self.outputs[output][...] = self.gmem[number]
            self.gmem[number] = self.outputs[output]
        for aval in (*program.in_avals, *program.out_avals):
            row_bytes = math.prod(aval.shape[-1:]) * bits_of(aval.dtype) // 8
            self.machine.memory.add_buffer(math.prod(aval.shape[:-1]) * row_bytes, row_bytes)
        if kernel.options.warm_l2:
            # Outputs first: a kernel reads its inputs again and again, so at its end they are the younger.
            for buffer in reversed(range(len(program.in_avals) + len(program.out_avals))):
                self.machine.memory.warm(buffer)
        self._running: dict[int, list[Warpgroup]] = {}  # of CTAs that have not exited
        self._finished: list[FinishedTrack] = []
        # Warps that never leave their warpgroup write what it does: one recorder serves all four tracks.
        scope = program.params.profile_trace_scope
        self._has_warp_tracks = scope is TraceScope.WARP and kernel.has_warps
        self._watchers: Watchers | None = None
        if kernel.detect_races:
            launch, watch_all = program.launch, kernel.options.detect_races is True
            size, warpgroups = launch.cluster_size, kernel.budget.num_warpgroups
            aliased = {output for _, output in program.input_output_aliases}
            self._watchers = Watchers(
                program.name,
                self.engine,
                launch.num_ctas // size,
                size,
                warpgroups,
                has_warps=kernel.has_warps,
                boxes=kernel.accessed_boxes,
                fresh=[array for number, array in enumerate(self.outputs) if number not in aliased],
                watch_all=watch_all,
            )
        self._clusters: dict[int, Cluster] = {}
        self._waiting_ctas: dict[int, list[tuple[Cta, CtaState]]] = {}
        self._global_semaphores: dict[int, list[Semaphore]] = {}
        self._multiplier = new_multiplier() if kernel.options.numerics else None

    def run(self, launch_number: int) -> RunResult:
        kernel, launch = self.kernel, self.kernel.program.launch
        self.machine.launch(launch.num_ctas, launch.cluster_size, kernel.resources, self._start_cta)
        try:
            with show_progress(kernel.program.name, self._how_far):
                self.engine.run()
        except KeyboardInterrupt:
            so_far = self._how_far()
            raise KeyboardInterrupt(
                f"kernel {kernel.program.name}: simulation stopped at cycle {self.engine.now:,}, after "
                f"{so_far.ctas} of {so_far.num_ctas} CTAs and {self.engine.events:,} events, "
                f"about {so_far.fraction:.0%} of the work."
            ) from None
        except Exception as error:
            so_far = how_far(len(self.machine.cta_log), launch.num_ctas, self.engine.events)
            raise explain(
                error, kernel.codes, kernel.program.name, self._unfinished(), so_far, self._races()
            ) from error
        finally:
            self._watch.close()
            if self._multiplier is not None:
                self._multiplier.close()
        if self.engine.unfinished():
            program = kernel.program
            stuck, signals = self._unfinished(), find_signals(program)
            outside = launch.num_ctas - len(self.machine.cta_log) - len(self._running)
            raise deadlock(
                self.engine.now, stuck, kernel.codes, program.name, kernel.plan.sites, signals, outside, self._races()
            )
        ctas = self.machine.cta_table()
        capture = None
        self.machine.memory.finish(self.engine.now)
        traffic = self.machine.memory.counters
        if self.activity is not None:
            per_sm = self.machine.ctas_per_sm(kernel.resources)
            capture = make_capture(kernel, launch_number, per_sm, ctas, self._finished, self.activity, traffic)
        cycles = int(ctas["end"].max() - ctas["begin"].min())
        tensor_cycles = sum(sm.tensor_core.busy_cycles for sm in self.machine.sms)
        hbm_bytes = traffic.hbm_read_bytes + traffic.hbm_write_bytes
        races, unwritten = self._races(), ()
        if self._watchers is not None:
            unwritten = self._watchers.unwritten()
            # A kernel may read more than it uses: only what can be seen in the outputs is told.
            if unwritten and not any(holds_uninitialised(self._watchers.written(each)) for each in self.outputs):
                unwritten = ()
        return RunResult(
            self._results(), cycles, self.engine.events, capture, ctas, races, unwritten, tensor_cycles, hbm_bytes
        )

    def _new_output(self, number: int, aval: Any) -> np.ndarray:
        """Returns the array of GMEM buffer `number`, an output that nobody has written yet."""
        is_exact = number in self.kernel.byte_exact
        if not self.kernel.options.numerics:
            return np.zeros(aval.shape, aval.dtype if is_exact else carrier_dtype(aval.dtype))
        values = uninitialised(tuple(aval.shape), aval.dtype)
        return values.astype(aval.dtype) if is_exact else values

    def _operand(self, number: int, value: Any) -> np.ndarray:
        """Returns the array of GMEM buffer `number`, an input."""
        kernel = self.kernel
        if number not in kernel.valued_operands:
            return np.broadcast_to(np.zeros((), carrier_dtype(value.dtype)), value.shape)  # nobody reads the values
        # An input that the kernel writes is its own copy: the caller's array is not an output.
        array = np.array(value, order="C") if number in kernel.written_operands else np.asarray(value)
        return array if number in kernel.byte_exact else to_carrier(array)

    def _races(self) -> tuple[Race, ...]:
        """Returns the races found so far."""
        return () if self._watchers is None else self._watchers.races()

    def _results(self) -> list[np.ndarray]:
        """Returns the outputs in the program's dtypes."""
        results = []
        for values, aval in zip(self.outputs, self.kernel.program.out_avals, strict=True):
            if values.dtype == aval.dtype:
                results.append(values)
            elif not self.kernel.options.numerics and not values.any():
                results.append(np.zeros(aval.shape, aval.dtype))  # nobody has written there, so there are no pages yet
            else:
                results.append(from_carrier(values, aval.dtype))
        return results

    def _unfinished(self) -> list[Warpgroup]:
        """Returns the warpgroups of the CTAs that have not exited."""
        return [warpgroup for cta in self._running.values() for warpgroup in cta]

    def _start_cta(self, cta: Cta) -> None:
        """Sets up a CTA. The warpgroups of a cluster start when all its CTAs are there, as after a cluster barrier."""
        kernel = self.kernel
        program, budget = kernel.program, kernel.budget
        cluster = self._clusters.get(cta.cluster)
        if cluster is None:
            cluster = self._clusters[cta.cluster] = Cluster(program.launch)
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
            self._global_semaphores,
            self._multiplier,
        )
        if self._watchers is not None:
            state.races, state.global_races = self._watchers.of_cta(cta.index, cta.cluster)
        self._waiting_ctas.setdefault(cta.cluster, []).append((cta, state))
        if len(cluster.ctas) == program.launch.cluster_size:
            del self._clusters[cta.cluster]
            for waiting, its_state in self._waiting_ctas.pop(cta.cluster):
                self._start_warpgroups(waiting, its_state)

    def _start_warpgroups(self, cta: Cta, state: CtaState) -> None:
        engine, registers = self.engine, self.kernel.budget.registers_per_thread
        self._running[cta.index] = warpgroups = []
        for index, code in enumerate(self.kernel.codes):
            warpgroup = Warpgroup(state, index, self._recorder(cta.index, index), registers)
            warpgroup.begin = engine.now
            warpgroup.generator = code.start(warpgroup)
            warpgroup.process = engine.start(warpgroup.generator, f"CTA {cta.index} warpgroup {index}")
            warpgroup.process.on_exit = functools.partial(self._exit_warpgroup, warpgroup, cta)
            warpgroups.append(warpgroup)

    def _recorder(self, cta: int, warpgroup: int) -> Recorder | None:
        program = self.kernel.program
        if self.kernel.record_cycles is None or not program.params.profile_window.records(cta, warpgroup):
            return None
        return Recorder(program.params.profile_space, per_warp=self._has_warp_tracks)

    def _exit_warpgroup(self, warpgroup: Warpgroup, cta: Cta) -> None:
        warpgroup.end = self.engine.now
        state = warpgroup.cta
        state.running -= 1
        if state.running:
            return
        self._finished += [
            FinishedTrack(cta.index, cta.sm.index, one.index, one.recorder, one.begin, one.end)
            for one in self._running.pop(cta.index)
        ]
        if state.races is not None:
            state.races.exit(str(self.kernel.program.source), state.reachable_arrays())
        if self._watchers is not None:
            self._watchers.exited(cta.cluster)
        state.exit()
        cta.exit()

    def _how_far(self) -> HowFar:
        """Returns how far the run is. A CTA's loop is as far as the warpgroup that is farthest behind."""
        done, num_ctas = len(self.machine.cta_log), self.kernel.program.launch.num_ctas
        turns = [[one.turn for one in warpgroups if one.turn[1] > 0] for warpgroups in list(self._running.values())]
        running = sum(min((turn / of for turn, of in each), default=0.0) for each in turns)
        simulated_us = self.engine.now / self.kernel.device.clock_hz * 1e6
        return HowFar(done, num_ctas, min(1.0, (done + running) / num_ctas), simulated_us, self.engine.events)
