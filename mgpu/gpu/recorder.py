"""The recorder on the device: emits the PTX of `mgpu.gpu.ptx` through JAX's public `inline_mgpu`.

`begin` once at the top of the kernel, `event` anywhere, `end` once at its bottom. The words leave as an ordinary output
of the kernel, so every launch returns its own. Under `TraceScope.WARPGROUP` the first warp of each warpgroup writes the
track; what another warp does alone, in a warp-level region, is seen under `TraceScope.WARP` only.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.experimental.mosaic.gpu import utils as mosaic_utils
from jax.experimental.pallas import mosaic_gpu
from jax.extend.mlir import ir

from mgpu.capture import pack_tag
from mgpu.gpu import ptx
from mgpu.jax_internals import llvm
from mgpu.params import TraceScope
from mgpu.passes.recorded_loops import RecordedLoop
from mgpu.profile_window import EVERYTHING, ProfileWindow, contiguous_runs
from mgpu.sites import Edge
from mgpu.units import WARPS_PER_WARPGROUP


@dataclasses.dataclass(frozen=True)
class RecordFormat:
    """Where events go, and how many.

    Attributes:
      capacity: events that a track can store.
      num_warpgroups: warpgroups in a CTA.
      trace_scope: a track for each warpgroup, or each warp.
      in_smem: events are collected in SMEM and copied to GMEM at the end; if not, they are stored to GMEM at once.
      window: the part of the launch that is recorded; the rest takes no room.
    """

    capacity: int
    num_warpgroups: int
    trace_scope: TraceScope
    in_smem: bool
    window: ProfileWindow = EVERYTHING

    @property
    def per_warp(self) -> bool:
        """Whether a track is a warp."""
        return self.trace_scope is TraceScope.WARP

    @property
    def warpgroups(self) -> tuple[int, ...]:
        """Numbers of the warpgroups that are recorded."""
        return self.window.recorded_warpgroups(self.num_warpgroups)

    @property
    def num_tracks(self) -> int:
        """Tracks of a CTA."""
        return len(self.warpgroups) * (WARPS_PER_WARPGROUP if self.per_warp else 1)

    @property
    def filters(self) -> dict[str, Any]:
        """What the recorder's first and last piece of PTX know of the window."""
        all_warpgroups = len(self.warpgroups) == self.num_warpgroups
        return {
            "warpgroups": None if all_warpgroups else self.warpgroups,
            "has_row": self.window.ctas is not None,
        }

    @property
    def smem_words(self) -> int:
        """32-bit words of SMEM that a CTA needs."""
        return self.num_tracks * ptx.track_bytes(self.capacity) // 4 if self.in_smem else 0

    @property
    def gmem_words(self) -> int:
        """32-bit words of a CTA in the extra output."""
        return self.num_tracks * ptx.gmem_track_bytes(self.capacity) // 4


class Recorder:
    """Records the events of one kernel while it is traced.

    Args:
      layout: where events go.
      words: GMEM ref of uint32, the words of this CTA only.
      buffer: SMEM ref of `layout.smem_words` uint32; None if events go straight to GMEM.
      row: number of this CTA among the recorded ones (`row_of_cta`); None if all are.
      unrecorded: the site that marks iterations that are not recorded.

    Events are recorded in runs (`mgpu.gpu.ptx`): whoever traces the kernel calls `settle` before each equation that
    holds a jaxpr, and at the end of each jaxpr.

    Attributes:
      level: how many loops of which only some iterations are recorded stand around what is traced now.
    """

    def __init__(
        self, layout: RecordFormat, words: Any, buffer: Any = None, row: Any = None, unrecorded: int = -1
    ) -> None:
        self._format = layout
        self._refs = [words] if buffer is None else [buffer, words]
        self._row = row
        self._gap = [pack_tag(unrecorded, edge) for edge in (Edge.BEGIN, Edge.END)] if unrecorded >= 0 else []
        self._run_events = 0
        self.level = 0

    def begin(self) -> None:
        """Declares the recorder's registers and writes each track's first anchor. Comes before everything else."""
        layout = self._format
        text = ptx.declare(
            layout.capacity,
            per_warp=layout.per_warp,
            in_smem=layout.in_smem,
            levels=len(layout.window.levels),
            **layout.filters,
        )
        self._with_addresses(text)

    def event(self, site: int, edge: Edge, payload: Any = 0) -> None:
        """Records an event.

        Args:
          site: site id.
          edge: begin, end or instant.
          payload: an int, or a scalar int32 array that the kernel computes; below 65536.
        """
        is_known = isinstance(payload, (int, np.integer, np.ndarray))  # while tracing; literals are NumPy scalars
        self._run_events += 1
        text = ptx.event(
            pack_tag(site, edge, int(payload) if is_known else 0),
            in_smem=self._format.in_smem,
            has_payload=not is_known,
            level=self.level,
            is_first=self._run_events == 1,
            is_last=self._run_events == ptx.RUN_EVENTS,
        )
        self._run_events %= ptx.RUN_EVENTS
        if is_known:
            _assembly(text)
        else:
            _with_scalar(text, payload)

    def settle(self) -> None:
        """Ends the run of events. Comes before anything that may execute code not exactly once, and at its end."""
        if self._run_events and self._format.in_smem:
            _assembly(ptx.settle())
        self._run_events = 0

    def enter_loop(self, loop: RecordedLoop) -> None:
        """Prepares for a loop of which only some iterations are recorded. Comes right before it."""
        _assembly(ptx.enter_loop(loop.level + 1))

    def iteration(self, loop: RecordedLoop, counter: Any = None) -> None:
        """Decides whether an iteration is recorded. Comes first in the loop's body.

        Args:
          loop: which iterations are.
          counter: the iteration's number, a scalar integer array; None to count turns.
        """
        begin, end = self._gap
        text = ptx.iteration(
            loop.level + 1,
            loop.first,
            loop.end,
            begin,
            end,
            in_smem=self._format.in_smem,
            has_counter=counter is not None,
        )
        if counter is None:
            _assembly(text)
        else:
            _with_scalar(text, counter)

    def leave_loop(self, loop: RecordedLoop) -> None:
        """Ends what `enter_loop` prepared for. Comes right behind the loop."""
        _assembly(ptx.leave_loop(loop.level + 1, self._gap[1], in_smem=self._format.in_smem))

    def end(self) -> None:
        """Writes counts and last anchors, and moves the events to GMEM. Comes after everything else."""
        layout = self._format
        self._with_addresses(
            ptx.finish(layout.capacity, per_warp=layout.per_warp, in_smem=layout.in_smem, **layout.filters)
        )

    def _with_addresses(self, text: str) -> None:
        """Emits assembly whose operands are the addresses of the recorder's refs, then the CTA's row, if any."""
        rows = [] if self._row is None else [self._row]
        types = (*(mosaic_gpu.RefType() for _ in self._refs), *(mosaic_gpu.Layout.WG_SPLAT for _ in rows))

        @mosaic_gpu.inline_mgpu(arg_types=types)
        def emit(_context: Any, *operands: Any) -> None:
            refs = operands[: len(self._refs)]
            widths = [32, 64][-len(refs) :]
            values = [
                llvm.ptrtoint(ir.IntegerType.get_signless(width), mosaic_utils.memref_ptr(ref))
                for width, ref in zip(widths, refs, strict=True)
            ]
            values += [_scalar(row) for row in operands[len(refs) :]]
            widths += [32] * len(rows)
            _emit(text, values, ",".join("r" if width == 32 else "l" for width in widths))

        _call(emit, *self._refs, *rows)


class WindowedLoop:
    """Records a loop of which only some iterations are recorded, while it is traced: a context around the loop.

    Args:
      recorder: records events; None if nothing is recorded.
      loop: which iterations; None for a loop like any other, which changes nothing.
    """

    def __init__(self, recorder: Recorder | None, loop: RecordedLoop | None) -> None:
        self._active = None if recorder is None or loop is None else (recorder, loop)

    def __enter__(self) -> None:
        if self._active:
            recorder, loop = self._active
            recorder.enter_loop(loop)

    def __exit__(self, *error: object) -> None:
        if self._active and error == (None, None, None):
            recorder, loop = self._active
            recorder.leave_loop(loop)

    @contextlib.contextmanager
    def iteration(self, carried: Sequence[Any]) -> Iterator[None]:
        """Context of an iteration's body.

        Args:
          carried: the values that the loop carries, at the start of the iteration.
        """
        if not self._active:
            yield
            return
        recorder, loop = self._active
        recorder.iteration(loop, None if loop.counter is None else carried[loop.counter])
        recorder.level = loop.level + 1
        yield
        recorder.level = loop.level


def row_of_cta(cta: Any, window: ProfileWindow) -> Any:
    """Returns the number of a CTA (a traced int32) among the recorded ones, -1 if it is not recorded."""
    row: Any = np.int32(-1)
    rows_before = 0
    for first, end in contiguous_runs(window.ctas or ()):
        row = jnp.where((cta >= first) & (cta < end), cta + (rows_before - first), row)
        rows_before += end - first
    return row


def _with_scalar(text: str, value: Any) -> None:
    """Emits assembly whose operand is a scalar integer array."""

    @mosaic_gpu.inline_mgpu(arg_types=(mosaic_gpu.Layout.WG_SPLAT,))
    def emit(_context: Any, operand: Any) -> None:
        _emit(text, [_scalar(operand)], "r")

    _call(emit, jnp.asarray(value, jnp.int32))


def _call(inlined: Any, *operands: Any) -> None:
    """Calls a function that `inline_mgpu` has wrapped: it takes the operands only, though the decorator hides that."""
    inlined(*operands)


def _assembly(text: str) -> None:
    """Emits assembly without operands."""

    @mosaic_gpu.inline_mgpu()
    def emit(_context: Any) -> None:
        _emit(text, [], "")

    _call(emit)


def _emit(text: str, values: list[Any], constraints: str) -> None:
    # LLVM replaces `$0` by an operand and prints the rest, braces included, as it is.
    void = ir.Type.parse("!llvm.void")
    llvm.inline_asm(void, values, text, constraints, has_side_effects=True)


def _scalar(value: Any) -> Any:
    """Returns the one register of a scalar: JAX passes it bare or wrapped, depending on lowering semantics."""
    registers = getattr(value, "registers", None)
    return value if registers is None else registers.item()
