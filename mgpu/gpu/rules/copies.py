"""TMA copies and the fence that they need."""

from __future__ import annotations

from collections.abc import Mapping

from jax.experimental.pallas import mosaic_gpu

from mgpu.gpu.references import single_barrier
from mgpu.gpu.rules.base import Call, Rule


def _load(call: Call) -> None:
    src, dst, barrier = call.operands
    mosaic_gpu.copy_gmem_to_smem(src, dst, single_barrier(barrier))


def _store(call: Call) -> None:
    src, dst, predicate = call.operands
    mosaic_gpu.copy_smem_to_gmem(src, dst, predicate, commit_group=call.params["commit_group"])


def _wait(call: Call) -> None:
    mosaic_gpu.wait_smem_to_gmem(call.params["n"], wait_read_only=call.params["wait_read_only"])


RULES: Mapping[str, Rule] = {
    "copy_gmem_to_smem": _load,
    "copy_smem_to_gmem": _store,
    "wait_smem_to_gmem": _wait,
    "commit_smem": lambda _: mosaic_gpu.commit_smem(),
    "commit_smem_to_gmem_group": lambda _: mosaic_gpu.commit_smem_to_gmem_group(),
}
