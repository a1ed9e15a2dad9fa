"""Hopper's tensor core in JAX's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mgpu
from mgpu.frontend.pallas_rules.refs import split_leaves, take_view
from mgpu.frontend.pallas_rules.translator import Rule, Translator


def _wgmma(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    trees = [equation.params[f"{name}_transforms_tree"] for name in ("acc", "a", "b")]
    *leaves, _ = split_leaves(operands[3:], *trees)
    acc, a, b = (take_view(*each) for each in zip(operands[:3], trees, leaves, strict=True))
    mgpu.wgmma(acc, a, b)
    return []


def _wgmma_wait(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    mgpu.wgmma_wait(int(operands[0] if operands else equation.params["n"]))  # an operand in JAX 0.10.2
    return []


def _accumulator_load(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    (acc,) = operands
    return [mgpu.wgmma_accumulator_load(acc.ref, wait_n=equation.params["wait_n"])]


def _accumulator_store(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator, equation
    acc, value = operands
    acc.ref[...] = value
    return [value]


RULES: Mapping[str, Rule] = {
    "wgmma_ref": _wgmma,
    "wgmma_wait": _wgmma_wait,
    "wgmma_accumulator_deref": _accumulator_load,
    "wgmma_accumulator_store": _accumulator_store,
}
