"""`mgpu.from_pallas`: runs the kernels that a JAX function launches through JAX's own Mosaic GPU module."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend import core as jex_core

from mgpu.frontend.from_pallas import import_kernel, is_kernel_equation
from mgpu.frontend.pallas_rules.translator import open_jaxpr
from mgpu.jax_internals import attributed_to_running_code, hide_from_source_lines, without_own_refs
from mgpu.launch.device_choice import DeviceChoice, current_choice
from mgpu.launch.gpu_presence import as_if_on_gpu
from mgpu.launch.imported_pallas_call import is_pallas_call, run_pallas_call
from mgpu.launch.mesh import find_core_map
from mgpu.launch.operation import SimulatedKernel, launch
from mgpu.launch.recording import with_environment
from mgpu.launch.rewriting import rewrite
from mgpu.launch.transformable import make_transformable
from mgpu.params import CompilerParams
from mgpu.sim.options import InterpretGPUParams
from mgpu.sim.simulation import prepare

hide_from_source_lines(__file__)


def from_pallas(
    function: Callable[..., Any],
    *,
    interpret: InterpretGPUParams | None = None,
    compiler_params: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Makes a function that does what `function` does, with its Mosaic GPU kernels on this backend.

    Kernels are those launched through `jax.experimental.pallas.mosaic_gpu`, wherever in `function`: inside `jax.jit`,
    loops, `vmap`, `grad`. Everything else runs as JAX runs it. While `function` is traced, JAX's devices say that they
    have as many SMs as the simulated GPU.

    Args:
      function: a JAX function. Arrays among its arguments may be traced; all other arguments (numbers, strings,
        configuration objects) are passed as they are, and the function is traced again for others.
      interpret: how to simulate, for every kernel.
      compiler_params: fields of `CompilerParams` to set in every kernel, instead of the kernel's own values:
        `{"profile_space": 512, "profile_dir": "build/profile"}` records kernels that do not ask for it themselves.
        The environment (MGPU_PROFILE_DIR) has the last word, as for `kernel`.

    Returns:
      A function of the same arguments and results. It takes `jax.jit`, `jax.vmap` and reverse-mode derivatives where
      `function` does.

    Raises:
      Unsupported: when called: a kernel needs what the simulated GPU does not have; names the author's line.

    Example:
      >>> from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu
      >>> config = hopper_matmul_mgpu.TuningConfig(128, 128, 64, max_concurrent_steps=4)
      >>> matmul = mgpu.from_pallas(hopper_matmul_mgpu.matmul)
      >>> c = matmul(a, b, None, config)  # doctest: +SKIP
    """
    return _Imported(function, interpret or InterpretGPUParams(), dict(compiler_params or {}))


_NONE = CompilerParams()  # of a kernel that asks for nothing


class _Imported:
    """The function that `from_pallas` returns: traces once for each operand type, device and static argument."""

    def __init__(self, function: Callable[..., Any], options: InterpretGPUParams, params: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._options = options
        self._params = params
        self._imported: dict[Hashable, tuple[Any, Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        is_array = tuple(isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in leaves)
        arrays = [leaf for leaf, dynamic in zip(leaves, is_array, strict=True) if dynamic]
        static = [None if dynamic else leaf for leaf, dynamic in zip(leaves, is_array, strict=True)]

        def call(*values: Any) -> Any:
            rest = iter(values)
            merged = [next(rest) if dynamic else leaf for leaf, dynamic in zip(static, is_array, strict=True)]
            args, kwargs = jax.tree.unflatten(tree, merged)
            return self._function(*args, **kwargs)

        if any(isinstance(value, Tracer) for value in arrays):
            return make_transformable(self._run, call)(*map(jnp.asarray, arrays))
        key = _key(tree, is_array, static, arrays, current_choice())
        if key not in self._imported:
            imported = self._import(call, arrays)
            if key is None or any(isinstance(value, Tracer) for value in open_jaxpr(imported[0])[1]):
                return _evaluate(*imported, arrays)
            self._imported[key] = imported
        return _evaluate(*self._imported[key], arrays)

    def _run(self, function: Callable[..., Any], *operands: Any) -> Any:
        flat, tree = jax.tree.flatten(operands)
        imported = self._import(lambda *values: function(*jax.tree.unflatten(tree, values)), flat)
        return _evaluate(*imported, flat)

    def _import(self, function: Callable[..., Any], arrays: Sequence[Any]) -> tuple[Any, Any]:
        """Returns the jaxpr of `function` with its kernels imported, closed, and the tree of its results."""
        choice = current_choice()
        # Loops of its kernels stay loops, whatever the caller has set.
        with as_if_on_gpu(choice), attributed_to_running_code(), jax.disable_jit(False):
            closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arrays)
        importer = _Importer(choice, self._options, self._params)
        return without_own_refs(rewrite(closed, importer.replace)), jax.tree.structure(shapes)


def _key(
    tree: Any, is_array: tuple[bool, ...], static: Sequence[Any], arrays: Sequence[Any], choice: DeviceChoice
) -> Hashable | None:
    """Returns what a trace depends on; None if a static argument cannot be compared."""
    types = tuple((np.shape(x), jnp.result_type(x), bool(getattr(x, "weak_type", False))) for x in arrays)
    key = (
        tree,
        is_array,
        tuple((type(x), x) for x in static),
        types,
        choice,
        jnp.result_type(float),
        with_environment(_NONE),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _evaluate(closed: Any, tree: Any, operands: Sequence[Any]) -> Any:
    jaxpr, consts = open_jaxpr(closed)
    results = jex_core.jaxpr_as_fun(jex_core.ClosedJaxpr(jaxpr, consts))(*operands)
    return jax.tree.unflatten(tree, results)


class _Importer:
    """Replaces the kernels in the jaxpr of a JAX function by launches here."""

    def __init__(self, choice: DeviceChoice, options: InterpretGPUParams, params: Mapping[str, Any]) -> None:
        self._choice = choice
        self._options = options
        self._params = params
        self._trees: tuple[Any, Any] | None = None

    def replace(self, equation: Any) -> Callable[..., Sequence[Any]] | None:
        """Returns what to do in place of an equation (see `rewriting.rewrite`)."""
        if "in_tree" in equation.params and "out_tree" in equation.params:  # JAX's wrapper around each kernel
            self._trees = equation.params["in_tree"], equation.params["out_tree"]
        if is_kernel_equation(equation):
            return functools.partial(self._launch, equation, self._trees)
        if is_pallas_call(equation):
            return lambda *operands: run_pallas_call(equation, operands, self._options, self._params)
        return find_core_map(equation)

    def _launch(self, equation: Any, trees: tuple[Any, Any] | None, *operands: Any) -> Sequence[Any]:
        found = import_kernel(equation, operands, self._params, trees)
        program = dataclasses.replace(found.program, params=with_environment(found.program.params))
        prepared = prepare(program, self._choice.device, self._choice.num_sms, self._options)
        results = launch(SimulatedKernel(prepared), list(found.operands))
        num_results = len(results) - len(found.written)
        for ref, value in zip(found.written, results[num_results:], strict=True):
            ref[...] = value
        return results[:num_results]
