"""Rewrites the jaxpr of a JAX function so that some of its equations do something else, wherever they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.extend import core as jex_core

from mgpu.frontend.pallas_rules.translator import is_jaxpr, open_jaxpr
from mgpu.jax_internals import at_equation, hide_from_source_lines

hide_from_source_lines(__file__)

Replace = Callable[[Any], Callable[..., Sequence[Any]] | None]
"""For an equation, what to call on its operands instead; None to leave it as it is."""

# Control flow is bound again around its rewritten jaxprs, and `shard_map` around its rewritten body; other calls (jit,
# custom_vjp, ...) are done in place, and so is `run_state`, with refs for its operands.
_REBOUND = frozenset({"scan", "while", "cond"})


def rewrite(closed: Any, replace: Replace) -> Any:
    """Returns a closed jaxpr in which equations are replaced, also those inside calls and control flow."""
    jaxpr, consts = open_jaxpr(closed)
    return jax.make_jaxpr(functools.partial(_evaluate, jaxpr, consts, replace))(*(var.aval for var in jaxpr.invars))


def _evaluate(jaxpr: Any, consts: Sequence[Any], replace: Replace, *operands: Any) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, operands, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jex_core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        with at_equation(equation):
            results = _perform(equation, [read(atom) for atom in equation.invars], replace)
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _perform(equation: Any, operands: list[Any], replace: Replace) -> Sequence[Any]:
    replacement = replace(equation)
    if replacement is not None:
        return replacement(*operands)
    name, params = equation.primitive.name, dict(equation.params)
    if _holds_replaced(equation, replace):
        if name == "shard_map":
            return _shard_map(params, operands, replace)
        if name == "run_state":
            return _run_state(params, operands, replace)
        if name not in _REBOUND:
            jaxpr, consts = open_jaxpr(next(value for _, value in sorted(params.items()) if is_jaxpr(value)))
            return _evaluate(jaxpr, consts, replace, *operands)
        params = {key: _rewrite_param(value, replace) for key, value in params.items()}
    results = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(params))
    return results if equation.primitive.multiple_results else [results]


def _run_state(params: dict[str, Any], operands: Sequence[Any], replace: Replace) -> Sequence[Any]:
    """Performs a `run_state`, whose jaxpr takes refs in place of the operands."""
    jaxpr, consts = open_jaxpr(params["jaxpr"])
    given = iter(operands)
    is_initialized = params.get("is_initialized") or (True,) * len(jaxpr.invars)
    start = [
        next(given) if known else jnp.zeros(var.aval.shape, var.aval.dtype)  # nobody reads what was not initialised
        for var, known in zip(jaxpr.invars, is_initialized, strict=True)
    ]

    def body(refs: Sequence[Any]) -> None:
        _evaluate(jaxpr, consts, replace, *refs)

    return pl.run_state(body)(start)


def _shard_map(params: dict[str, Any], operands: Sequence[Any], replace: Replace) -> Sequence[Any]:
    """Performs a `shard_map`: its jaxpr is rewritten where the names of its axes are known."""
    jaxpr, consts = open_jaxpr(params["jaxpr"])
    mapped = jax.shard_map(
        functools.partial(_evaluate, jaxpr, consts, replace),
        mesh=params["mesh"],
        in_specs=params["in_specs"],
        out_specs=list(params["out_specs"]),
        axis_names=params["newly_manual_axes"],
        check_vma=params["check_vma"],
    )
    return mapped(*operands)


def _rewrite_param(value: Any, replace: Replace) -> Any:
    if isinstance(value, tuple) and any(map(is_jaxpr, value)):
        return tuple(_rewrite_param(each, replace) for each in value)
    return rewrite(value, replace) if is_jaxpr(value) else value


def _holds_replaced(equation: Any, replace: Replace) -> bool:
    for value in equation.params.values():
        for each in value if isinstance(value, tuple) else (value,):
            if is_jaxpr(each):
                inner = open_jaxpr(each)[0].eqns
                if any(replace(e) is not None or _holds_replaced(e, replace) for e in inner):
                    return True
    return False
