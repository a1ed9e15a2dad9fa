"""Hopper's tensor core."""

from __future__ import annotations

from collections.abc import Mapping

from jax.experimental.pallas import mosaic_gpu

from mgpu.gpu.rules.base import Rule

RULES: Mapping[str, Rule] = {
    "wgmma": lambda call: mosaic_gpu.wgmma(*call.operands),
    "wgmma_wait": lambda call: mosaic_gpu.wgmma_wait(call.params["n"]),
    "wgmma_accumulator_load": lambda call: mosaic_gpu.wgmma_accumulator_load(
        call.operands[0], wait_n=call.params["wait_n"]
    ),
}
