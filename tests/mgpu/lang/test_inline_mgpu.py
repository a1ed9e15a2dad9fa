"""`inline_mgpu`: traces everywhere, lowers as JAX's own operation for a GPU; the simulator runs what needs no tiles."""

from typing import Any, cast

import jax
import jax.experimental.mosaic.gpu as mosaic
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

import mgpu
from mgpu.errors import KernelTypeError, Unsupported
from support.gpu_lowering import kernel_texts, lower_for_gpu

SHAPE = (128, 128)
X = np.ones(SHAPE, np.float32)


def _kernel(module, transforms=False, contexts=None):
    """Adds, inside inlined code, an array and a buffer; doubles the result in the language."""
    layout = module.Layout.WGMMA if transforms else module.Layout.WG_STRIDED(SHAPE, vec_size=4)
    tiled = (module.TilingTransform((8, 32)), module.SwizzleTransform(128)) if transforms else ()

    def body(x_ref, out_ref, smem, barrier):
        module.copy_gmem_to_smem(x_ref, smem, barrier)
        module.barrier_wait(barrier)
        ones = module.layout_cast(jnp.ones(SHAPE, jnp.float32), layout)

        @module.inline_mgpu(
            arg_types=({"ref": module.RefType(tiled), "array": layout},),
            return_type=[module.ShapeDtypeStruct(SHAPE, jnp.float32, layout=layout)],
        )
        def add(context: Any, arguments: Any) -> Any:
            if contexts is not None:
                contexts.append(type(context))
            if transforms:
                x = mosaic.FragmentedArray.load_tiled(arguments["ref"], swizzle=128)
            else:
                x = mosaic.FragmentedArray.load_strided(arguments["ref"], vec_size=4)
            return [x + arguments["array"]]

        (total,) = cast(Any, add)({"ref": smem, "array": ones})
        smem[...] = total * 2
        module.commit_smem()
        module.copy_smem_to_gmem(smem, out_ref)
        module.wait_smem_to_gmem(0)

    return module.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(SHAPE, jnp.float32),
        scratch_types=[module.SMEM(SHAPE, jnp.float32, transforms=tiled), module.Barrier()],
    )


def _arithmetic(text):
    return {name: text.count(name) for name in ("arith.addf", "arith.mulf", "vector.store", "llvm.store")}


@pytest.mark.parametrize("transforms", [False, True], ids=["row-major", "tiled"])
def test_lowers_as_jaxs_own_operation(transforms, monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    contexts = []
    (ours,) = kernel_texts(lower_for_gpu(_kernel(mgpu, transforms, contexts), X))
    (theirs,) = kernel_texts(lower_for_gpu(_kernel(plgpu, transforms, contexts), X))
    assert contexts[-1] is mosaic.LaunchContext
    assert _arithmetic(ours) == _arithmetic(theirs)
    assert _arithmetic(ours)["arith.addf"] > 0


@pytest.mark.parametrize("door", [lambda: _kernel(mgpu), lambda: mgpu.from_pallas(_kernel(plgpu))])
def test_the_simulator_runs_it(door):
    x = np.arange(X.size, dtype=np.float32).reshape(SHAPE)
    np.testing.assert_array_equal(door()(x), (x + 1) * 2)


@pytest.mark.parametrize("door", [lambda: _kernel(mgpu, True), lambda: mgpu.from_pallas(_kernel(plgpu, True))])
def test_the_simulator_refuses_tiles_at_the_users_line(door):
    with pytest.raises(Unsupported, match=r"test_inline_mgpu.py:\d+ inline_mgpu: .*takes a tiled ref.* RefType\(\)"):
        door()(X)


def _call(arg_types, return_type, *args):
    def body(x_ref, out_ref):
        operands = [x_ref if arg is None else arg for arg in args]
        mgpu.inline_mgpu(arg_types=arg_types, return_type=return_type)(lambda *_: None)(*operands)
        out_ref[...] = x_ref[...]

    return mgpu.kernel(body, out_type=jax.ShapeDtypeStruct(SHAPE, jnp.float32))(X)


@pytest.mark.parametrize(
    ("arg_types", "return_type", "args", "message"),
    [
        ((mgpu.Layout.WGMMA,), None, (None,), "argument 0 .* must be an array in Layout.WGMMA, got float32"),
        ((mgpu.RefType(),), None, (1.0,), "argument 0 .* must be a ref, got"),
        ((mgpu.RefType(),), None, (None, None), "Make them alike"),
        (("smem",), None, (None,), "arg_types holds 'smem'"),
        ((), jax.ShapeDtypeStruct(SHAPE, jnp.float32), (), "return_type holds"),
    ],
)
def test_misuse_is_refused_at_the_users_line(arg_types, return_type, args, message):
    with pytest.raises(KernelTypeError, match=rf"test_inline_mgpu.py:\d+ inline_mgpu: .*{message}"):
        _call(arg_types, return_type, *args)
