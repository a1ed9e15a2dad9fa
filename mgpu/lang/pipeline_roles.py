"""The two roles of a warp-specialised pipeline: the warpgroup that loads, and those that compute.

With S slots and N steps, of which each releases its slot d steps late: the memory warpgroup loads the first S steps
without waiting (if the slots start empty), waits for the release of step k - S before it loads step k, and in the end
waits for the releases that are still to come (if the pipeline drains).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from mgpu.jax_internals import attributed_to, current_traceback, hide_from_source_lines
from mgpu.lang.barriers import barrier_arrive, barrier_wait, set_max_registers
from mgpu.lang.pipeline_buffers import InputBuffer, OutputBuffer, Outputs
from mgpu.lang.pipeline_grid import Indices, Scalar, first_indices, loop, next_indices
from mgpu.lang.pipeline_operands import Operands

hide_from_source_lines(__file__)


@dataclasses.dataclass(frozen=True)
class Protocol:
    """What both roles must agree on.

    Attributes:
      grid, steps: sizes of the grid, and their product.
      slots: slots of the ring.
      delay: steps that a slot is kept after its own step.
      starts_empty: the slots are free when the pipeline begins; a bool, or a traced one.
      drains: wait for all releases before the pipeline ends; a bool, or a traced one.
      loaded: barrier arrays that the loads complete: one, or one for each input if `waits_in_body`; none if nothing is
        loaded.
      consumed: barrier arrays that the compute warpgroups arrive on: one, or one for each input if `arrives_in_body`.
      waits_in_body: the body waits for the loads by itself.
      arrives_in_body: the body arrives by itself.
    """

    grid: tuple[Scalar, ...]
    steps: Scalar
    slots: int
    delay: int
    starts_empty: Any
    drains: Any
    loaded: tuple[Any, ...]
    consumed: tuple[Any, ...]
    waits_in_body: bool
    arrives_in_body: bool

    def slot(self, step: Any) -> Any:
        """Returns the slot of a step."""
        return lax.rem(step, jnp.int32(self.slots))

    def released_slot(self, step: Any) -> Any:
        """Returns the slot that is released at the end of a step: that of the step `delay` steps before.

        It may be a step of the pipeline before: its slots are the same ones, further back in the ring.
        """
        return self.slot(step + (self.slots - self.delay) if self.delay else step)

    def load_barrier(self, position: int) -> Any:
        """Returns the barrier array that the loads of the copied input at `position` complete."""
        return self.loaded[position if self.waits_in_body else 0]


@dataclasses.dataclass(frozen=True)
class MemoryRole:
    """The warpgroup that loads.

    Attributes:
      protocol: shared with the compute role.
      buffers: the inputs.
      registers: registers per thread that it keeps.
    """

    protocol: Protocol
    buffers: tuple[InputBuffer, ...]
    registers: int

    def run(self) -> None:
        """Loads every step."""
        set_max_registers(self.registers, action="decrease")
        copied = [buffer for buffer in self.buffers if buffer.block.in_smem]
        protocol = self.protocol
        if not copied:
            return
        first = self._free_slots()

        def load_free(step: Any, indices: Indices) -> Indices:
            for position, buffer in enumerate(copied):
                buffer.load(step, indices, protocol.load_barrier(position).at[step])
            return next_indices(indices, protocol.grid)

        def load_released(step: Any, indices: Indices) -> Indices:
            slot = protocol.slot(step)
            for position, buffer in enumerate(copied):
                if position < len(protocol.consumed):
                    barrier_wait(protocol.consumed[position].at[slot])
                buffer.load(slot, indices, protocol.load_barrier(position).at[slot])
            return next_indices(indices, protocol.grid)

        indices = loop(first, load_free, first_indices(protocol.grid))
        # Steps go on being counted, so that step k is the same one to both roles. The first release is slot 0's whether
        # the ring began empty or not: if there is a step behind the first ones, these are none or as many as slots.
        loop(protocol.steps, load_released, indices, first=first)
        self._drain()

    def _free_slots(self) -> Scalar:
        protocol = self.protocol
        slots = protocol.slots if isinstance(protocol.steps, int) else jnp.minimum(protocol.slots, protocol.steps)
        if isinstance(protocol.starts_empty, bool):
            return slots if protocol.starts_empty else 0
        return lax.select(protocol.starts_empty, jnp.asarray(slots, jnp.int32), jnp.int32(0))

    def _drain(self) -> None:
        protocol = self.protocol
        if isinstance(protocol.steps, int):
            begun: Scalar = min(protocol.slots, protocol.steps)
            pending: Scalar = max(begun - protocol.delay, 0)
        else:
            begun = jnp.minimum(protocol.slots, protocol.steps)
            pending = jnp.maximum(begun - protocol.delay, 0)
        released = protocol.steps - begun

        def wait(step: Any, _: None) -> None:
            for consumed in protocol.consumed:
                barrier_wait(consumed.at[protocol.slot(step)])

        def drain() -> None:
            loop(released + pending, wait, None, first=released)

        if isinstance(protocol.drains, bool):
            if protocol.drains:
                drain()
        else:
            pl.when(protocol.drains)(drain)


@dataclasses.dataclass(frozen=True)
class ComputeRole:
    """A warpgroup that computes.

    Attributes:
      protocol: shared with the memory role.
      body: the pipeline's body.
      inputs, in_buffers: input operands and their slots.
      outputs, out_buffers: output operands and their slots.
      registers: registers per thread that it takes.
      context: the user's prologue and epilogue, or None.
    """

    protocol: Protocol
    body: Callable[..., Any]
    inputs: Operands
    in_buffers: tuple[InputBuffer, ...]
    outputs: Operands
    out_buffers: tuple[OutputBuffer, ...]
    registers: int
    context: Callable[..., Any] | None

    def run(self) -> None:
        """Computes every step, inside the context if there is one."""
        set_max_registers(self.registers, action="increase")
        if self.context is None:
            self._steps(None)
            return
        traceback = current_traceback()

        def run_steps(init_carry: Any) -> Any:
            with attributed_to(traceback):
                return self._steps(init_carry)

        with attributed_to(None):
            self.context(run_steps)

    def _steps(self, init_carry: Any) -> Any:
        protocol = self.protocol
        outputs = Outputs(self.out_buffers, protocol.slots)

        def step(number: Any, state: Any) -> Any:
            indices, finished, carry = state
            slot = protocol.slot(number)
            for loaded in () if protocol.waits_in_body else protocol.loaded:
                barrier_wait(loaded.at[slot])
            outputs.wait_for_slot()
            out_slots = outputs.slots_of_step(slot, finished)
            carry = self._call_body(number, slot, out_slots, indices, carry)
            self._release(number)
            following = next_indices(indices, protocol.grid)
            finished = outputs.store(out_slots, indices, following, number == protocol.steps - 1, finished)
            return following, finished, carry

        start = first_indices(protocol.grid)
        state = loop(protocol.steps, step, (start, outputs.none_finished(), init_carry))
        outputs.finish(start, None if isinstance(protocol.steps, int) else protocol.steps > 0)
        return state[-1]

    def _release(self, step: Any) -> None:
        protocol = self.protocol
        if protocol.arrives_in_body or not protocol.consumed:
            return
        (consumed,) = protocol.consumed
        slot = protocol.released_slot(step)
        if not protocol.delay:
            barrier_arrive(consumed.at[slot])
            return
        began = step >= protocol.delay
        if isinstance(protocol.starts_empty, bool):
            if not protocol.starts_empty:
                barrier_arrive(consumed.at[slot])
                return
        else:
            began = began | ~protocol.starts_empty
        pl.when(began)(lambda: barrier_arrive(consumed.at[slot]))

    def _call_body(self, step: Any, slot: Any, out_slots: Sequence[Any], indices: Indices, carry: Any) -> Any:
        arguments = self.inputs.arguments([buffer.at(slot, indices) for buffer in self.in_buffers])
        pairs = zip(self.out_buffers, out_slots, strict=True)
        arguments += self.outputs.arguments([buffer.at(out_slot, indices) for buffer, out_slot in pairs])
        protocol = self.protocol
        if protocol.waits_in_body:
            arguments += self.inputs.barrier_arguments([loaded.at[slot] for loaded in protocol.loaded])
        if protocol.arrives_in_body:
            released = protocol.released_slot(step)
            arguments += self.inputs.barrier_arguments([consumed.at[released] for consumed in protocol.consumed])
        with attributed_to(None):
            if self.context is None:
                self.body(indices, *arguments)
                return None
            return self.body(indices, *arguments, carry)
