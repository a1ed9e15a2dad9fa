"""KernelProgram: everything about a kernel that is known before it runs. Every later stage reads only this."""

from __future__ import annotations

import dataclasses
import functools
import math

from jax.core import ShapedArray
from jax.extend import core as jex_core

from mgpu.jax_internals import SourceLine
from mgpu.params import CompilerParams


@dataclasses.dataclass(frozen=True)
class Launch:
    """How many CTAs and warpgroups run, and what their axes are called.

    Attributes:
      grid, grid_names: clusters along each grid axis (CTAs if there are no clusters).
      cluster, cluster_names: CTAs of a cluster along each cluster axis.
      num_threads: warpgroups in a CTA.
      thread_name: axis name of the warpgroup index; None if it is not asked for.
    """

    grid: tuple[int, ...] = ()
    grid_names: tuple[str, ...] = ()
    cluster: tuple[int, ...] = ()
    cluster_names: tuple[str, ...] = ()
    num_threads: int = 1
    thread_name: str | None = None

    @property
    def cluster_size(self) -> int:
        """CTAs in a cluster."""
        return math.prod(self.cluster)

    @property
    def num_ctas(self) -> int:
        """CTAs in the launch."""
        return math.prod(self.grid) * self.cluster_size

    @functools.cached_property
    def cluster_sizes(self) -> dict[str, int]:
        """Size of each cluster axis by name."""
        return dict(zip(self.cluster_names, self.cluster, strict=True))

    @property
    def axis_sizes(self) -> dict[str, int]:
        """Size of every named axis, the warpgroup axis included."""
        sizes = dict(zip(self.grid_names + self.cluster_names, self.grid + self.cluster, strict=True))
        return sizes | ({self.thread_name: self.num_threads} if self.thread_name else {})

    def axis_indices(self, cta: int) -> dict[str, int]:
        """Returns the position of CTA number `cta` along every grid and cluster axis.

        CTAs of one cluster have consecutive numbers; the last axis varies fastest.
        """
        indices = {}
        for name, size in self._axes_from_last:
            cta, indices[name] = divmod(cta, size)
        return indices

    @functools.cached_property
    def _axes_from_last(self) -> list[tuple[str, int]]:
        axes = zip(self.grid_names + self.cluster_names, self.grid + self.cluster, strict=True)
        return list(axes)[::-1]


@dataclasses.dataclass(frozen=True, eq=False)
class KernelProgram:
    """A traced kernel.

    Attributes:
      name: the kernel's name: of its body function unless given.
      source: where the body is defined.
      jaxpr: the body. Its invars are the GMEM refs, inputs before outputs; its only effectful equation is the
        `run_scoped` that allocates the scratch and holds the rest. Its constvars are `num_consts` closed-over arrays.
      launch: grid, cluster, warpgroups.
      in_avals, out_avals: arrays that the kernel reads and writes in GMEM.
      operand_names: the kernel's own names for the GMEM refs, inputs before outputs.
      num_consts: closed-over arrays, which come before the inputs when the kernel is called.
      params: compiler parameters.
      input_output_aliases: pairs of an input and the output that begins as its contents, and is the same memory.
    """

    name: str
    source: SourceLine
    jaxpr: jex_core.Jaxpr
    launch: Launch
    in_avals: tuple[ShapedArray, ...]
    out_avals: tuple[ShapedArray, ...]
    operand_names: tuple[str, ...]
    num_consts: int
    params: CompilerParams
    input_output_aliases: tuple[tuple[int, int], ...] = ()
