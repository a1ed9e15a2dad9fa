"""Inlined code, lane by lane: what each lane computes, exchanges and writes, against NumPy."""

import inspect
from typing import Any

import jax
import jax.experimental.mosaic.gpu as mosaic
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import arith, math, memref, scf, vector

import mgpu
from mgpu.capture import Capture
from mgpu.errors import OutOfBoundsError, Unsupported

LANES = np.arange(128)
STRIDED = (256,)


def _layouts(module):
    return {
        "wgmma": ((64, 32), module.Layout.WGMMA),
        "rows": ((64,), module.Layout.WGMMA.reduce(1)),
        "strided": (STRIDED, module.Layout.WG_STRIDED(STRIDED, vec_size=2)),
    }


def _each_register(array, apply):
    """Returns an array of the compiler's whose registers are `apply(register)`."""
    registers = np.empty(array.registers.shape, dtype=object)
    for index, register in np.ndenumerate(array.registers):
        registers[index] = apply(register)
    return mosaic.FragmentedArray(_registers=registers, _layout=array.layout, _is_signed=array.is_signed)


def _map(module, name, apply, dtype=jnp.float32):
    """Returns a kernel that applies inlined code to an array in registers."""
    shape, layout = _layouts(module)[name]

    def body(x_ref, out_ref):
        inlined = module.inline_mgpu(
            arg_types=(layout,), return_type=module.ShapeDtypeStruct(shape, dtype, layout=layout)
        )(lambda _, array: apply(array))
        out_ref[...] = inlined(module.layout_cast(x_ref[...], layout))

    return module.kernel(body, out_type=jax.ShapeDtypeStruct(shape, dtype))


def _run(name, apply, x):
    """Runs such a kernel of our language, and one of JAX's, which must agree."""
    ours = np.asarray(_map(mgpu, name, apply, x.dtype)(x))
    theirs = np.asarray(mgpu.from_pallas(_map(plgpu, name, apply, x.dtype))(x))
    np.testing.assert_array_equal(ours, theirs)
    return ours


def _values(name, dtype: Any = np.float32):
    shape = _layouts(mgpu)[name][0]
    return np.random.default_rng(0).integers(-50, 50, shape).astype(dtype)


@pytest.mark.parametrize("name", ["wgmma", "rows", "strided"])
def test_arithmetic_in_every_layout(name):
    x = _values(name)
    result = _run(name, lambda a: a * a + a, x)
    np.testing.assert_array_equal(result, x * x + x)


def test_narrow_floats_round_once_per_operation():
    x = (np.random.default_rng(1).standard_normal((64, 32)) * 3).astype(jnp.bfloat16)
    result = _run("wgmma", lambda a: a * a, x)
    np.testing.assert_array_equal(result, x * x)


def test_a_fused_multiply_add_rounds_once():
    x = (1 + np.random.default_rng(2).random((64, 32)) * 1e-3).astype(np.float32)
    result = _run("wgmma", lambda a: _each_register(a, lambda r: math.fma(r, r, arith.negf(r))), x)
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(result, (wide * wide - wide).astype(np.float32))
    assert (result != x * x - x).any()


def test_integers_compare_and_divide_with_and_without_sign():
    x = _values("wgmma", np.int32)

    def apply(register):
        seven = vector.broadcast(register.type, mosaic.c(7, ir.IntegerType.get_signless(32)))
        signed, unsigned = arith.divsi(register, seven), arith.remui(register, seven)
        is_negative = arith.cmpi(arith.CmpIPredicate.slt, register, arith.subi(register, register))
        return arith.select(is_negative, signed, unsigned)

    result = _run("wgmma", lambda a: _each_register(a, apply), x)
    np.testing.assert_array_equal(result, np.where(x < 0, np.trunc(x / 7).astype(np.int32), x % 7))


def test_a_butterfly_adds_up_a_warp():
    x = _values("strided")

    def apply(register):
        parts = [
            vector.extract(register, dynamic_position=[], static_position=ir.DenseI64ArrayAttr.get([i])) for i in (0, 1)
        ]
        total = arith.addf(*parts)
        for distance in (1, 2, 4, 8, 16):
            total = arith.addf(total, mosaic.utils.shfl_bfly(total, distance))
        return vector.broadcast(register.type, total)

    result = _run("strided", lambda a: _each_register(a, apply), x)
    np.testing.assert_array_equal(result, x.reshape(4, 64).sum(1, keepdims=True).repeat(64, 1).reshape(-1))


def _through_smem(fill, rows=128, dtype=jnp.float32, grid=()):
    """Returns a kernel whose inlined code, `fill(ref)`, writes a buffer in SMEM, which is its result."""

    def body(out_ref, smem):
        mgpu.inline_mgpu(arg_types=(mgpu.RefType(),))(lambda _, ref: fill(ref))(smem)
        index = jax.lax.axis_index("x") if grid else 0
        out_ref[index] = smem[...]

    names = {"grid": grid, "grid_names": ("x",)} if grid else {}
    out = jax.ShapeDtypeStruct((*(grid or (1,)), rows), dtype)
    return mgpu.kernel(body, out_type=out, scratch_types=[mgpu.SMEM((rows,), dtype)], **names)


def test_each_lane_stores_where_it_wants():
    def fill(ref):
        index = ir.IndexType.get()
        lane = mosaic.utils.thread_idx()
        target = arith.subi(mosaic.c(127, lane.type), lane)
        memref.store(lane, ref, [arith.index_cast(index, target)])

    np.testing.assert_array_equal(_through_smem(fill, dtype=jnp.int32)()[0], LANES[::-1])


def test_lanes_that_disagree_take_both_sides():
    def fill(ref):
        lane = mosaic.utils.thread_idx()
        at = [arith.index_cast(ir.IndexType.get(), lane)]
        odd = arith.trunci(ir.IntegerType.get_signless(1), lane)
        branch = scf.IfOp(odd, [lane.type], **_with_else())
        with ir.InsertionPoint(branch.then_block):
            scf.yield_([arith.muli(lane, mosaic.c(10, lane.type))])
        assert branch.else_block is not None
        with ir.InsertionPoint(branch.else_block):
            scf.yield_([mosaic.c(-1, lane.type)])
        memref.store(branch.results[0], ref, at)

    np.testing.assert_array_equal(_through_smem(fill, dtype=jnp.int32)()[0], np.where(LANES % 2, LANES * 10, -1))


def _with_else():
    """Returns the argument that gives a branch its other side, which JAX's versions name differently."""
    names = inspect.signature(scf.IfOp.__init__).parameters
    return {"hasElse" if "hasElse" in names else "has_else": True}


def test_a_loop_carries_what_each_lane_has():
    def fill(ref):
        index, i32 = ir.IndexType.get(), ir.IntegerType.get_signless(32)
        lane = mosaic.utils.thread_idx()
        loop = scf.ForOp(mosaic.c(0, index), mosaic.c(5, index), mosaic.c(1, index), [lane])
        with ir.InsertionPoint(loop.body):
            scf.yield_([arith.addi(loop.inner_iter_args[0], arith.index_cast(i32, loop.induction_variable))])
        memref.store(loop.results[0], ref, [arith.index_cast(index, lane)])

    np.testing.assert_array_equal(_through_smem(fill, dtype=jnp.int32)()[0], LANES + 10)


def test_a_lane_that_leaves_its_ref_is_an_error():
    def fill(ref):
        memref.store(mosaic.utils.thread_idx(), ref, [arith.index_cast(ir.IndexType.get(), mosaic.utils.thread_idx())])

    with pytest.raises(OutOfBoundsError, match="element 127 of a ref of 100 elements"):
        _through_smem(fill, rows=100, dtype=jnp.int32)()


def _dimension_x():
    try:
        return ir.Attribute.parse("#gpu.dim<x>")
    except ir.MLIRError:  # JAX 0.10
        return ir.Attribute.parse("#gpu<dim x>")


def test_blocks_know_their_index():
    def fill(ref):
        i32, index = ir.IntegerType.get_signless(32), ir.IndexType.get()
        attributes = {"dimension": _dimension_x()}
        block = ir.Operation.create("gpu.block_id", results=[index], attributes=attributes).results[0]
        memref.store(arith.index_cast(i32, block), ref, [arith.index_cast(index, mosaic.utils.thread_idx())])

    result = _through_smem(fill, dtype=jnp.int32, grid=(3,))()
    np.testing.assert_array_equal(result, np.repeat([[0], [1], [2]], 128, 1))


def test_an_operation_that_the_simulator_lacks_is_named():
    def apply(register):
        return math.erf(register)

    with pytest.raises(Unsupported, match=r"test_lanes.py:\d+ inline_mgpu: the simulator does not run math.erf"):
        _map(mgpu, "wgmma", lambda a: _each_register(a, apply))(_values("wgmma"))


def test_a_run_without_values_takes_the_same_time(tmp_path):
    def make(**interpret):
        params = mgpu.CompilerParams(profile_space=16, profile_dir=str(tmp_path / str(len(interpret))))
        shape, layout = _layouts(mgpu)["wgmma"]

        def body(x_ref, out_ref):
            inlined = mgpu.inline_mgpu(
                arg_types=(layout,), return_type=mgpu.ShapeDtypeStruct(shape, jnp.float32, layout=layout)
            )(lambda _, a: a * a)
            out_ref[...] = inlined(mgpu.layout_cast(x_ref[...], layout))

        options = mgpu.InterpretGPUParams(**interpret)
        return mgpu.kernel(
            body, out_type=jax.ShapeDtypeStruct(shape, jnp.float32), compiler_params=params, interpret=options
        )

    ends = []
    for interpret in ({}, {"numerics": False}):
        jax.block_until_ready(make(**interpret)(_values("wgmma")))
        (file,) = (tmp_path / str(len(interpret))).glob("*/capture.npz")
        ends.append(Capture.load(file).ctas["end"])
    np.testing.assert_array_equal(*ends)
