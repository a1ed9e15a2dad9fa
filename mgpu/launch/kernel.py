"""`mgpu.kernel`: makes a JAX function of a kernel body."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.experimental import pallas as pl

from mgpu import environment
from mgpu.devices import Device
from mgpu.errors import KernelTypeError, ParamsError
from mgpu.frontend.build import build_program, find_traced_values
from mgpu.frontend.pallas_launch import accept_params
from mgpu.frontend.program import KernelProgram, Launch
from mgpu.jax_internals import SourceLine
from mgpu.launch.aliases import check_aliases
from mgpu.launch.batching import batch_axis_name, batch_body
from mgpu.launch.device_choice import DeviceChoice, current_choice
from mgpu.launch.operation import SimulatedKernel, launch
from mgpu.launch.recording import with_environment
from mgpu.launch.target_choice import gpu_device, runs_on_gpu
from mgpu.params import CompilerParams
from mgpu.sim.options import InterpretGPUParams
from mgpu.sim.simulation import prepare


class _NotGiven:
    """Tells a missing argument from None."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Any = _NotGiven()


def kernel(
    body: Callable[..., None] = NOT_GIVEN,
    out_shape: Any = NOT_GIVEN,
    *,
    out_type: Any = NOT_GIVEN,
    scratch_types: Any = NOT_GIVEN,
    scratch_shapes: Any = NOT_GIVEN,
    compiler_params: Any = None,
    cost_estimate: pl.CostEstimate | None = None,
    grid: tuple[int, ...] = (),
    grid_names: tuple[str, ...] = (),
    cluster: tuple[int, ...] = (),
    cluster_names: tuple[str, ...] = (),
    num_threads: int | None = None,
    thread_name: str | None = None,
    interpret: Any = None,
    debug: bool = False,
    name: str | None = None,
    kernel_name: str | None = None,
) -> Any:
    """Makes a JAX function of a kernel body, or a decorator if `body` is left out.

    Args:
      body: called with the input refs, the output refs and the scratch refs; returns None.
      out_shape: old name of `out_type`.
      out_type: pytree of `jax.ShapeDtypeStruct`s; a tuple or list gives the body one ref for each entry.
      scratch_types: what each CTA allocates: a sequence (positional refs) or mapping (keyword refs) of `SMEM(...)`,
        `Barrier(...)`, and so on.
      scratch_shapes: old name of `scratch_types`.
      compiler_params: a `CompilerParams` (of this module or of JAX's): compiler options, and whether and where to
        record.
      cost_estimate: accepted for compatibility; the simulator counts what is done.
      grid: CTAs along each grid axis; clusters, if `cluster` is given.
      grid_names: names of the grid axes, for `jax.lax.axis_index`.
      cluster: CTAs of a cluster along each cluster axis.
      cluster_names: names of the cluster axes.
      num_threads: warpgroups in a CTA; 1 if not given.
      thread_name: name of the axis that numbers the warpgroups.
      interpret: an `InterpretGPUParams`, or True for its defaults.
      debug: print the traced kernel before it runs.
      name, kernel_name: name in reports and traces; the body's own name if not given.

    Returns:
      A function from input arrays (pytrees) to outputs of the structure of `out_type`.

    Raises:
      KernelTypeError: arguments that contradict each other, or a body that misuses an operation (when called).

    Example:
      >>> import jax, jax.numpy as jnp, mgpu
      >>> def double(x_ref, out_ref):
      ...     out_ref[...] = x_ref[...] * 2
      >>> f = mgpu.kernel(double, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
      >>> f(jnp.ones(128, jnp.float32))[:2]
      Array([2., 2.], dtype=float32)
    """
    del cost_estimate
    out = _one_of("out_type", out_type, "out_shape", out_shape)
    if out is NOT_GIVEN:
        raise KernelTypeError("kernel: out_type is missing: give the shape and dtype of what the kernel writes.")
    scratch = _one_of("scratch_types", scratch_types, "scratch_shapes", scratch_shapes)
    shape = Launch(
        grid=tuple(grid),
        grid_names=tuple(grid_names),
        cluster=tuple(cluster),
        cluster_names=tuple(cluster_names),
        num_threads=1 if num_threads is None else num_threads,
        thread_name=thread_name,
    )
    params = accept_params("kernel:", compiler_params)

    def make(function: Callable[..., None]) -> Callable[..., Any]:
        return _Kernel(
            function,
            name=kernel_name or name or getattr(function, "__name__", None) or "kernel",
            out_type=out,
            scratch=() if scratch is NOT_GIVEN or scratch is None else scratch,
            shape=shape,
            params=with_environment(params),
            options=_options(interpret),
            interpret=interpret,
            debug=debug,
        )

    return make if body is NOT_GIVEN else make(body)


def _one_of(name: str, value: Any, old_name: str, old_value: Any) -> Any:
    if value is not NOT_GIVEN and old_value is not NOT_GIVEN:
        raise KernelTypeError(f"kernel: {name} and {old_name} are the same argument; give only {name}.")
    return old_value if value is NOT_GIVEN else value


def _options(interpret: Any) -> InterpretGPUParams:
    if interpret is None or isinstance(interpret, bool):
        interpret = InterpretGPUParams()
    if not isinstance(interpret, InterpretGPUParams):
        raise ParamsError(f"kernel: interpret must be an mgpu.InterpretGPUParams or a bool, got {interpret!r}.")
    factors = environment.compute_scale()
    if not factors:
        return interpret
    return dataclasses.replace(interpret, compute_scale={**interpret.compute_scale, **factors})


class _Kernel:
    """The function that `kernel` returns: traces once for each operand type and device, then launches."""

    def __init__(
        self,
        body: Callable[..., None],
        *,
        name: str,
        out_type: Any,
        scratch: Any,
        shape: Launch,
        params: CompilerParams,
        options: InterpretGPUParams,
        interpret: Any,
        debug: bool,
    ) -> None:
        functools.update_wrapper(self, body, updated=())
        self._body = body
        self._name = name
        self._out_type = out_type
        self._scratch = scratch
        self._launch = shape
        self._params = params
        self._options = options
        self._interpret = interpret
        self._debug = debug
        self._aliases: tuple[tuple[int, int], ...] = ()
        self._source: SourceLine | None = None
        self._programs: dict[Any, tuple[KernelProgram, list[Any]]] = {}
        self._batches: dict[Any, _Kernel] = {}
        self._prepared: dict[tuple[KernelProgram, DeviceChoice], SimulatedKernel] = {}
        self._on_gpu: dict[tuple[KernelProgram, Device], Callable[..., list[Any]]] = {}

    def with_aliases(self, aliases: Mapping[int, int]) -> _Kernel:
        """Lets outputs begin as the contents of inputs, by the numbers of both among the flat operands and outputs."""
        self._aliases = tuple(sorted(aliases.items()))
        return self

    def with_source(self, source: SourceLine) -> _Kernel:
        """Says where the author defined the kernel, if the body is only a wrapper."""
        self._source = source
        return self

    def __call__(self, *operands: Any) -> Any:
        flat, tree = jax.tree.flatten(operands)
        values = [value if isinstance(value, (jax.Array, np.ndarray)) else jnp.asarray(value) for value in flat]
        program, consts = self._program(tree, values)
        if runs_on_gpu(self._interpret):
            outputs = self._gpu_launcher(program, gpu_device())(*consts, *values)
        else:
            outputs = launch(self._simulated(program, current_choice(), tree), [*consts, *values])
        return jax.tree.unflatten(jax.tree.structure(self._out_type), outputs)

    def _program(self, tree: Any, values: Sequence[Any]) -> tuple[KernelProgram, list[Any]]:
        avals = tuple(ShapedArray(value.shape, jax.dtypes.canonicalize_dtype(value.dtype)) for value in values)
        key = (tree, avals, jnp.result_type(float))
        if key in self._programs:
            return self._programs[key]
        built = build_program(
            self._body,
            name=self._name,
            in_tree=tree,
            in_avals=avals,
            out_type=self._out_type,
            scratch=self._scratch,
            launch=self._launch,
            params=self._params,
        )
        if self._aliases:
            check_aliases(self._name, self._aliases, avals, built[0].out_avals)
            built = (dataclasses.replace(built[0], input_output_aliases=self._aliases), built[1])
        if self._source is not None:
            built = (dataclasses.replace(built[0], source=self._source), built[1])
        if self._debug:
            print(built[0].jaxpr)
        if not find_traced_values(built[1]):
            self._programs[key] = built
        return built

    def _simulated(self, program: KernelProgram, choice: DeviceChoice, tree: Any) -> SimulatedKernel:
        key = (program, choice)
        if key not in self._prepared:
            prepared = prepare(program, choice.device, choice.num_sms, self._options)
            self._prepared[key] = SimulatedKernel(prepared, batch=functools.partial(self._batched, tree))
        return self._prepared[key]

    def _batched(self, tree: Any, size: int, is_batched: tuple[bool, ...]) -> Callable[[list[Any]], list[Any]]:
        """Returns the kernel over a batch of `size`, as a function of its flat operands."""
        key = (tree, size, is_batched)
        if key not in self._batches:
            axis = batch_axis_name(self._launch)
            many = isinstance(self._out_type, (tuple, list))
            num_inputs, num_outputs = len(tree.children()), len(self._out_type) if many else 1
            self._batches[key] = _Kernel(
                batch_body(self._body, axis, num_inputs, num_outputs, is_batched, tree),
                name=self._name,
                out_type=jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape), x.dtype), self._out_type),
                scratch=self._scratch,
                shape=dataclasses.replace(
                    self._launch, grid=(*self._launch.grid, size), grid_names=(*self._launch.grid_names, axis)
                ),
                params=self._params,
                options=self._options,
                interpret=self._interpret,
                debug=self._debug,
            ).with_aliases(dict(self._aliases))
        batched = self._batches[key]
        return lambda flat: jax.tree.leaves(batched(*jax.tree.unflatten(tree, flat)))

    def _gpu_launcher(self, program: KernelProgram, device: Device) -> Callable[..., list[Any]]:
        # Imported here: it brings JAX's Mosaic GPU module, which the simulator does without.
        from mgpu.gpu.launch import GpuLauncher
        from mgpu.gpu.target import prepare as prepare_for_gpu

        key = (program, device)
        if key not in self._on_gpu:
            self._on_gpu[key] = GpuLauncher(prepare_for_gpu(program, device))
        return self._on_gpu[key]
