"""Traces a kernel body into a KernelProgram.

The body runs once under `jax.make_jaxpr` with the launch's axes bound. Its refs come from two nested `pl.run_scoped`
calls: the outer one stands for the GMEM operands, the inner one allocates the scratch. So one mechanism serves GMEM,
SMEM, barriers and accumulators, and a closed-over array arrives as an extra operand.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.core import ShapedArray, Tracer
from jax.experimental import pallas as pl
from jax.extend import core as jex_core

from mgpu.errors import KernelTypeError
from mgpu.frontend.program import KernelProgram, Launch
from mgpu.frontend.trace_errors import explained_errors, outlived
from mgpu.jax_internals import (
    SourceLine,
    TransformedRef,
    attributed_to,
    current_trace,
    line_of_escaped_value,
    tracing_grid,
)
from mgpu.lang.memory import GMEM
from mgpu.lang.scoped import name_parameters
from mgpu.params import CompilerParams


def check_launch(launch: Launch) -> None:
    """Checks the axes of a launch.

    Raises:
      KernelTypeError: names and sizes that do not match, a size below 1, a name used twice, threads without a name.
    """
    for what, sizes, names in (
        ("grid", launch.grid, launch.grid_names),
        ("cluster", launch.cluster, launch.cluster_names),
    ):
        if len(sizes) != len(names):
            raise KernelTypeError(
                f"kernel: {what}={sizes} has {len(sizes)} axes but {what}_names={names} names {len(names)}. "
                f"Give one name for each axis."
            )
        if any(size < 1 for size in sizes):
            raise KernelTypeError(f"kernel: {what}={sizes} has an axis below 1; every axis needs at least one CTA.")
    if launch.num_threads < 1:
        raise KernelTypeError(f"kernel: num_threads={launch.num_threads}; a CTA has at least one warpgroup.")
    if launch.num_threads > 1 and launch.thread_name is None:
        raise KernelTypeError(
            f"kernel: num_threads={launch.num_threads} without thread_name: warpgroups could not tell who they are. "
            "Give thread_name='wg' and ask with jax.lax.axis_index('wg')."
        )
    names = [*launch.grid_names, *launch.cluster_names, *([launch.thread_name] if launch.thread_name else [])]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise KernelTypeError(
            f"kernel: axis name {repeated[0]!r} is used twice; grid, cluster and thread names differ."
        )


def build_program(
    body: Callable[..., None],
    *,
    name: str,
    in_tree: Any,
    in_avals: Sequence[ShapedArray],
    out_type: Any,
    scratch: Any,
    launch: Launch,
    params: CompilerParams,
) -> tuple[KernelProgram, list[Any]]:
    """Traces `body` for operands of the given types.

    Args:
      body: takes the input refs (as the pytrees of `in_tree`), the output refs, then the scratch refs.
      name: name of the kernel.
      in_tree: tree of the positional inputs: a tuple of pytrees.
      in_avals: shape and dtype of the flat inputs.
      out_type: pytree of shape-dtype structs. A tuple or list gives one ref argument for each entry.
      scratch: sequence (positional refs) or mapping (keyword refs) of allocation types, which may nest.
      launch: grid, cluster, warpgroups.
      params: compiler parameters.

    Returns:
      The program, and the values of the arrays that the body closed over.

    Raises:
      KernelTypeError: the body does not take these refs, returns something, or an operation is misused.
    """
    check_launch(launch)
    flat_out, _ = jax.tree.flatten(out_type)
    out_avals = tuple(ShapedArray(x.shape, x.dtype) for x in flat_out)
    flat_scratch, scratch_tree = jax.tree.flatten(scratch, is_leaf=_is_allocation)
    takes_many = isinstance(out_type, (tuple, list))

    def with_gmem(*gmem: Any) -> None:
        inputs = jax.tree.unflatten(in_tree, gmem[: len(in_avals)])
        outputs = jax.tree.unflatten(jax.tree.structure(out_type), gmem[len(in_avals) :])
        positional = (*inputs, *(outputs if takes_many else (outputs,)))

        def with_scratch(*refs: Any) -> None:
            scratch_refs = jax.tree.unflatten(scratch_tree, refs)
            keywords = scratch_refs if isinstance(scratch_refs, Mapping) else {}
            extra = () if keywords else tuple(scratch_refs)
            _check_call(body, name, (*positional, *extra), keywords)
            result = body(*positional, *extra, **keywords)
            if result is not None:
                raise KernelTypeError(
                    f"{_source_of(body)} kernel {name}: the body must return None, got {_type_of(result)}. Write to "
                    "the output refs."
                )

        with_scratch = name_parameters(with_scratch, scratch_names)
        pl.run_scoped(with_scratch, *flat_scratch, collective_axes=launch.thread_name or ())

    operand_names, scratch_names = _argument_names(body, in_tree, out_type, scratch_tree, len(in_avals), len(out_avals))
    refs = [GMEM(aval.shape, aval.dtype) for aval in (*in_avals, *out_avals)]

    own_trace: list[object] = []

    def whole() -> None:
        own_trace.append(current_trace())
        pl.run_scoped(with_gmem, *refs, collective_axes=launch.thread_name or ())

    # Loops stay loops, even where the caller's own code runs operation by operation.
    source = _source_of(body)
    with (
        explained_errors(name, source, launch),
        tracing_grid(launch.grid),
        attributed_to(None),
        jax.disable_jit(False),
    ):
        closed = jax.make_jaxpr(whole, axis_env=list(launch.axis_sizes.items()))()
    top = getattr(closed, "jaxpr", closed)
    (equation,) = top.eqns
    values = dict(zip(top.constvars, closed.consts, strict=True))
    consts = [var.val if isinstance(var, jex_core.Literal) else values[var] for var in equation.invars]
    for value in consts:
        line = line_of_escaped_value(value, own_trace[0])
        if line is not None:
            raise outlived(value.aval, line if line.line else source, name)
    jaxpr = equation.params["jaxpr"]
    program = KernelProgram(
        name=name,
        source=source,
        jaxpr=getattr(jaxpr, "jaxpr", jaxpr),
        launch=launch,
        in_avals=tuple(in_avals),
        out_avals=out_avals,
        operand_names=operand_names,
        num_consts=len(consts),
        params=params,
    )
    return program, consts


def _type_of(result: Any) -> str:
    return str(getattr(result, "aval", type(result).__name__))


def _is_allocation(value: Any) -> bool:
    return hasattr(value, "get_ref_aval")


def _check_call(body: Callable[..., None], name: str, positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(body)
    except (TypeError, ValueError):
        return  # a built-in or C callable has no signature; calling it will tell
    try:
        signature.bind(*positional, **keywords)
    except TypeError as error:
        given = f"{len(positional)} positional refs" + (f" and {', '.join(keywords)}" if keywords else "")
        raise KernelTypeError(
            f"{_source_of(body)} kernel {name}: the body takes {signature}, but is given {given} "
            f"(inputs, outputs, scratch): {error}."
        ) from error


def _source_of(body: Callable[..., None]) -> SourceLine:
    function: Any = body
    while hasattr(function, "func"):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    return SourceLine(code.co_filename, code.co_firstlineno, code.co_name) if code else SourceLine("", 0, str(body))


def _argument_names(
    body: Callable[..., None], in_tree: Any, out_type: Any, scratch_tree: Any, num_inputs: int, num_outputs: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the body's own names for its GMEM refs and its scratch refs, flat."""
    inputs = jax.tree.unflatten(in_tree, range(num_inputs))
    outputs = jax.tree.unflatten(jax.tree.structure(out_type), range(num_outputs))
    scratch = jax.tree.unflatten(scratch_tree, range(scratch_tree.num_leaves))
    many = isinstance(out_type, (tuple, list))
    positional = [*inputs, *(outputs if many else [outputs])]
    num_gmem = len(positional)
    keywords = scratch if isinstance(scratch, Mapping) else {}
    positional += [] if keywords else list(scratch)
    try:
        parameters = list(inspect.signature(body).parameters)
    except (TypeError, ValueError):
        parameters = []
    parameters += [f"arg{i}" for i in range(len(parameters), len(positional))]
    named = [_leaf_names(name, value) for name, value in zip(parameters, positional, strict=False)]
    gmem = [leaf for names in named[:num_gmem] for leaf in names]
    scratch_names = [leaf for names in named[num_gmem:] for leaf in names]
    # Mappings flatten in sorted key order, as jax.tree does.
    scratch_names += [leaf for key in sorted(keywords) for leaf in _leaf_names(str(key), keywords[key])]
    return tuple(gmem), tuple(scratch_names)


def _leaf_names(name: str, value: Any) -> list[str]:
    return [name + jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(value)]


def find_traced_values(values: Sequence[Any]) -> list[Any]:
    """Returns those of `values` that belong to an enclosing trace and so must not be kept beyond it."""
    return [value for value in values if isinstance(value, (Tracer, TransformedRef))]
