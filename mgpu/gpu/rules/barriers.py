"""mbarriers and register reallocation."""

from __future__ import annotations

from collections.abc import Mapping

from jax.experimental.pallas import mosaic_gpu

from mgpu.gpu.references import single_barrier
from mgpu.gpu.rules.base import Call, Rule


def _wait(call: Call) -> None:
    mosaic_gpu.barrier_wait(single_barrier(call.operands[0]))


def _arrive(call: Call) -> None:
    mosaic_gpu.barrier_arrive(single_barrier(call.operands[0]))


def _set_max_registers(call: Call) -> None:
    mosaic_gpu.set_max_registers(call.params["n"], action=call.params["action"])


RULES: Mapping[str, Rule] = {
    "barrier_wait": _wait,
    "barrier_arrive": _arrive,
    "set_max_registers": _set_max_registers,
}
