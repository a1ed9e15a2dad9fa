"""Warp-level code: regions in which the four warps of a warpgroup run on their own."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.experimental import pallas as pl

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import AbstractRef, Mesh, extra_axis, hide_from_source_lines
from mgpu.lang.memory import REGS, MemorySpace
from mgpu.units import WARPS_PER_WARPGROUP

hide_from_source_lines(__file__)


class WarpMesh(Mesh):
    """The four warps of a warpgroup, for `pl.core_map` inside a kernel.

    Attributes:
      axis_name: what `jax.lax.axis_index` calls the number of the warp.
    """

    def __init__(self, *, axis_name: Hashable) -> None:
        if axis_name is None:
            raise KernelTypeError("WarpMesh: axis_name must be the name of an axis, got None.")
        self.axis_name = axis_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WarpMesh) and self.axis_name == other.axis_name

    def __hash__(self) -> int:
        return hash((WarpMesh, self.axis_name))

    def __repr__(self) -> str:
        return f"WarpMesh(axis_name={self.axis_name!r})"

    @property
    def backend(self) -> str:
        """Name of the compiler that takes kernels with such regions."""
        return "mosaic_gpu"

    @property
    def shape(self) -> collections.OrderedDict[object, int]:
        """Size of the only axis."""
        return collections.OrderedDict([(self.axis_name, WARPS_PER_WARPGROUP)])

    @property
    def default_memory_space(self) -> MemorySpace:
        """Where arrays of the region live unless they say otherwise."""
        return REGS

    @property
    def kernel_type(self) -> str:
        """What runs on one element of the mesh."""
        return "warp"

    @property
    def core_type(self) -> str:
        """What one element of the mesh is."""
        return "warp"

    @contextlib.contextmanager
    def tracing_context(self) -> Iterator[None]:
        """Makes the axis known while the region is traced."""
        with extra_axis(self.axis_name, WARPS_PER_WARPGROUP):
            yield

    def check_is_compatible_with(self, other_mesh: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Accepts only itself.

        Raises:
          KernelTypeError: another mesh.
        """
        if self != other_mesh:
            raise KernelTypeError(f"{self} cannot run together with {other_mesh}: a warpgroup has one set of warps.")

    def discharges_effect(self, effect: Any) -> bool:
        """Returns False: the effects of the region are those of the kernel."""
        del effect
        return False


@dataclasses.dataclass(frozen=True)
class WarpSpace:
    """Memory space of the ref that marks a warp-level region: it stands for the region's own warp.

    Attributes:
      axis_name: what `jax.lax.axis_index` calls the number of the warp.
      kind: registers, which are private to a warp.
    """

    axis_name: Hashable
    kind: MemorySpace = REGS

    def __str__(self) -> str:
        return f"warp({self.axis_name})"


@dataclasses.dataclass(frozen=True)
class _OneWarp:
    """Type that `pl.run_scoped` takes to open a warp-level region: traced once, it runs on each of the four warps."""

    axis_name: Hashable

    def get_array_aval(self) -> ShapedArray:
        return ShapedArray((), jnp.int32)

    def get_ref_aval(self) -> AbstractRef:
        return AbstractRef(self.get_array_aval(), memory_space=WarpSpace(self.axis_name))


def warp_map(f: Callable[[jax.Array], None], /) -> None:
    """Runs `f(warp_id)` on each of the four warps; the warpgroup goes on when all have returned.

    Inside, copies, barrier operations and scalar control flow belong to one warp; arrays and wgmma do not exist.

    Args:
      f: takes the warp's number, 0 to 3, and returns None. It reaches refs and scalars by closing over them.

    Raises:
      KernelTypeError: when the kernel is launched: an array is loaded, computed or closed over inside.
    """
    axis_name = "warp"

    def per_warp(_marker: Any) -> None:
        f(jax.lax.axis_index(axis_name))

    with extra_axis(axis_name, WARPS_PER_WARPGROUP):
        pl.run_scoped(per_warp, _OneWarp(axis_name))


def mesh_of_region(equation: Any) -> Hashable | None:
    """Returns the axis name of a warp-level region, or None if an equation is none."""
    name, params = equation.primitive.name, equation.params
    if name == "run_scoped":
        inner = getattr(params["jaxpr"], "jaxpr", params["jaxpr"])
        spaces = [getattr(var.aval, "memory_space", None) for var in inner.invars]
        return next((space.axis_name for space in spaces if isinstance(space, WarpSpace)), None)
    meshes = [params["mesh"]] if name == "core_map" else params["meshes"] if name == "mpmd_map" else []
    return next((mesh.axis_name for mesh in meshes if isinstance(mesh, WarpMesh)), None)
