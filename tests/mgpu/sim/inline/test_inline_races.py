"""What inlined code does to SMEM and GMEM is watched for races, element by element."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import arith, memref
from jaxlib.mlir.dialects import gpu

import mgpu
from support.races import I32, find_races, needed

SPLAT = mgpu.Layout.WG_SPLAT


def as_index(value):
    return arith.index_cast(ir.IndexType.get(), value)


def constant(value):
    return arith.constant(ir.IntegerType.get_signless(32), value)


def lane():
    return arith.remui(arith.index_cast(ir.IntegerType.get_signless(32), gpu.thread_id(gpu.Dimension.x)), constant(128))


def write_lanes(ref, first, step=1):
    """Lane i of the warpgroup writes its number to element first + i * step."""

    def inlined(_, ref, first):
        place = arith.addi(first.registers.item(), arith.muli(lane(), constant(step)))
        memref.store(lane(), ref, [as_index(place)])

    mgpu.inline_mgpu(arg_types=(mgpu.RefType(), SPLAT))(inlined)(ref, jnp.asarray(first, I32))


def read_lanes(ref, first):
    def inlined(_, ref, first):
        memref.load(ref, [as_index(arith.addi(first.registers.item(), lane()))])

    mgpu.inline_mgpu(arg_types=(mgpu.RefType(), SPLAT))(inlined)(ref, jnp.asarray(first, I32))


def test_ctas_that_write_the_same_elements_of_gmem():
    def body(out):
        write_lanes(out, 64 * lax.axis_index("x"))

    (race,) = find_races(body, (256,), grid=(3,), grid_names=("x",))
    assert (race.first.what, race.second.what, race.count) == ("write", "write", 2)
    assert race.region == "out[64:192]"
    assert race.first.line.startswith("test_inline_races.py:")
    assert "Needs a part of out for each CTA" in str(race)


def test_ctas_that_write_parts_of_their_own_are_quiet():
    def body(out):
        write_lanes(out, lax.axis_index("x"), step=3)

    assert find_races(body, (384,), grid=(3,), grid_names=("x",)) == ()


def test_ctas_beyond_those_that_are_watched_in_full():
    def body(out):
        write_lanes(out, 128 * jnp.minimum(lax.axis_index("x"), 6))

    (race,) = find_races(body, (1024,), everywhere=None, grid=(8,), grid_names=("x",))
    assert (race.first_cta, race.cta) == (6, 7)


def shared(gap, *, order=False):
    """Both warpgroups write a row of SMEM, the second one `gap` elements behind the first one."""

    def body(out, row, ready):
        wg = lax.axis_index("wg")

        @pl.when(wg == 0)
        def _():
            write_lanes(row, gap * wg)
            mgpu.barrier_arrive(ready)

        @pl.when(wg == 1)
        def _():
            if order:
                mgpu.barrier_wait(ready)
            write_lanes(row, gap * wg)
            if not order:
                mgpu.barrier_wait(ready)
            out[...] = row[...]

    scratch = [mgpu.SMEM((256,), I32), mgpu.Barrier()]
    return find_races(body, (256,), scratch=scratch, num_threads=2, thread_name="wg")


def test_warpgroups_that_write_parts_of_a_row_are_quiet():
    assert shared(128) == ()


def test_warpgroups_that_write_the_same_elements_of_smem():
    (race,) = shared(100)
    assert race.region == "row[100:228]"
    assert shared(100, order=True) == ()


def test_a_copy_of_what_inlined_code_wrote_needs_a_commit():
    def body(commits):
        def run(out, row):
            write_lanes(row, 0)
            if commits:
                mgpu.commit_smem()
            mgpu.copy_smem_to_gmem(row, out)
            mgpu.wait_smem_to_gmem(0)

        return run

    scratch = [mgpu.SMEM((128,), I32)]
    assert needed(find_races(body(False), (128,), scratch=scratch)) == (
        "Needs commit_smem() after the write, before this access."
    )
    assert find_races(body(True), (128,), scratch=scratch) == ()


def test_a_read_of_what_a_load_in_flight_brings():
    def body(x, out, row, barrier):
        mgpu.copy_gmem_to_smem(x, row, barrier)
        read_lanes(row, 0)
        mgpu.barrier_wait(barrier)
        out[...] = row[...]

    scratch = [mgpu.SMEM((128,), I32), mgpu.Barrier()]
    races = find_races(body, (128,), np.arange(128, dtype=np.int32), scratch=scratch)
    assert needed(races) == "Needs barrier_wait on the barrier of that load before this access."


def test_an_input_that_inlined_code_writes_is_a_copy():
    x = np.full(256, 7, np.int32)

    def body(x, out):
        write_lanes(x, 0)
        out[...] = x[...]

    out = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((256,), I32))(x)
    np.testing.assert_array_equal(out, [*range(128), *[7] * 128])
    np.testing.assert_array_equal(x, 7)
