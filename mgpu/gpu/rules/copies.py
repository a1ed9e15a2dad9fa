"""TMA copies and the fence that they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.experimental.pallas import mosaic_gpu

from mgpu.gpu.references import single_barrier
from mgpu.gpu.rules.base import Call, Rule, call_if


def _load(call: Call) -> None:
    src, dst, barrier, predicate = call.operands
    params = call.params
    call_if(
        predicate,
        mosaic_gpu.copy_gmem_to_smem,
        src,
        dst,
        single_barrier(barrier),
        collective_axes=params["collective_axes"] or None,
        leader_tracked=_partition(params["partition"], params["axis"]),
        oob_mode=mosaic_gpu.OOBFillMode[params["oob_mode"]],
    )


def _partition(partition: str | None, axis: int | None) -> Any:
    if partition is None:
        return None
    kinds: Any = mosaic_gpu.CopyPartition
    return kinds.PARTITIONED(axis) if partition == "partitioned" else kinds.REPLICATED


def _store(call: Call) -> None:
    src, dst, predicate = call.operands
    params = call.params
    mosaic_gpu.copy_smem_to_gmem(
        src, dst, predicate, commit_group=params["commit_group"], reduction_op=params["reduction_op"]
    )


def _prefetch(call: Call) -> None:
    ref, predicate = call.operands
    call_if(predicate, mosaic_gpu.async_prefetch, ref, collective_axes=call.params["collective_axes"] or None)


def _wait(call: Call) -> None:
    mosaic_gpu.wait_smem_to_gmem(call.params["n"], wait_read_only=call.params["wait_read_only"])


RULES: Mapping[str, Rule] = {
    "copy_gmem_to_smem": _load,
    "copy_smem_to_gmem": _store,
    "async_prefetch": _prefetch,
    "wait_smem_to_gmem": _wait,
    "commit_smem": lambda _: mosaic_gpu.commit_smem(),
    "commit_smem_to_gmem_group": lambda _: mosaic_gpu.commit_smem_to_gmem_group(),
}
