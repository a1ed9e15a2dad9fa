"""Accesses by the warpgroup itself, register layouts, and dependent launches."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from jax.experimental.pallas import mosaic_gpu

from mgpu.frontend.jax_layouts import register_layout
from mgpu.gpu.references import apply_transforms, single_barrier
from mgpu.gpu.rules.base import Call, Rule
from mgpu.lang.cluster_refs import PeerCtaTransform


def _load(call: Call) -> Any:
    (ref,) = call.operands
    keywords = {"layout": register_layout(call.params["layout"]), "optimized": call.params["optimized"]}
    load: Any = mosaic_gpu.load
    takes_index = "idx" in inspect.signature(load).parameters  # JAX 0.10.2
    return load(ref, (), **keywords) if takes_index else load(ref, **keywords)


def _store(call: Call) -> None:
    ref, value = call.operands
    store: Any = getattr(mosaic_gpu, "store", None)
    if store is not None:
        store(ref, value, optimized=call.params["optimized"])
    else:  # JAX 0.10.2 stores as it finds best
        ref[...] = value


def _atomic(call: Call) -> None:
    ref, value = call.operands
    getattr(mosaic_gpu, f"atomic_{call.params['operation']}")(ref, value)


def _async_store(call: Call) -> None:
    value = call.operands[0]
    (ref, (peer, *inside)), (barrier, (_, *slot)) = call.views[1:]
    assert isinstance(peer, PeerCtaTransform)  # the operation puts it first
    mosaic_gpu.async_store_smem(
        value,
        apply_transforms(ref, inside),
        single_barrier(apply_transforms(barrier, slot)),
        cluster_idx=peer.indices[0],
        cluster_dim=peer.axes[0],
        atomic=call.params["atomic"],
    )


RULES: Mapping[str, Rule] = {
    "load": _load,
    "store": _store,
    "atomic": _atomic,
    "async_store_smem": _async_store,
    "layout_cast": lambda call: mosaic_gpu.layout_cast(call.operands[0], register_layout(call.params["layout"])),
    "print_layout": lambda call: mosaic_gpu.print_layout(call.params["fmt"], call.operands[0]),
    "griddepcontrol_wait": lambda _: mosaic_gpu.griddepcontrol_wait(),
    "griddepcontrol_launch_dependents": lambda _: mosaic_gpu.griddepcontrol_launch_dependents(),
}
