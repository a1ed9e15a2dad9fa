"""mbarriers, semaphores and register reallocation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax.experimental.pallas import mosaic_gpu

from mgpu.gpu.references import single_barrier
from mgpu.gpu.rules.base import Call, Rule, call_if


def _wait(call: Call) -> None:
    mosaic_gpu.barrier_wait(single_barrier(call.operands[0]))


def _arrive(call: Call) -> None:
    barrier, predicate = call.operands
    call_if(predicate, mosaic_gpu.barrier_arrive, single_barrier(barrier))


def _test(call: Call) -> Any:
    if not call.in_warp and jax.__version_info__ < (0, 11):
        raise call.unsupported(
            f"testing a barrier by a whole warpgroup under JAX {jax.__version__}",
            "Do it in a region of mgpu.warp_map, or use JAX 0.12.",
        )
    return mosaic_gpu.barrier_test(single_barrier(call.operands[0]))


def _set_max_registers(call: Call) -> None:
    mosaic_gpu.set_max_registers(call.params["n"], action=call.params["action"])


def _signal(call: Call) -> None:
    semaphore, increment = call.operands
    mosaic_gpu.semaphore_signal(semaphore, increment, memory_scope=call.params["memory_scope"])


def _semaphore_wait(call: Call) -> None:
    semaphore, value = call.operands
    mosaic_gpu.semaphore_wait(
        semaphore, value, decrement=call.params["decrement"], memory_scope=call.params["memory_scope"]
    )


RULES: Mapping[str, Rule] = {
    "barrier_wait": _wait,
    "barrier_arrive": _arrive,
    "barrier_test": _test,
    "set_max_registers": _set_max_registers,
    "mgpu_semaphore_signal": _signal,
    "mgpu_semaphore_wait": _semaphore_wait,
}
