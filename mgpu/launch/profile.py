"""`mgpu.profile`: runs a JAX function and returns, beside its result, a Capture of every kernel that it launched."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend import core as jex_core

from mgpu.capture import Capture
from mgpu.environment import DEFAULT_PROFILE_SPACE, profile_dir, profile_window
from mgpu.errors import ParamsError, UnrecordedWarning
from mgpu.frontend.pallas_names import find_author
from mgpu.frontend.pallas_rules.translator import open_jaxpr
from mgpu.jax_internals import attributed_to_running_code, source_line
from mgpu.launch.from_pallas import from_pallas
from mgpu.launch.imported_pallas_call import is_pallas_call
from mgpu.launch.mesh import find_core_map
from mgpu.launch.operation import SimulatedKernel, launch, simulate_p
from mgpu.launch.rewriting import rewrite
from mgpu.launch.target_choice import gpu_device, runs_on_gpu
from mgpu.params import TraceScope
from mgpu.profile_dir import CAPTURE_FILE, list_launches, save_launch
from mgpu.profile_window import EVERYTHING, ProfileWindow
from mgpu.sim.simulation import PreparedKernel, prepare

if TYPE_CHECKING:
    from mgpu.gpu.recording import KernelRecorder


def profile(
    function: Callable[..., Any],
    *,
    profile_space: int = DEFAULT_PROFILE_SPACE,
    trace_scope: TraceScope = TraceScope.WARPGROUP,
    window: ProfileWindow = EVERYTHING,
) -> Callable[..., tuple[Any, list[Capture]]]:
    """Makes a function that returns `(function(*args), captures)`.

    It records the kernels of JAX's own Mosaic GPU module, unmodified, and those of `mgpu.kernel`, wherever `function`
    launches them. On a GPU they run there with the recorder inside; without one they are simulated.

    Args:
      function: a JAX function. Arguments that are no arrays are passed as they are.
      profile_space: events that each track can store.
      trace_scope: a track for each warpgroup, or for each warp: what warps do on their own shows in the latter only.
      window: the CTAs, warpgroups and iterations of each kernel that are recorded; by default all.

    Returns:
      A function of the same arguments. It runs eagerly; apply `jax.jit`, `jax.vmap` or `jax.grad` inside `function`.
      With MGPU_PROFILE_DIR set, as by `mgpu run --profile-dir`, the captures are also saved there.

    Raises:
      ParamsError: `profile_space` is not positive; when called: a kernel has no such window.
      Unsupported: when called: a kernel that cannot be simulated.

    Warns:
      UnrecordedWarning: on a GPU, of a `pl.pallas_call` for Mosaic GPU (JAX 0.10.2), which runs without a recorder.

    Example:
      >>> out, captures = mgpu.profile(attention)(q, k, v)  # doctest: +SKIP
      >>> profiler.report(profiler.build_trace(captures[0]))  # doctest: +SKIP
    """
    if isinstance(profile_space, bool) or not isinstance(profile_space, int) or profile_space < 1:
        raise ParamsError(f"profile: profile_space must be a positive number of events, got {profile_space!r}.")

    @functools.wraps(function)
    def profiled(*args: Any, **kwargs: Any) -> tuple[Any, list[Capture]]:
        flat, tree = jax.tree.flatten((args, kwargs))
        is_array = [isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in flat]
        arrays = [leaf for leaf, dynamic in zip(flat, is_array, strict=True) if dynamic]

        def call(*values: Any) -> Any:
            rest = iter(values)
            merged = [next(rest) if dynamic else leaf for leaf, dynamic in zip(flat, is_array, strict=True)]
            args, kwargs = jax.tree.unflatten(tree, merged)
            return function(*args, **kwargs)

        run = _run_on_gpu if runs_on_gpu(None) else _run_simulated
        result, captures = run(call, arrays, _Recording(profile_space, trace_scope, profile_window(window)))
        if directory := profile_dir(""):
            for capture in captures:
                save_launch(directory, capture)
        return result, captures

    return profiled


@dataclasses.dataclass(frozen=True)
class _Recording:
    """What is recorded, and how much of it."""

    capacity: int
    trace_scope: TraceScope
    window: ProfileWindow


def _run_on_gpu(call: Callable[..., Any], arrays: Sequence[Any], recording: _Recording) -> tuple[Any, list[Capture]]:
    run, tree, recorder = recorded_for_gpu(call, arrays, recording.capacity, recording.trace_scope, recording.window)
    results = jax.jit(run)(*arrays)
    jax.block_until_ready(results)
    jax.effects_barrier()  # the words have arrived
    return jax.tree.unflatten(tree, results), recorder.in_launch_order()


def recorded_for_gpu(
    call: Callable[..., Any],
    arrays: Sequence[Any],
    capacity: int,
    trace_scope: TraceScope,
    window: ProfileWindow = EVERYTHING,
) -> tuple[Callable[..., list[Any]], Any, KernelRecorder]:
    """Traces a function and puts a recorder into each of its kernels.

    Args:
      call: takes arrays.
      arrays: arrays of the types that it is traced for.
      capacity: events that each track can store.
      trace_scope: what a track is.
      window: the part of each launch that is recorded.

    Returns:
      A function from arrays to flat results, the tree of the results, and where captures go when it has run on a GPU.
    """
    # Imported here: it brings JAX's Mosaic GPU module, which the simulator does without.
    from mgpu.gpu.recording import KernelRecorder

    recorder = KernelRecorder(gpu_device(), capacity, trace_scope, window)
    with attributed_to_running_code(), jax.disable_jit(False):
        closed, shapes = jax.make_jaxpr(call, return_shape=True)(*arrays)
    closed = rewrite(closed, find_core_map)  # makes kernels of what JAX keeps as operations on refs
    unrecorded: dict[str, None] = {}

    def replace(equation: Any) -> Callable[..., Sequence[Any]] | None:
        if is_pallas_call(equation):
            author = find_author(open_jaxpr(equation.params["jaxpr"])[0], source_line(equation.source_info)).source
            unrecorded[f"{author} pallas_call {equation.params['name'] or author.function}"] = None
        return recorder.replace(equation)

    run = _function(rewrite(closed, replace))
    if unrecorded:
        # JAX makes its loop over the grid only while it compiles, so there is no whole kernel to put a recorder into.
        warnings.warn(
            f"profile: {', '.join(unrecorded)} runs on the GPU without being recorded. Write it as plgpu.kernel with "
            "plgpu.emit_pipeline, call mgpu.pallas_call instead, or set MGPU_TARGET=sim to record it on the simulator.",
            UnrecordedWarning,
            stacklevel=3,
        )
    return run, jax.tree.structure(shapes), recorder


def _run_simulated(call: Callable[..., Any], arrays: Sequence[Any], recording: _Recording) -> tuple[Any, list[Capture]]:
    closed, shapes = jax.make_jaxpr(from_pallas(call), return_shape=True)(*arrays)
    with tempfile.TemporaryDirectory() as directory:
        params = {
            "profile_space": recording.capacity,
            "profile_dir": directory,
            "profile_trace_scope": recording.trace_scope,
            "profile_window": recording.window,
        }

        def replace(equation: Any) -> Callable[..., Sequence[Any]] | None:
            if equation.primitive is not simulate_p:
                return None
            return lambda *operands: _launch(_recording(equation.params["kernel"].prepared, params), operands)

        results = _function(rewrite(closed, replace))(*arrays)
        jax.block_until_ready(results)
        captures = [Capture.load(Path(folder) / CAPTURE_FILE) for folder in list_launches(directory)]
    return jax.tree.unflatten(jax.tree.structure(shapes), results), captures


def _recording(kernel: PreparedKernel, params: Mapping[str, Any]) -> PreparedKernel:
    """Prepares a kernel again, with these compiler parameters."""
    program = dataclasses.replace(kernel.program, params=dataclasses.replace(kernel.program.params, **params))
    return prepare(program, kernel.device, kernel.num_sms, kernel.options)


def _launch(prepared: PreparedKernel, operands: Sequence[Any]) -> Sequence[Any]:
    return launch(SimulatedKernel(prepared), list(operands))


def _function(closed: Any) -> Callable[..., list[Any]]:
    jaxpr, consts = open_jaxpr(closed)
    return jex_core.jaxpr_as_fun(jex_core.ClosedJaxpr(jaxpr, consts))
