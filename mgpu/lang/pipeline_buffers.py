"""The slots of a pipeline: shared-memory copies of blocks, loaded ahead of the steps that use them and stored behind.

Input slots go round with the steps. An output slot stays the same while its block does, so a block that several steps
in a row work on (the sum of a reduction) is kept, and is stored once, after the last of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import current_source_line, hide_from_source_lines
from mgpu.lang.block_spec import Block
from mgpu.lang.copies import (
    commit_smem,
    commit_smem_to_gmem_group,
    copy_gmem_to_smem,
    copy_smem_to_gmem,
    wait_smem_to_gmem,
)
from mgpu.lang.memory import SMEM
from mgpu.lang.pipeline_grid import Indices, Motion, Scalar

hide_from_source_lines(__file__)


@dataclasses.dataclass(frozen=True)
class InputBuffer:
    """Slots of one input.

    Attributes:
      block: which part of the operand.
      gmem: ref to the operand.
      smem: ref to the slots, [slot, *block]; None if the block stays in GMEM.
    """

    block: Block
    gmem: Any
    smem: Any

    def load(self, slot: Any, indices: Indices, barrier: Any) -> None:
        """Starts copying the block of the step at `indices` into a slot; arrives on `barrier`."""
        copy_gmem_to_smem(
            self.gmem.at[self.block.slices(indices)],
            self.smem.at[slot],
            barrier,
            collective_axes=self.block.collective_axes or None,
            oob_mode=self.block.oob_fill_mode,
        )

    def at(self, slot: Any, indices: Indices) -> Any:
        """Returns the ref that the body gets."""
        return _block_ref(self.block, self.gmem, self.smem, slot, indices)


@dataclasses.dataclass(frozen=True)
class OutputBuffer:
    """Slots of one output; see `InputBuffer`.

    Attributes:
      motion: when its block changes.
      slots: how many slots it has.
    """

    block: Block
    gmem: Any
    smem: Any
    motion: Motion
    slots: int

    @property
    def counts(self) -> bool:
        """True if the loop must count its finished blocks: their number, not the step's, tells the slot."""
        return self.block.in_smem and self.motion is Motion.SOMETIMES

    def slot(self, step_slot: Any, finished: Any) -> Any:
        """Returns the slot of a step, given that of the inputs and how many of its blocks are finished."""
        if self.counts:
            return lax.rem(finished, jnp.int32(self.slots))
        return 0 if self.motion is Motion.NEVER else step_slot

    def at(self, slot: Any, indices: Indices) -> Any:
        """Returns the ref that the body gets."""
        return _block_ref(self.block, self.gmem, self.smem, slot, indices)

    def is_done(self, indices: Indices, following: Indices, is_last: Any) -> Any:
        """Returns whether the step at `indices` is the last one to work on its block; None if each step is."""
        if not self.counts:
            return None
        moved = is_last
        pairs = zip(self.block.position(indices), self.block.position(following), strict=True)
        for here, there in pairs:
            moved = moved | (jnp.asarray(here, jnp.int32) != jnp.asarray(there, jnp.int32))
        return moved

    def store(self, slot: Any, indices: Indices, predicate: Any = None) -> None:
        """Starts copying a slot to its block in GMEM."""
        target = self.gmem.at[self.block.slices(indices)]
        copy_smem_to_gmem(self.smem.at[slot], target, predicate, commit_group=False)


def _block_ref(block: Block, gmem: Any, smem: Any, slot: Any, indices: Indices) -> Any:
    if block.in_smem:
        return smem.at[slot]
    return gmem if block.is_whole else gmem.at[block.slices(indices)]


@dataclasses.dataclass(frozen=True)
class Outputs:
    """All outputs of a pipeline that go through shared memory, as seen by the warpgroup that writes them.

    Attributes:
      buffers: one for each output.
      slots: slots of the pipeline.
    """

    buffers: tuple[OutputBuffer, ...]
    slots: int

    @property
    def _moving(self) -> tuple[OutputBuffer, ...]:
        return tuple(buffer for buffer in self.buffers if buffer.block.in_smem and buffer.motion is not Motion.NEVER)

    def none_finished(self) -> tuple[Any, ...]:
        """Returns the loop carry before the first step: how many blocks of each output are finished."""
        return tuple(jnp.int32(0) for buffer in self.buffers if buffer.counts)

    def slots_of_step(self, step_slot: Any, finished: Sequence[Any]) -> list[Any]:
        """Returns the slot of each output."""
        counts = iter(finished)
        return [buffer.slot(step_slot, next(counts) if buffer.counts else None) for buffer in self.buffers]

    def wait_for_slot(self) -> None:
        """Waits until the slots of the coming step have been read by the stores that left from them."""
        if self._moving:
            # One group a step, and a slot comes back after as many blocks, hence at least as many steps.
            wait_smem_to_gmem(self.slots - 1, wait_read_only=True)

    def store(
        self, slots: Sequence[Any], indices: Indices, following: Indices, is_last: Any, finished: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Starts storing what this step finished, and returns the new counts of finished blocks."""
        if not self._moving:
            return tuple(finished)
        commit_smem()
        counts, result = iter(finished), []
        for buffer, slot in zip(self.buffers, slots, strict=True):
            if not buffer.block.in_smem or buffer.motion is Motion.NEVER:
                continue
            done = buffer.is_done(indices, following, is_last)
            if done is not None:
                result.append(next(counts) + done.astype(jnp.int32))
            buffer.store(slot, indices, done)
        commit_smem_to_gmem_group()
        return tuple(result)

    def finish(self, indices: Indices, ran: Any = None) -> None:
        """Stores what no step has stored, and waits for all stores.

        Args:
          indices: grid indices of any step.
          ran: whether there was a step at all; None if that is certain.
        """
        fixed = [buffer for buffer in self.buffers if buffer.block.in_smem and buffer.motion is Motion.NEVER]
        if fixed:
            commit_smem()
            for buffer in fixed:
                buffer.store(0, indices, ran)
            commit_smem_to_gmem_group()
        if fixed or self._moving:
            wait_smem_to_gmem(0)


def slots_type(block: Block, slots: int) -> Any:
    """Returns the type of the allocation that holds the slots of a block."""
    return SMEM((slots, *block.shape), block.dtype, transforms=block.transforms)


def output_slots(motion: Motion, slots: int) -> int:
    """Returns how many slots an output needs: one if its block never changes."""
    return 1 if motion is Motion.NEVER else slots


def check_delays(operation: str, blocks: Sequence[Block], max_concurrent_steps: int) -> None:
    """Checks `max_concurrent_steps` and the blocks' `delay_release` against it.

    Raises:
      KernelTypeError: out of range.
    """
    steps: Any = max_concurrent_steps
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise KernelTypeError(
            f"{current_source_line()} {operation}: max_concurrent_steps must be an integer of at least 1, got "
            f"{steps!r}."
        )
    for block in blocks:
        if block.delay_release >= steps:
            raise KernelTypeError(
                f"{current_source_line()} {operation}: {block.name} has delay_release={block.delay_release} but "
                "there are "
                f"only max_concurrent_steps={steps} slots, so none could be reused. "
                f"Use max_concurrent_steps={block.delay_release + 1} or more."
            )


def clip_slots(max_concurrent_steps: int, steps: Scalar) -> int:
    """Returns how many slots a pipeline needs: no more than it has steps, and at least one."""
    return max(1, min(max_concurrent_steps, steps)) if isinstance(steps, int) else max_concurrent_steps
