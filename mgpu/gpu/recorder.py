"""The recorder on the device: emits the PTX of `mgpu.gpu.ptx` through JAX's public `inline_mgpu`.

`begin` once at the top of the kernel, `event` anywhere, `end` once at its bottom. The words leave as an ordinary output
of the kernel, so every launch returns its own. Under `TraceScope.WARPGROUP` the first warp of each warpgroup writes the
track; what another warp does alone, in a warp-level region, is seen under `TraceScope.WARP` only.
"""

from __future__ import annotations

import dataclasses
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
    """

    capacity: int
    num_warpgroups: int
    trace_scope: TraceScope
    in_smem: bool

    @property
    def per_warp(self) -> bool:
        """Whether a track is a warp."""
        return self.trace_scope is TraceScope.WARP

    @property
    def num_tracks(self) -> int:
        """Tracks of a CTA."""
        return self.num_warpgroups * (WARPS_PER_WARPGROUP if self.per_warp else 1)

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
    """

    def __init__(self, layout: RecordFormat, words: Any, buffer: Any = None) -> None:
        self._format = layout
        self._refs = [words] if buffer is None else [buffer, words]

    def begin(self) -> None:
        """Declares the recorder's registers and writes each track's first anchor. Comes before everything else."""
        layout = self._format
        text = ptx.declare(layout.capacity, per_warp=layout.per_warp, in_smem=layout.in_smem)
        self._with_addresses(text)

    def event(self, site: int, edge: Edge, payload: Any = 0) -> None:
        """Records an event.

        Args:
          site: site id.
          edge: begin, end or instant.
          payload: an int, or a scalar int32 array that the kernel computes; below 65536.
        """
        in_smem = self._format.in_smem
        if isinstance(payload, (int, np.integer, np.ndarray)):  # known while tracing; literals are NumPy scalars
            _assembly(ptx.event(pack_tag(site, edge, int(payload)), in_smem=in_smem, has_payload=False))
            return

        text = ptx.event(pack_tag(site, edge), in_smem=in_smem, has_payload=True)

        @mosaic_gpu.inline_mgpu(arg_types=(mosaic_gpu.Layout.WG_SPLAT,))
        def record(_context: Any, value: Any) -> None:
            _emit(text, [_scalar(value)], "r")

        _call(record, jnp.asarray(payload, jnp.int32))

    def end(self) -> None:
        """Writes counts and last anchors, and moves the events to GMEM. Comes after everything else."""
        layout = self._format
        self._with_addresses(ptx.finish(layout.capacity, per_warp=layout.per_warp, in_smem=layout.in_smem))

    def _with_addresses(self, text: str) -> None:
        """Emits assembly whose operands are the addresses of the recorder's refs."""

        @mosaic_gpu.inline_mgpu(arg_types=(mosaic_gpu.RefType(),) * len(self._refs))
        def emit(_context: Any, *refs: Any) -> None:
            widths = [32, 64][-len(refs) :]
            values = [
                llvm.ptrtoint(ir.IntegerType.get_signless(width), mosaic_utils.memref_ptr(ref))
                for width, ref in zip(widths, refs, strict=True)
            ]
            _emit(text, values, ",".join("r" if width == 32 else "l" for width in widths))

        _call(emit, *self._refs)


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
