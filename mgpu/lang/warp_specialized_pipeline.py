"""`emit_pipeline_warp_specialized`: one warpgroup loads blocks ahead, the others compute on them.

For each slot there are two barriers: `loaded`, which the copies complete, and `consumed`, at which every compute
warpgroup arrives when it no longer needs the slot. The memory warpgroup runs ahead by as many steps as there are slots.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.experimental import pallas as pl

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import attributed_to, current_source_line, current_traceback, hide_from_source_lines
from mgpu.lang.barriers import Barrier, ClusterBarrier
from mgpu.lang.pipeline_buffers import check_delays, clip_slots, output_slots, slots_type
from mgpu.lang.pipeline_grid import Scalar, check_grid, count_steps
from mgpu.lang.pipeline_operands import Operands, body_names, split_operands
from mgpu.lang.pipeline_roles import ComputeRole, MemoryRole, Protocol
from mgpu.lang.scoped import match_allocations, run_scoped_named

hide_from_source_lines(__file__)

OPERATION = "emit_pipeline_warp_specialized"


class PipelinePipeline(enum.IntEnum):
    """Where a pipeline stands in a sequence of pipelines that share their slots."""

    START = 0
    STEADY = 1
    STOP = 2


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `emit_pipeline_warp_specialized` was called with; see there."""

    body: Callable[..., Any]
    grid: tuple[Scalar, ...]
    in_specs: Any
    out_specs: Any
    memory_registers: int
    max_concurrent_steps: int
    wg_axis: str
    num_compute_wgs: int
    pipeline_state: Any
    manual_produced_barriers: bool
    manual_consumed_barriers: bool
    compute_context: Callable[..., Any] | None
    memory_thread_idx: int


def emit_pipeline_warp_specialized(
    body: Callable[..., Any],
    *,
    grid: tuple[Any, ...],
    memory_registers: int,
    in_specs: Any = (),
    out_specs: Any = (),
    max_concurrent_steps: int = 2,
    wg_axis: str,
    num_compute_wgs: int,
    pipeline_state: jax.Array | PipelinePipeline | None = None,
    manual_produced_barriers: bool = False,
    manual_consumed_barriers: bool = False,
    compute_context: Callable[..., Any] | None = None,
    memory_thread_idx: int | None = None,
) -> WarpSpecializedPipeline:
    """Makes a pipeline whose loads are started by a warpgroup of their own.

    All warpgroups of the CTA call it. The kernel has `num_compute_wgs + 1` warpgroups.

    Args:
      body: `body(indices, *input_refs, *output_refs, *produced_barriers, *consumed_barriers)`, run by every compute
        warpgroup at every step; the barriers only with `manual_produced_barriers` and `manual_consumed_barriers`. With
        `compute_context`, the carry comes last, and the body returns the next one.
      grid: number of steps along each axis, the last one fastest; integers or scalar arrays.
      memory_registers: registers per thread that the memory warpgroup keeps; the others share the rest.
      in_specs: a `BlockSpec` for each input, or pytrees of them.
      out_specs: a `BlockSpec` for each output, or pytrees of them. Blocks in SMEM need a single compute warpgroup.
      max_concurrent_steps: slots of each operand.
      wg_axis: name of the warpgroup axis.
      num_compute_wgs: warpgroups that compute.
      pipeline_state: place in a sequence of pipelines without bubbles between them: the first is START, the last is
        STOP, all between are STEADY; a scalar array lets a loop decide. Only START begins with empty slots, only STOP
        waits for the last ones. Needs `allocations`, and a number of steps that the slots divide.
      manual_produced_barriers: the body waits for its loads itself, at every step: one barrier for each copied input,
        in the structure of `in_specs`.
      manual_consumed_barriers: the body releases its slots itself, at every step: it arrives on one barrier for each
        copied input, in the structure of `in_specs`. With a `delay_release` of d, the barriers of a step are those of
        the step d before, and the first d steps must not arrive.
      compute_context: `compute_context(pipeline)`, called by the compute warpgroups; `pipeline(carry)` runs the steps
        and returns the last carry. What stands around it is prologue and epilogue.
      memory_thread_idx: index of the memory warpgroup; the last one if not given.

    Returns:
      A function of the GMEM refs, inputs before outputs, and perhaps `allocations=`; see `WarpSpecializedPipeline`.

    Raises:
      KernelTypeError: arguments that make no sense or contradict each other; refs that do not match the specs (when
        called).
    """
    settings = Settings(
        body=body,
        grid=check_grid(OPERATION, grid, least=1),
        in_specs=in_specs,
        out_specs=out_specs,
        memory_registers=memory_registers,
        max_concurrent_steps=max_concurrent_steps,
        wg_axis=wg_axis,
        num_compute_wgs=num_compute_wgs,
        pipeline_state=pipeline_state,
        manual_produced_barriers=manual_produced_barriers,
        manual_consumed_barriers=manual_consumed_barriers,
        compute_context=compute_context,
        memory_thread_idx=num_compute_wgs if memory_thread_idx is None else memory_thread_idx,
    )
    _check_warpgroups(settings)
    return WarpSpecializedPipeline(settings)


class WarpSpecializedPipeline:
    """A pipeline, to be called with its GMEM refs by all warpgroups.

    Example of bubble-free use:
      allocations = pipeline.get_allocations(a_gmem, b_gmem)
      pl.run_scoped(lambda refs: pipeline(a_gmem, b_gmem, allocations=refs), allocations, collective_axes="wg")
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, *gmem_refs: Any, allocations: Any = None) -> None:
        """Runs the pipeline.

        Args:
          *gmem_refs: inputs, then outputs.
          allocations: refs for what `get_allocations` returns; allocated here if not given.
        """
        with attributed_to(current_traceback()):
            self._run(gmem_refs, allocations)

    def _run(self, gmem_refs: Sequence[Any], allocations: Any) -> None:
        settings = self._settings
        inputs, outputs = _operands(settings, gmem_refs)
        names, types = _allocation_types(settings, inputs, outputs)
        if allocations is not None:
            _run(settings, inputs, outputs, match_allocations(OPERATION, types, allocations))
            return
        if settings.pipeline_state is not None:
            raise KernelTypeError(
                f"{current_source_line()} {OPERATION}: pipeline_state needs slots that outlive the call. Pass "
                "allocations=, made by pl.run_scoped from get_allocations(...)."
            )
        flat_names, flat_types = jax.tree.leaves(names), jax.tree.leaves(types)

        def scoped(*refs: Any) -> None:
            _run(settings, inputs, outputs, jax.tree.unflatten(jax.tree.structure(types), refs))

        run_scoped_named(scoped, list(zip(flat_names, flat_types, strict=True)), collective_axes=settings.wg_axis)

    def get_allocations(self, *gmem_refs: Any) -> dict[str, Any]:
        """Returns the types of the slots and barriers, for `pl.run_scoped(..., collective_axes=wg_axis)`.

        Args:
          *gmem_refs: inputs, then outputs, or anything of their shapes and dtypes in GMEM.
        """
        inputs, outputs = _operands(self._settings, gmem_refs)
        return _allocation_types(self._settings, inputs, outputs)[1]


def _operands(settings: Settings, gmem_refs: Sequence[Any]) -> tuple[Operands, Operands]:
    inputs, outputs = split_operands(OPERATION, settings.in_specs, settings.out_specs, gmem_refs, settings.grid)
    check_delays(OPERATION, inputs.blocks, settings.max_concurrent_steps)
    copied = [inputs.blocks[number] for number in inputs.in_smem]
    if len({block.delay_release for block in copied}) > 1:
        raise KernelTypeError(
            f"{current_source_line()} {OPERATION}: the inputs of a step are released together, but their "
            "delay_release is "
            f"{[block.delay_release for block in copied]}. Give all of them the same."
        )
    if outputs.in_smem and settings.num_compute_wgs > 1:
        raise KernelTypeError(
            f"{current_source_line()} {OPERATION}: {outputs.blocks[outputs.in_smem[0]].name} is in SMEM, but "
            f"{settings.num_compute_wgs} compute warpgroups would have to agree on when it is complete. Give the spec "
            "memory_space=mgpu.GMEM and store from the body, or use one compute warpgroup."
        )
    return inputs, outputs


def _allocation_types(settings: Settings, inputs: Operands, outputs: Operands) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns names and types of what the pipeline allocates, as equal dictionaries."""
    slots = clip_slots(settings.max_concurrent_steps, count_steps(settings.grid))
    in_names, out_names = body_names(settings.body, inputs, outputs)
    num_loads = len(inputs.in_smem)
    consumed = _consumed_barrier(settings, inputs, slots)
    one_loaded = [Barrier(num_arrivals=num_loads, num_barriers=slots)] if num_loads else []
    types = {
        "inputs": [slots_type(inputs.blocks[number], slots) for number in inputs.in_smem],
        "outputs": [
            slots_type(outputs.blocks[number], output_slots(outputs.motions[number], slots))
            for number in outputs.in_smem
        ],
        "loaded": [Barrier(num_barriers=slots)] * num_loads if settings.manual_produced_barriers else one_loaded,
        "consumed": [consumed] * (num_loads if settings.manual_consumed_barriers else min(num_loads, 1)),
    }
    names = {
        "inputs": in_names,
        "outputs": out_names,
        "loaded": _barrier_names("loaded", in_names, each=settings.manual_produced_barriers),
        "consumed": _barrier_names("consumed", in_names, each=settings.manual_consumed_barriers),
    }
    return names, types


def _barrier_names(name: str, inputs: Sequence[str], *, each: bool) -> list[str]:
    """Returns the names of the barrier arrays for all copied inputs together, or for each of them."""
    return [f"{name}_{each_input}" for each_input in inputs] if each else [name][: len(inputs)]


def _consumed_barrier(settings: Settings, inputs: Operands, slots: int) -> Barrier:
    """A slot that peers write to by multicast is free when the compute warpgroups of all of them have released it."""
    axes = {axis: None for number in inputs.in_smem for axis in inputs.blocks[number].collective_axes}
    if not axes:
        return Barrier(num_arrivals=settings.num_compute_wgs, num_barriers=slots)
    names: Any = tuple(axes)
    return ClusterBarrier(collective_axes=names, num_arrivals=settings.num_compute_wgs, num_barriers=slots)


def _run(settings: Settings, inputs: Operands, outputs: Operands, refs: dict[str, Any]) -> None:
    steps = count_steps(settings.grid)
    slots = clip_slots(settings.max_concurrent_steps, steps)
    if settings.pipeline_state is not None and isinstance(steps, int) and steps % slots:
        raise KernelTypeError(
            f"{current_source_line()} {OPERATION}: {steps} steps with {slots} slots would leave the next pipeline in "
            "the "
            "middle of the ring. With pipeline_state, max_concurrent_steps must divide the number of steps."
        )
    protocol = Protocol(
        grid=settings.grid,
        steps=steps,
        slots=slots,
        delay=max((inputs.blocks[number].delay_release for number in inputs.in_smem), default=0),
        starts_empty=_is_state(settings.pipeline_state, PipelinePipeline.START),
        drains=_is_state(settings.pipeline_state, PipelinePipeline.STOP),
        loaded=tuple(refs["loaded"]),
        consumed=tuple(refs["consumed"]),
        waits_in_body=settings.manual_produced_barriers,
        arrives_in_body=settings.manual_consumed_barriers,
    )
    in_buffers = inputs.input_buffers(refs["inputs"])
    memory = MemoryRole(protocol, in_buffers, settings.memory_registers)
    compute = ComputeRole(
        protocol,
        settings.body,
        inputs,
        in_buffers,
        outputs,
        outputs.output_buffers(refs["outputs"], slots),
        _compute_registers(settings),
        settings.compute_context,
    )
    is_memory = lax.axis_index(settings.wg_axis) == settings.memory_thread_idx
    pl.when(is_memory)(memory.run)
    pl.when(~is_memory)(compute.run)


def _is_state(state: Any, wanted: PipelinePipeline) -> Any:
    """Returns whether the pipeline is in a state; a pipeline on its own is both first and last."""
    if state is None:
        return wanted in (PipelinePipeline.START, PipelinePipeline.STOP)
    if isinstance(state, int):
        return int(state) == int(wanted)
    return state == int(wanted)


def _compute_registers(settings: Settings) -> int:
    """Returns registers per thread for a compute warpgroup: its share of 64 Ki per SM, a multiple of 8, at most 256."""
    per_warpgroup_thread = 64 * 1024 // 128
    left = (per_warpgroup_thread - settings.memory_registers) // settings.num_compute_wgs
    return min(left // 8 * 8, 256)


def _check_warpgroups(settings: Settings) -> None:
    where = f"{current_source_line()} {OPERATION}:"
    count = settings.num_compute_wgs
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise KernelTypeError(f"{where} num_compute_wgs must be an integer of at least 1, got {count!r}.")
    try:
        warpgroups = lax.axis_size(settings.wg_axis)
    except NameError as error:
        raise KernelTypeError(
            f"{where} the kernel has no axis wg_axis={settings.wg_axis!r}. Give the kernel's thread_name."
        ) from error
    if warpgroups != count + 1:
        raise KernelTypeError(
            f"{where} num_compute_wgs={count} and a memory warpgroup make {count + 1}, but the kernel has "
            f"{warpgroups} along {settings.wg_axis!r}. Launch it with num_threads={count + 1}."
        )
    if not 0 <= settings.memory_thread_idx <= count:
        raise KernelTypeError(
            f"{where} memory_thread_idx={settings.memory_thread_idx} is no warpgroup; the kernel has 0 to {count}."
        )
    state = settings.pipeline_state
    if isinstance(state, int) and int(state) not in list(PipelinePipeline):
        raise KernelTypeError(
            f"{where} pipeline_state must be a PipelinePipeline or a scalar array of its values, got {state!r}."
        )
