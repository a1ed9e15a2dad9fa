"""Both public surfaces side by side: every name and signature of JAX's module, and what is not here and why."""

import inspect
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import pytest

import mgpu

BLACKWELL = "tensor memory, tcgen05 and cluster launch control are Blackwell's"
DEVICES = "addresses other GPUs; one is simulated"
JAX_INTERPRETER = "options of JAX's own interpreter; pass interpret=mgpu.InterpretGPUParams(...)"
AMPERE = "for GPUs before Hopper"

MISSING = {
    "TMEM": BLACKWELL,
    "TMEMLayout": BLACKWELL,
    "TryClusterCancelResult": BLACKWELL,
    "async_copy_scales_to_tmem": BLACKWELL,
    "async_copy_smem_to_tmem": BLACKWELL,
    "async_copy_sparse_metadata_to_tmem": BLACKWELL,
    "async_load_tmem": BLACKWELL,
    "async_store_tmem": BLACKWELL,
    "commit_tmem": BLACKWELL,
    "format_tcgen05_sparse_metadata": BLACKWELL,
    "query_cluster_cancel": BLACKWELL,
    "tcgen05_commit_arrive": BLACKWELL,
    "tcgen05_mma": BLACKWELL,
    "try_cluster_cancel": BLACKWELL,
    "wait_load_tmem": BLACKWELL,
    "PeerMemRef": DEVICES,
    "multimem_load_reduce": DEVICES,
    "multimem_store": DEVICES,
    "remote_ref": DEVICES,
}
MISSING_OF_NEWER_JAX = {
    "alloc_semaphore": DEVICES,
    "force_gpu_interpret_mode": JAX_INTERPRETER,
    "set_gpu_interpret_mode": JAX_INTERPRETER,
    "mma": AMPERE,
    "wait_gmem_to_smem": AMPERE,
    "im2col_ref": "convolution views; slice the input by hand",
}
# Parameters whose default differs, because JAX's two versions differ.
OTHER_DEFAULTS = {
    ("Barrier", "num_barriers"): "1 or (): one barrier either way",
    ("ClusterBarrier", "num_barriers"): "1 or (): one barrier either way",
    ("BlockSpec", "collective_axes"): "() or None: not collective either way",
    ("CompilerParams", "lowering_semantics"): "Lane in 0.10, Warpgroup in 0.12",
    ("kernel", "body"): "a marker of its own for a missing argument",
    ("kernel", "out_shape"): "a marker of its own for a missing argument",
    ("kernel", "out_type"): "a marker of its own for a missing argument",
    ("kernel", "scratch_types"): "a marker of its own for a missing argument",
    ("kernel", "scratch_shapes"): "a marker of its own for a missing argument",
    ("copy_gmem_to_smem", "barrier"): "required in 0.10",
    ("copy_gmem_to_smem", "oob_mode"): "None means ZEROS",
    ("load", "idx"): "required in 0.10, gone in 0.12",
}
# Parameters that only newer JAX has and that mean nothing here.
NOT_TAKEN = {
    ("CompilerParams", "profile_bounds_check"): "events that do not fit are always counted",
    ("CompilerParams", "skip_device_barrier"): DEVICES,
    ("CompilerParams", "is_multi_process"): DEVICES,
    ("kernel", "mesh_kwargs"): "named arguments of their own",
}
IS_OLDEST = jax.__version_info__ < (0, 11)
NAMES = sorted(name for name in dir(plgpu) if not name.startswith("_"))


def test_every_public_name_is_here_or_listed_with_its_reason():
    missing = {name for name in NAMES if name not in mgpu.__all__}
    expected = set(MISSING) if IS_OLDEST else set(MISSING) | set(MISSING_OF_NEWER_JAX)
    assert missing == expected & set(NAMES)
    assert missing >= set(MISSING), "a listed name has arrived: take it off the list"


def _parameters(function) -> Any:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    return {name: p for name, p in signature.parameters.items() if not name.startswith("_")}


def _is_enum(value):
    return hasattr(value, "__members__")


COMPARABLE = [
    name
    for name in NAMES
    if name in mgpu.__all__
    and name != "InterpretGPUParams"
    and not _is_enum(getattr(plgpu, name))
    and _parameters(getattr(plgpu, name)) is not None
    and name not in ("Transform", "WarpMesh")
]


@pytest.mark.parametrize("name", COMPARABLE)
def test_signatures_take_what_jaxs_take(name):
    theirs, ours = _parameters(getattr(plgpu, name)), _parameters(getattr(mgpu, name))
    assert ours is not None
    for parameter, wanted in theirs.items():
        if (name, parameter) in NOT_TAKEN and parameter not in ours:
            continue
        assert parameter in ours, f"{name} does not take {parameter}"
        got = ours[parameter]
        assert got.kind is wanted.kind or got.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD, (name, parameter)
        if (name, parameter) not in OTHER_DEFAULTS:
            assert _comparable(got.default) == _comparable(wanted.default), (name, parameter)
    positional = [p for p, v in theirs.items() if v.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    in_our_order = [p for p in ours if p in positional]
    assert in_our_order == positional, f"{name}: positional parameters come in another order"
    for parameter, extra in ours.items():
        if parameter not in theirs:
            assert extra.default is not inspect.Parameter.empty or extra.kind is inspect.Parameter.VAR_KEYWORD, (
                parameter
            )


def _comparable(default):
    """Enumerations and callables of two modules are the same if their names are."""
    return getattr(default, "name", None) or getattr(default, "__name__", None) or default


@pytest.mark.parametrize("name", [name for name in NAMES if name in mgpu.__all__ and _is_enum(getattr(plgpu, name))])
def test_enumerations_have_jaxs_members(name):
    blackwell_or_newer = {"TMEM", "MMA_LHS", "MMA_RHS", "MMA_ACC"}
    theirs = {member for member in getattr(plgpu, name).__members__ if not member.startswith("_")}
    assert theirs - set(getattr(mgpu, name).__members__) <= blackwell_or_newer


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        *((name, "Blackwell") for name, why in MISSING.items() if why == BLACKWELL),
        *((name, "several GPUs") for name, why in MISSING.items() if why == DEVICES),
        *((name, "before Hopper") for name, why in MISSING_OF_NEWER_JAX.items() if why == AMPERE),
        *((name, "interpret=mgpu") for name, why in MISSING_OF_NEWER_JAX.items() if why == JAX_INTERPRETER),
        ("alloc_semaphore", "several GPUs"),
        ("im2col_ref", "slices"),
    ],
)
def test_a_name_of_other_gpus_says_what_it_needs(name, needs):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': it needs .*{needs}"):
        getattr(mgpu, name)
