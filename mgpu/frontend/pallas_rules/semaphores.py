"""Semaphores and atomics of JAX's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import Unsupported
from mgpu.frontend.pallas_rules.allocations import allocation_type
from mgpu.frontend.pallas_rules.refs import ImportedRef, take_flat_view
from mgpu.frontend.pallas_rules.translator import Rule, Translator
from mgpu.jax_internals import current_source_line


def _signal(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    semaphore, (increment, device_id, core_index) = take_flat_view(equation.params["args_tree"], operands)
    if device_id is not None or core_index is not None:
        raise Unsupported(
            f"{current_source_line()} semaphore_signal: device_id names another GPU; one is simulated. "
            "Signal the semaphore of this device: leave device_id out."
        )
    mgpu.semaphore_signal(semaphore, increment, memory_scope=equation.params.get("memory_scope", "sys"))
    return []


def _wait(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    semaphore, (value, decrement) = take_flat_view(equation.params["args_tree"], operands)
    memory_scope = equation.params.get("memory_scope", "sys")
    mgpu.semaphore_wait(semaphore, value, decrement=bool(decrement), memory_scope=memory_scope)
    return []


def _read(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    semaphore, _ = take_flat_view(equation.params["args_tree"], operands)
    return [pl.semaphore_read(semaphore)]


def _atomic(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    ref, (value,) = take_flat_view(equation.params["args_tree"], operands)
    kind = equation.params["atomic_type"]
    getattr(mgpu, f"atomic_{str(getattr(kind, 'name', kind)).lower()}")(ref, value)
    return []


def _get_global(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator, operands
    return [ImportedRef(pl.get_global(allocation_type(equation.params["what"], ())))]


RULES: Mapping[str, Rule] = {
    "get_global": _get_global,
    "semaphore_signal": _signal,
    "semaphore_wait": _wait,
    "semaphore_read": _read,
    "mgpu_atomic_store": _atomic,
}
