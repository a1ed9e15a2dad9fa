"""`pallas_call`: a kernel over a grid, with blocks of its operands copied through shared memory.

Parallel grid dimensions become CTAs. Sequential ones become the steps of a pipeline inside each CTA, so the whole is
composed of `kernel` and `emit_pipeline`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from mgpu.errors import KernelTypeError, ParamsError, Unsupported
from mgpu.frontend.pallas_launch import accept_params
from mgpu.jax_internals import (
    SourceLine,
    attributed_to,
    current_source_line,
    current_traceback,
    grid_indices,
    hide_from_source_lines,
)
from mgpu.lang.block_spec import BlockSpec, call_index_map
from mgpu.lang.copies import OOBFillMode
from mgpu.lang.pipeline import emit_pipeline
from mgpu.lang.primitive import is_ref
from mgpu.launch.kernel import kernel as make_kernel
from mgpu.params import CompilerParams

hide_from_source_lines(__file__)

BACKEND = "mosaic_gpu"
OPERATION = "pallas_call"


def pallas_call(
    kernel: Callable[..., None],
    out_shape: Any,
    *,
    grid_spec: pl.GridSpec | None = None,
    grid: Any = (),
    in_specs: Any = pl.no_block_spec,
    out_specs: Any = pl.no_block_spec,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] = {},  # JAX's own default; never written to
    debug: bool = False,
    interpret: Any = False,
    name: str | None = None,
    compiler_params: Any = None,
    cost_estimate: pl.CostEstimate | None = None,
    backend: str | None = None,
    metadata: dict[str, str] | None = None,
) -> Callable[..., Any]:
    """Makes a JAX function that runs `kernel` for every point of a grid.

    Args:
      kernel: called with a ref to the current block of each input and output, then the scratch refs. Blocks are in SMEM
        unless their spec says GMEM; `pl.program_id` gives the point of the grid.
      out_shape: pytree of `jax.ShapeDtypeStruct`s; a tuple or list gives one ref argument for each entry.
      grid_spec: a `pl.GridSpec` in place of `grid`, `in_specs`, `out_specs` and `scratch_shapes`.
      grid: sizes of the grid; an integer for one axis. `compiler_params.dimension_semantics` says which axes are
        "parallel" (one CTA for each point; the default) and which "sequential" (steps of a pipeline in a CTA).
      in_specs: pytree of `BlockSpec`s that matches the positional arguments; the whole array where not given.
      out_specs: pytree of `BlockSpec`s that matches `out_shape`; the whole array where not given.
      scratch_shapes: sequence (positional refs) or mapping (keyword refs) of `SMEM(...)`, `Barrier(...)`, `ACC(...)`.
      input_output_aliases: from the number of a flat input to that of the flat output that begins as its contents.
      debug: print the traced kernel before it runs.
      interpret: an `InterpretGPUParams`, or a bool.
      name: name in reports and traces; the kernel's own name if not given.
      compiler_params: a `CompilerParams` (of this module or of JAX's), or a mapping from backend name to one.
        `max_concurrent_steps` and `delay_release` are those of the pipeline along the sequential axes.
      cost_estimate: accepted for compatibility; the simulator counts what is done.
      backend: "mosaic_gpu" or None.
      metadata: strings to keep with the call; accepted for compatibility.

    Returns:
      A function from input arrays (pytrees) to outputs of the structure of `out_shape`.

    Raises:
      KernelTypeError: arguments that contradict each other, or do not match the operands (when called).
      ParamsError: `compiler_params` for another backend.
      Unsupported: another backend.
    """
    del cost_estimate
    where = f"{current_source_line()} {OPERATION}:"
    if backend not in (None, BACKEND):
        raise Unsupported(
            f"{where} backend={backend!r}; kernels of this package run as {BACKEND!r}. Drop the argument, or name "
            "that one."
        )
    _check_metadata(where, metadata)
    if grid_spec is not None:
        grid, in_specs, out_specs, scratch_shapes = _unpack(where, grid_spec, grid, in_specs, out_specs, scratch_shapes)
    sizes = _check_grid(where, grid)
    params = _params_of(where, compiler_params)
    call = _Call(
        kernel=kernel,
        grid=sizes,
        sequential=_sequential_axes(where, sizes, params),
        in_specs=in_specs,
        out_specs=out_specs,
        out_shape=out_shape,
        scratch=scratch_shapes,
        params=params,
        aliases=dict(input_output_aliases),
        launch_options={
            "interpret": None if interpret is False else interpret,
            "debug": debug,
            "name": name or getattr(kernel, "__name__", None) or "kernel",
        },
        traceback=current_traceback(),
        source=current_source_line(),
    )

    @functools.wraps(kernel, updated=())
    def run(*operands: Any) -> Any:
        return call.run(*operands)

    return run


@dataclasses.dataclass(frozen=True, eq=False)
class _Call:
    """What a `pallas_call` was given, checked.

    `source` is the user's line and `traceback` leads to it; `kernels` holds what was made of the call for a number of
    operands.
    """

    kernel: Callable[..., None]
    grid: tuple[int, ...]
    sequential: tuple[int, ...]
    in_specs: Any
    out_specs: Any
    out_shape: Any
    scratch: Any
    params: CompilerParams
    aliases: dict[int, int]
    launch_options: dict[str, Any]
    traceback: Any
    source: SourceLine
    kernels: dict[int, Any] = dataclasses.field(default_factory=dict)

    def run(self, *operands: Any) -> Any:
        """Runs the kernel on its operands."""
        if self.in_specs is not pl.no_block_spec and len(_sequence(self.in_specs)) != len(operands):
            raise KernelTypeError(
                f"{current_source_line()} {OPERATION}: called with {len(operands)} operands, but in_specs has "
                f"{len(_sequence(self.in_specs))} entries. Give one spec for each operand."
            )
        if len(operands) not in self.kernels:
            self.kernels[len(operands)] = self._make_kernel(len(operands))
        return self.kernels[len(operands)](*operands)

    def _make_kernel(self, num_inputs: int) -> Any:
        # The pipeline has taken these; what is left is a kernel whose grid axes are all parallel.
        params = dataclasses.replace(self.params, dimension_semantics=None, max_concurrent_steps=1, delay_release=0)
        parallel = [axis for axis in range(len(self.grid)) if axis not in self.sequential]
        made = make_kernel(
            self._grid_body(num_inputs),
            out_type=self.out_shape,
            scratch_types=self.scratch,
            grid=tuple(self.grid[axis] for axis in parallel),
            grid_names=tuple(_axis_name(axis) for axis in parallel),
            compiler_params=params,
            **self.launch_options,
        )
        return made.with_aliases(self.aliases) if self.aliases else made

    def _grid_body(self, num_inputs: int) -> Callable[..., None]:
        """Returns the body that runs the kernel over the grid: GMEM refs and scratch refs in."""
        num_outputs = len(self.out_shape) if isinstance(self.out_shape, (tuple, list)) else 1
        num_operands = num_inputs + num_outputs

        def run_grid(*refs: Any, **scratch: Any) -> None:
            def step(indices: Sequence[Any], *blocks: Any) -> None:
                with grid_indices(self._point(indices), self.grid):
                    result = self.kernel(*blocks, *refs[num_operands:], **scratch)
                if result is not None:
                    raise KernelTypeError(
                        f"{self.source} {OPERATION}: the kernel must return None, got "
                        f"{type(result).__name__}. Write to the output refs."
                    )

            _copy_signature(step, self.kernel, first="indices")
            with attributed_to(self.traceback):
                emit_pipeline(
                    step,
                    grid=tuple(self.grid[axis] for axis in self.sequential),
                    in_specs=self._specs("in_specs", self.in_specs, refs[:num_inputs]),
                    out_specs=self._specs("out_specs", self.out_specs, refs[num_inputs:num_operands]),
                    max_concurrent_steps=self.params.max_concurrent_steps,
                )(*refs[:num_operands])

        run_grid.__wrapped__ = self.kernel  # pyright: ignore[reportFunctionMemberAccess]
        _copy_signature(run_grid, self.kernel)
        return run_grid

    def _point(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the point of the whole grid, given the indices along its sequential axes."""
        steps = iter(indices)
        axes = range(len(self.grid))
        return tuple(next(steps) if axis in self.sequential else lax.axis_index(_axis_name(axis)) for axis in axes)

    def _specs(self, what: str, specs: Any, refs: Sequence[Any]) -> Any:
        """Returns specs over the sequential axes for operands, given those over the whole grid."""
        if specs is pl.no_block_spec:
            return jax.tree.map(lambda _: BlockSpec(), tuple(refs), is_leaf=is_ref)
        paths, tree = jax.tree_util.tree_flatten_with_path(_sequence(specs), is_leaf=_is_spec)
        return jax.tree.unflatten(
            tree, [self._sequential_spec(f"{what}{jax.tree_util.keystr(path)}", spec) for path, spec in paths]
        )

    def _sequential_spec(self, name: str, spec: Any) -> Any:
        if spec is pl.no_block_spec:
            return BlockSpec()
        if not isinstance(spec, pl.BlockSpec):
            raise KernelTypeError(f"{current_source_line()} {OPERATION}: {name} must be a BlockSpec, got {spec!r}.")
        index_map = spec.index_map
        delay = getattr(spec, "delay_release", 0) or (self.params.delay_release if name.startswith("in_specs") else 0)
        return BlockSpec(
            spec.block_shape,
            None if index_map is None else lambda *indices: call_index_map(name, index_map, self._point(indices)),
            memory_space=spec.memory_space,
            pipeline_mode=spec.pipeline_mode,
            transforms=getattr(spec, "transforms", ()),
            delay_release=delay,
            collective_axes=getattr(spec, "collective_axes", None) or (),
            oob_fill_mode=getattr(spec, "oob_fill_mode", OOBFillMode.ZEROS),
        )


def _axis_name(axis: int) -> str:
    return f"grid{axis}"


def _sequence(specs: Any) -> tuple[Any, ...]:
    return tuple(specs) if isinstance(specs, (tuple, list)) else (specs,)


def _is_spec(value: Any) -> bool:
    return isinstance(value, pl.BlockSpec) or value is pl.no_block_spec


def _copy_signature(function: Any, kernel: Callable[..., None], first: str = "") -> None:
    """Gives a wrapper the kernel's parameter names, which reports use for its refs."""
    try:
        parameters = list(inspect.signature(kernel).parameters.values())
    except (TypeError, ValueError):
        return  # a built-in or C callable has no signature
    if first:
        parameters = [inspect.Parameter(first, inspect.Parameter.POSITIONAL_ONLY), *parameters]
        kinds = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY}
        parameters = [
            each.replace(default=inspect.Parameter.empty) if each.kind in kinds else each for each in parameters
        ]
    function.__signature__ = inspect.Signature(parameters)


def _check_metadata(where: str, metadata: Any) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, Mapping) or not all(isinstance(x, str) for pair in metadata.items() for x in pair):
        raise ParamsError(f"{where} metadata must map strings to strings, got {metadata!r}.")


def _unpack(where: str, grid_spec: Any, grid: Any, in_specs: Any, out_specs: Any, scratch: Any) -> tuple[Any, ...]:
    if not isinstance(grid_spec, pl.GridSpec) or type(grid_spec) is not pl.GridSpec:
        raise Unsupported(
            f"{where} grid_spec is a {type(grid_spec).__name__}; kernels for this hardware take a pl.GridSpec. "
            "Pass prefetched scalars as operands in GMEM."
        )
    given = {
        "grid": grid != (),
        "in_specs": in_specs is not pl.no_block_spec,
        "out_specs": out_specs is not pl.no_block_spec,
        "scratch_shapes": bool(scratch),
    }
    twice = [name for name, is_given in given.items() if is_given]
    if twice:
        raise KernelTypeError(
            f"{where} {' and '.join(twice)} given beside grid_spec, which has its own. Give only one."
        )
    return grid_spec.grid, grid_spec.in_specs, grid_spec.out_specs, grid_spec.scratch_shapes


def _check_grid(where: str, grid: Any) -> tuple[int, ...]:
    sizes = (grid,) if isinstance(grid, int) else tuple(grid)
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise KernelTypeError(f"{where} grid={grid!r} holds {size!r}; each size is a positive integer.")
    return tuple(int(size) for size in sizes)


def _params_of(where: str, params: Any) -> CompilerParams:
    """Returns the compiler parameters, whichever way they were given."""
    if isinstance(params, Mapping):
        if set(params) != {BACKEND}:
            raise ParamsError(
                f"{where} compiler_params maps {sorted(map(str, params))}; give a mapping from {BACKEND!r}, or the "
                "CompilerParams itself."
            )
        params = params[BACKEND]
        if isinstance(params, Mapping):
            return CompilerParams(**params)
    return accept_params(where, params)


def _sequential_axes(where: str, grid: tuple[int, ...], params: CompilerParams) -> tuple[int, ...]:
    semantics = params.dimension_semantics
    if semantics is None:
        return ()
    if len(semantics) != len(grid):
        raise KernelTypeError(
            f"{where} dimension_semantics={tuple(semantics)} names {len(semantics)} axes, the grid {grid} has "
            f"{len(grid)}. "
            "Give 'parallel' or 'sequential' for each."
        )
    return tuple(axis for axis, kind in enumerate(semantics) if kind == "sequential")
