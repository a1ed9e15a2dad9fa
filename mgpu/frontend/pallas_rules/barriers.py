"""Barriers, semaphores and registers of JAX's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.experimental import pallas as pl

import mgpu
from mgpu.frontend.pallas_rules.refs import split_leaves, take_view
from mgpu.frontend.pallas_rules.translator import Rule, Translator


def _barrier(equation: Any, operands: list[Any]) -> tuple[Any, Any]:
    """Returns the barrier, and the predicate if there is one."""
    tree = equation.params["transforms_treedef"]
    leaves, rest = split_leaves(operands[1:], tree)
    return take_view(operands[0], tree, leaves), rest[0] if rest else None


def _arrive(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    barrier, predicate = _barrier(equation, operands)
    if predicate is None:
        mgpu.barrier_arrive(barrier)
    else:
        pl.when(predicate)(lambda: mgpu.barrier_arrive(barrier))
    return []


def _wait(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    mgpu.barrier_wait(_barrier(equation, operands)[0])
    return []


def _arrive_and_wait(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    barrier, _ = _barrier(equation, operands)
    mgpu.barrier_arrive(barrier)
    mgpu.barrier_wait(barrier)
    return []


def _test(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    return [mgpu.barrier_test(_barrier(equation, operands)[0])]


def _set_max_registers(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    count = operands[0] if operands else equation.params["n"]  # an operand in JAX 0.10.2
    mgpu.set_max_registers(int(count), action=equation.params["action"])
    return []


RULES: Mapping[str, Rule] = {
    "barrier_arrive": _arrive,
    "barrier_wait": _wait,
    "barrier_arrive_and_wait": _arrive_and_wait,
    "barrier_test": _test,
    "set_max_registers": _set_max_registers,
}
