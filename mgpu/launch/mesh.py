"""`Mesh`: the launch of a kernel as what `pl.core_map` maps a function over; the function's refs become GMEM operands.

A `core_map` has no arguments and no results: its function reads and writes JAX refs that it closes over
(`jax.new_ref`, `pl.run_state`). Each of them becomes an input and, aliased to it, an output of a kernel.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.core import ShapedArray

from mgpu.errors import KernelTypeError, Unsupported
from mgpu.frontend.build import check_launch
from mgpu.frontend.pallas_rules.control import argument_names
from mgpu.frontend.pallas_rules.translator import Translator, open_jaxpr
from mgpu.frontend.program import Launch
from mgpu.jax_internals import (
    AbstractRef,
    SourceLine,
    current_source_line,
    hide_from_source_lines,
    perform_core_maps,
    tracing_grid,
)
from mgpu.jax_internals import Mesh as PallasMesh
from mgpu.lang.memory import MemorySpace
from mgpu.lang.scoped import name_parameters
from mgpu.launch.kernel import kernel

hide_from_source_lines(__file__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh(PallasMesh):
    """CTAs and their warpgroups, for `pl.core_map(mesh)(function)` outside a kernel.

    Attributes:
      grid: CTAs along each grid axis; clusters, if `cluster` is given.
      grid_names: names of the grid axes, for `jax.lax.axis_index`.
      cluster: CTAs of a cluster along each cluster axis.
      cluster_names: names of the cluster axes.
      num_threads: warpgroups in a CTA; None for one without a name.
      thread_name: name of the axis that numbers the warpgroups; None exactly if `num_threads` is.
      kernel_name: name in reports and traces; that of the function if not given.

    Raises:
      KernelTypeError: sizes and names that do not match.

    Example:
      >>> import jax, jax.numpy as jnp, mgpu
      >>> from jax.experimental import pallas as pl
      >>> @jax.jit
      ... def double(x):
      ...     ref = jax.new_ref(x)
      ...
      ...     @pl.core_map(mgpu.Mesh(grid=(2,), grid_names=("half",)))
      ...     def body():
      ...         half = pl.ds(jax.lax.axis_index("half") * 64, 64)
      ...         ref[half] = ref[half] * 2
      ...
      ...     return ref[...]
      >>> double(jnp.ones(128, jnp.float32))[:2]
      Array([2., 2.], dtype=float32)
    """

    grid: Sequence[int] = ()
    grid_names: Sequence[str] = ()
    cluster: Sequence[int] = ()
    cluster_names: Sequence[str] = ()
    num_threads: int | None = None
    thread_name: str | None = None
    kernel_name: str | None = None

    def __post_init__(self) -> None:
        for name in ("grid", "grid_names", "cluster", "cluster_names"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.num_threads is None and self.thread_name is not None:
            raise KernelTypeError(
                f"Mesh: thread_name={self.thread_name!r} without num_threads. Give num_threads, the number of "
                "warpgroups in a CTA."
            )
        if self.num_threads is not None and self.thread_name is None:
            raise KernelTypeError(
                f"Mesh: num_threads={self.num_threads} without thread_name. Give thread_name, for jax.lax.axis_index."
            )
        check_launch(self.launch)

    @property
    def launch(self) -> Launch:
        """The launch that this mesh describes."""
        return Launch(
            grid=tuple(self.grid),
            grid_names=tuple(self.grid_names),
            cluster=tuple(self.cluster),
            cluster_names=tuple(self.cluster_names),
            num_threads=self.num_threads or 1,
            thread_name=self.thread_name,
        )

    @property
    def backend(self) -> str:
        """Name of the compiler that takes such kernels."""
        return "mosaic_gpu"

    @property
    def shape(self) -> collections.OrderedDict[object, int]:
        """Size of each axis."""
        return collections.OrderedDict((name, size) for name, size in self.launch.axis_sizes.items())

    @property
    def default_memory_space(self) -> MemorySpace:
        """Where refs from outside the kernel live."""
        return MemorySpace.GMEM

    @property
    def supported_memory_spaces(self) -> Sequence[MemorySpace]:
        """Memory spaces that a kernel over this mesh may allocate in."""
        return list(MemorySpace)

    @property
    def kernel_type(self) -> str:
        """What runs on one element of the mesh."""
        return "gpu"

    @property
    def core_type(self) -> str:
        """What one element of the mesh is."""
        return "gpu"

    @contextlib.contextmanager
    def tracing_context(self) -> Iterator[None]:
        """Makes `pl.program_id` work while the function is traced."""
        with tracing_grid(tuple(self.shape.values())):
            yield

    def check_is_compatible_with(self, other_mesh: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Accepts only itself.

        Raises:
          KernelTypeError: another mesh.
        """
        if self != other_mesh:
            raise KernelTypeError(f"{self} cannot run together with {other_mesh}: launch one kernel for each mesh.")

    def discharges_effect(self, effect: Any) -> bool:
        """Returns False: an operation of the kernel may write a ref, so JAX must not drop the `core_map`."""
        del effect
        return False


def run_core_map(
    mesh: Mesh, jaxpr: Any, avals: Sequence[Any], values: Sequence[Any], params: Mapping[str, Any]
) -> list[Any]:
    """Runs a `core_map` as a kernel.

    Args:
      mesh: what it maps over.
      jaxpr: its function. The variables are those of `avals`, then its scratch refs.
      avals: what the function closes over: refs, and scalars.
      values: for each of `avals`, the contents of the ref, or a JAX ref, which is read and written here; the value of a
        scalar.
      params: parameters of JAX's equation: `compiler_params`, `interpret`, `debug`, `name`.

    Returns:
      For each of `avals` the contents of the ref afterwards; None for a scalar, and for what was given as a JAX ref.

    Raises:
      Unsupported: a kernel of `pl.kernel`, which has results.
    """
    inner, consts = open_jaxpr(jaxpr)
    if params.get("out_avals"):
        raise Unsupported(
            f"{_source_of(inner)} pl.kernel over mgpu.Mesh: a mesh is what pl.core_map maps over. "
            "Use mgpu.kernel(body, out_type=..., grid=..., grid_names=...)."
        )
    variables = [*inner.constvars, *inner.invars] if not consts else list(inner.invars)
    closed_over, scratch = variables[: len(avals)], [_Scratch(var.aval) for var in variables[len(avals) :]]
    refs = [number for number, aval in enumerate(avals) if isinstance(aval, AbstractRef)]
    is_ref = {number: isinstance(jax.typeof(values[number]), AbstractRef) for number in refs}
    operands = [values[number][...] if is_ref[number] else values[number] for number in refs]

    def body(*given: Any) -> None:
        bound = dict(zip(closed_over, values, strict=True))
        bound |= {closed_over[number]: ref for number, ref in zip(refs, given[len(refs) :], strict=False)}
        bound |= dict(zip(variables[len(avals) :], given[2 * len(refs) :], strict=True))
        constants = consts or [bound[var] for var in inner.constvars]
        Translator({}, {}).evaluate(inner, constants, [bound[var] for var in inner.invars])

    names = [*(f"ref{number}_before" for number in refs), *(f"ref{number}" for number in refs)]
    names += argument_names(inner)[len(inner.invars) - len(scratch) :]
    source = _source_of(inner)
    made = kernel(
        name_parameters(body, names),
        out_type=[jax.ShapeDtypeStruct(avals[number].shape, avals[number].dtype) for number in refs],
        scratch_types=scratch,
        compiler_params=params.get("compiler_params"),
        grid=tuple(mesh.grid),
        grid_names=tuple(mesh.grid_names),
        cluster=tuple(mesh.cluster),
        cluster_names=tuple(mesh.cluster_names),
        num_threads=mesh.num_threads,
        thread_name=mesh.thread_name,
        interpret=params.get("interpret") or None,
        debug=bool(params.get("debug")),
        name=_first_name(mesh.kernel_name, params.get("name"), source.function),
    )
    results = made.with_source(source).with_aliases({number: number for number in range(len(refs))})(*operands)
    updated: list[Any] = [None] * len(avals)
    for number, result in zip(refs, results, strict=True):
        if is_ref[number]:
            values[number][...] = result
        else:
            updated[number] = result
    return updated


def find_core_map(equation: Any) -> Callable[..., list[Any]] | None:
    """Returns what performs an equation on values and refs, if it is a `core_map` over a `Mesh`; else None."""
    params = equation.params
    meshes = {"core_map": (params.get("mesh"),), "mpmd_map": params.get("meshes", ())}
    mesh = next(iter(meshes.get(equation.primitive.name, ())), None)
    if not isinstance(mesh, Mesh):
        return None
    jaxpr = params["jaxpr"] if "jaxpr" in params else params["jaxprs"][0]
    avals = [atom.aval for atom in equation.invars]

    def perform(*values: Any) -> list[Any]:
        run_core_map(mesh, jaxpr, avals, values, params)
        return []

    return perform


@dataclasses.dataclass(frozen=True, eq=False)
class _Scratch:
    """Type of a scratch ref whose aval is known."""

    aval: Any

    def get_array_aval(self) -> ShapedArray:
        return self.aval.inner_aval

    def get_ref_aval(self) -> AbstractRef:
        return self.aval


_FUNCTION = re.compile(r"(?P<function>.*) at (?P<file>.*):(?P<line>\d+)", re.DOTALL)


def _source_of(jaxpr: Any) -> SourceLine:
    """Returns where the function of an open jaxpr is defined; the line that runs now if JAX does not tell."""
    found = _FUNCTION.fullmatch(getattr(jaxpr.debug_info, "func_src_info", "") or "")
    if found is None:
        return current_source_line()
    return SourceLine(found["file"], int(found["line"]), found["function"])


def _first_name(*names: str | None) -> str:
    """Returns the first name that says something: functions under `@pl.core_map` are often called `_`."""
    return next((name for name in names if name and name.isidentifier() and name.strip("_")), "kernel")


perform_core_maps(Mesh, run_core_map)
