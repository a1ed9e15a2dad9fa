"""Operations of JAX's language that the simulated Hopper GPU does not have: what each one needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from mgpu.errors import Unsupported
from mgpu.frontend.pallas_rules.translator import Rule, Translator
from mgpu.jax_internals import current_source_line

_BLACKWELL = (
    "tcgen05_mma",
    "tcgen05_commit_arrive",
    "commit_tmem",
    "async_load",
    "wait_load_tmem",
    "async_store_tmem",
    "async_copy_scales_to_tmem",
    "async_copy_sparse_metadata_to_tmem",
    "async_copy_smem_to_tmem",
    "try_cluster_cancel",
    "query_cluster_cancel",
)
_SEVERAL_GPUS = ("multimem_store", "multimem_load_reduce", "semaphore_signal_multicast", "semaphore_signal_parallel")


def _refuse(needs: str, instead: str) -> Rule:
    def rule(translator: Translator, equation: Any, operands: list[Any]) -> NoReturn:
        del translator, operands
        name = equation.primitive.name.removesuffix("_p")
        raise Unsupported(f"{current_source_line()} {name}: needs {needs}. {instead}")

    return rule


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_BLACKWELL, _refuse("a Blackwell GPU; the simulated GPU is Hopper", "Use wgmma, SMEM and ACC.")),
    "mma": _refuse("warp-level tensor-core instructions (mma.sync), which are not simulated", "Use wgmma and ACC."),
    **dict.fromkeys(_SEVERAL_GPUS, _refuse("several GPUs; one is simulated", "Run the kernel of one device.")),
}
