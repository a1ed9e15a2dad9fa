"""`emit_pipeline`: a loop over a grid in one warpgroup that loads blocks ahead and stores results behind.

With S slots, the loads of the first S steps are started before the loop. Each step waits for its slot, runs the body,
starts storing what it finished, and starts the load of the step that comes S later into the slot that the body has let
go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from mgpu.errors import Unsupported
from mgpu.jax_internals import attributed_to, current_source_line, current_traceback, hide_from_source_lines
from mgpu.lang.barriers import Barrier, barrier_wait
from mgpu.lang.pipeline_buffers import InputBuffer, Outputs, check_delays, clip_slots, output_slots, slots_type
from mgpu.lang.pipeline_grid import Indices, Scalar, advance, check_grid, count_steps, first_indices, loop, next_indices
from mgpu.lang.pipeline_operands import Operands, body_names, split_operands
from mgpu.lang.scoped import match_allocations, run_scoped_named

hide_from_source_lines(__file__)

OPERATION = "emit_pipeline"


def emit_pipeline(
    body: Callable[..., Any],
    *,
    grid: tuple[Any, ...],
    in_specs: Any = (),
    out_specs: Any = (),
    max_concurrent_steps: int = 1,
    init_carry: Any = None,
) -> Callable[..., Any]:
    """Makes a function that runs `body` over a grid, copying blocks of GMEM through shared memory around it.

    Blocks that cross the border of their operand are filled with zeros when loaded and clipped when stored. A block
    that several steps in a row write is stored after the last of them.

    Args:
      body: `body(indices, *input_refs, *output_refs)`, and `carry` at the end if there is one; then it returns the
        next carry. `indices` is a tuple of scalars; the refs are in SMEM, shaped like the blocks.
      grid: number of steps along each axis, the last one fastest; integers or scalar arrays.
      in_specs: a `BlockSpec` for each input, or pytrees of them.
      out_specs: a `BlockSpec` for each output, or pytrees of them.
      max_concurrent_steps: slots of each operand: how many steps are loaded or stored at once.
      init_carry: first carry, a pytree of arrays.

    Returns:
      A function of the GMEM refs, inputs before outputs, that runs the pipeline in the calling warpgroup and returns
      the last carry (None without one); see `Pipeline`.

    Raises:
      KernelTypeError: a grid, spec or delay that makes no sense, or refs that do not match the specs (when called).
      Unsupported: a spec with `collective_axes`.
    """
    return Pipeline(body, check_grid(OPERATION, grid, least=1), in_specs, out_specs, max_concurrent_steps, init_carry)


@dataclasses.dataclass(frozen=True, eq=False)
class Pipeline:
    """A pipeline of one warpgroup, to be called with its GMEM refs. The attributes are those of `emit_pipeline`.

    Where a CTA has several warpgroups, what is shared by the CTA must be allocated by all of them together; a pipeline
    that only one of them runs gets its slots from outside:

      allocations = pipeline.get_allocations(x_gmem)
      pl.run_scoped(lambda refs: pl.when(wg == 0)(lambda: pipeline(x_gmem, allocations=refs)), allocations,
                    collective_axes="wg")
    """

    body: Callable[..., Any]
    grid: tuple[Scalar, ...]
    in_specs: Any
    out_specs: Any
    max_concurrent_steps: int
    init_carry: Any

    def __call__(self, *gmem_refs: Any, allocations: Any = None) -> Any:
        """Runs the pipeline and returns the last carry.

        Args:
          *gmem_refs: inputs, then outputs.
          allocations: refs for what `get_allocations` returns; allocated here if not given.
        """
        run = self._prepare(gmem_refs)
        if isinstance(run.steps, int) and run.steps == 0:
            return self.init_carry
        with attributed_to(current_traceback()):
            return run.allocate_and_run() if allocations is None else run.run_with(allocations)

    def get_allocations(self, *gmem_refs: Any) -> dict[str, Any]:
        """Returns the types of the slots and barriers, for `pl.run_scoped`.

        Args:
          *gmem_refs: inputs, then outputs.
        """
        names_and_types = self._prepare(gmem_refs).types()
        return {part: [kind for _, kind in entries] for part, entries in names_and_types.items()}

    def _prepare(self, gmem_refs: Sequence[Any]) -> _Run:
        inputs, outputs = split_operands(OPERATION, self.in_specs, self.out_specs, gmem_refs, self.grid)
        check_delays(OPERATION, inputs.blocks, self.max_concurrent_steps)
        for block in inputs.blocks + outputs.blocks:
            if block.collective_axes:
                raise Unsupported(
                    f"{current_source_line()} {OPERATION}: {block.name} has collective_axes={block.collective_axes}; "
                    "the "
                    "CTAs of a cluster would have to agree on when a slot is free. Use emit_pipeline_warp_specialized."
                )
        return _Run(self.body, self.grid, inputs, outputs, self.max_concurrent_steps, self.init_carry)


class _Run:
    """One call of a pipeline."""

    def __init__(
        self,
        body: Callable[..., Any],
        grid: tuple[Scalar, ...],
        inputs: Operands,
        outputs: Operands,
        max_concurrent_steps: int,
        init_carry: Any,
    ) -> None:
        self._body = body
        self._grid = grid
        self._inputs = inputs
        self._outputs = outputs
        self._init_carry = init_carry
        self.steps = count_steps(grid)
        self._slots = clip_slots(max_concurrent_steps, self.steps)

    def types(self) -> dict[str, list[tuple[str, Any]]]:
        """Returns names and types of the slots and barriers."""
        inputs, outputs, slots = self._inputs, self._outputs, self._slots
        in_names, out_names = body_names(self._body, inputs, outputs)
        in_types = [slots_type(inputs.blocks[number], slots) for number in inputs.in_smem]
        out_types = [
            slots_type(outputs.blocks[number], output_slots(outputs.motions[number], slots))
            for number in outputs.in_smem
        ]
        loaded = [("loaded", Barrier(num_arrivals=len(in_types), num_barriers=slots))] if in_types else []
        return {
            "inputs": list(zip(in_names, in_types, strict=True)),
            "outputs": list(zip(out_names, out_types, strict=True)),
            "loaded": loaded,
        }

    def allocate_and_run(self) -> Any:
        """Allocates slots and barriers, and runs the loop."""
        types = self.types()
        return run_scoped_named(self._run, [*types["inputs"], *types["outputs"], *types["loaded"]])

    def run_with(self, allocations: Any) -> Any:
        """Runs the loop with slots and barriers from outside."""
        refs = match_allocations(OPERATION, self.types(), allocations)
        return self._run(*refs["inputs"], *refs["outputs"], *refs["loaded"])

    def _run(self, *refs: Any) -> Any:
        num_inputs, num_outputs = len(self._inputs.in_smem), len(self._outputs.in_smem)
        in_buffers = self._inputs.input_buffers(refs[:num_inputs])
        outputs = Outputs(
            self._outputs.output_buffers(refs[num_inputs : num_inputs + num_outputs], self._slots), self._slots
        )
        loaded: Any = refs[-1] if num_inputs else None
        copied = [buffer for buffer in in_buffers if buffer.block.in_smem]
        delays = sorted({buffer.block.delay_release for buffer in copied})
        self._load_first(copied, loaded)

        def step(number: Any, state: Any) -> Any:
            indices, ahead, finished, carry = state
            slot = lax.rem(number, jnp.int32(self._slots))
            if copied:
                barrier_wait(loaded.at[slot])
            outputs.wait_for_slot()
            out_slots = outputs.slots_of_step(slot, finished)
            carry = self._call_body(in_buffers, outputs, slot, out_slots, indices, carry)
            following = next_indices(indices, self._grid)
            finished = outputs.store(out_slots, indices, following, number == self.steps - 1, finished)
            for delay, fetch_indices in zip(delays, ahead, strict=True):
                released = [buffer for buffer in copied if buffer.block.delay_release == delay]
                self._load_ahead(released, loaded, number, delay, fetch_indices)
            return following, tuple(next_indices(each, self._grid) for each in ahead), finished, carry

        start = first_indices(self._grid)
        # The load for step S - d + k is started at step k, for the operands whose slots are released d steps late.
        ahead = tuple(advance(start, self._grid, self._slots - delay) for delay in delays)
        state = loop(self.steps, step, (start, ahead, outputs.none_finished(), self._init_carry))
        outputs.finish(start, None if isinstance(self.steps, int) else self.steps > 0)
        return state[-1]

    def _load_first(self, copied: list[InputBuffer], loaded: Any) -> None:
        if not copied:
            return

        def load(number: Any, indices: Indices) -> Indices:
            for buffer in copied:
                buffer.load(number, indices, loaded.at[number])
            return next_indices(indices, self._grid)

        first = self._slots if isinstance(self.steps, int) else jnp.minimum(self._slots, self.steps)
        loop(first, load, first_indices(self._grid))

    def _load_ahead(self, buffers: list[InputBuffer], loaded: Any, number: Any, delay: int, indices: Indices) -> None:
        fetched = number + (self._slots - delay)
        slot = lax.rem(fetched, jnp.int32(self._slots))

        def load() -> None:
            for buffer in buffers:
                buffer.load(slot, indices, loaded.at[slot])

        pl.when((number >= delay) & (fetched < self.steps))(load)

    def _call_body(
        self, in_buffers: Any, outputs: Outputs, slot: Any, out_slots: list[Any], indices: Indices, carry: Any
    ) -> Any:
        arguments = self._inputs.arguments([buffer.at(slot, indices) for buffer in in_buffers])
        pairs = zip(outputs.buffers, out_slots, strict=True)
        arguments += self._outputs.arguments([buffer.at(out_slot, indices) for buffer, out_slot in pairs])
        with attributed_to(None):
            if self._init_carry is None:
                self._body(indices, *arguments)
                return None
            return self._body(indices, *arguments, carry)
