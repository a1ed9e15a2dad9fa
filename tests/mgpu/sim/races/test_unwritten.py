"""Reads of memory that nobody has written are told of, if what they find reaches an output."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import UnwrittenWarning

F32, I32 = jnp.float32, jnp.int32
X = np.ones((64, 64), np.float32)
TILE = jax.ShapeDtypeStruct((64, 64), F32)
TILED = (mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128))


def warned(body, out_type=TILE, scratch=(), operands=(X,), **options):
    """Returns the text of the only warning; "" if there is none."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        jax.block_until_ready(mgpu.kernel(body, out_type=out_type, scratch_types=scratch, **options)(*operands))
    assert len(found) <= 1
    assert all(each.category is UnwrittenWarning for each in found)
    return str(found[0].message) if found else ""


def test_the_wrong_slot_of_a_ring():
    def body(x, out, ring, full):
        mgpu.copy_gmem_to_smem(x, ring.at[0], full)
        mgpu.barrier_wait(full)
        out[...] = ring[1]

    text = warned(body, scratch=[mgpu.SMEM((2, 64, 64), F32), mgpu.Barrier()])
    assert text.startswith("kernel body: CTA 0 reads at cycle ")
    assert "what nobody has written: read of ring by warpgroup 0 at test_unwritten.py:" in text
    assert "(ring[1, 0:64, 0:64]), or a part of it. Needs a store or a copy into it before; in a ring, see" in text


def test_a_wgmma_of_an_operand_that_nobody_has_loaded():
    def body(x, out, a, b, full):
        mgpu.copy_gmem_to_smem(x, a, full)
        mgpu.barrier_wait(full)

        def multiply(acc):
            mgpu.wgmma(acc, a, b)
            mgpu.wgmma_wait(0)
            out[...] = acc[...]

        pl.run_scoped(multiply, mgpu.ACC((64, 64)))

    operand = mgpu.SMEM((64, 64), jnp.bfloat16, transforms=TILED)
    text = warned(body, scratch=[operand, operand, mgpu.Barrier()], operands=(X.astype(jnp.bfloat16),))
    assert "wgmma of b by warpgroup 0" in text


def store(rows):
    """Stores a tile of 64 rows of which `rows` are written."""

    def body(x, out, tile):
        tile[:rows] = x[:rows]
        mgpu.commit_smem()
        mgpu.copy_smem_to_gmem(tile, out)
        mgpu.wait_smem_to_gmem(0)

    return body


def test_a_store_of_a_tile_that_is_written_in_part():
    assert "TMA store of tile by warpgroup 0" in warned(store(32), scratch=[mgpu.SMEM((64, 64), F32)])
    assert warned(store(64), scratch=[mgpu.SMEM((64, 64), F32)]) == ""


def test_an_output_that_is_read_first():
    def body(x, out):
        out[...] = out[...] + x[...]

    assert "read of out by warpgroup 0" in warned(body)
    assert "Outputs begin with anything: write it before, or alias an input to it" in warned(body)


def test_an_output_that_begins_as_an_input():
    def body(x, out):
        out[...] = jnp.log(out[...]) + x[...]

    whole = pl.BlockSpec(memory_space=mgpu.GMEM)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_place = mgpu.pallas_call(
            body, out_shape=TILE, in_specs=[whole], out_specs=whole, input_output_aliases={0: 0}
        )
        assert np.isnan(in_place(-X)).all()


def test_integers_show_it_too():
    def body(x, out, row):
        out[...] = row[...] + x[...]

    out, x = jax.ShapeDtypeStruct((128,), I32), np.arange(128, dtype=np.int32)
    assert "read of row" in warned(body, out, [mgpu.SMEM((128,), I32)], (x,))


def test_what_is_read_and_not_used_is_harmless():
    def body(x, out):
        def turn(number, _):
            out[...] = jnp.where(number > 0, out[...], x[...])

        lax.fori_loop(0, 2, turn, None)

    assert warned(body) == ""


def test_parts_of_an_output_that_nobody_writes_tell_nothing():
    def body(x, out, row):
        out[:32] = x[:32] + jnp.where(jnp.isnan(row[:32]), 1, row[:32])

    assert warned(body, scratch=[mgpu.SMEM((64, 64), F32)]) == ""


def test_memory_of_a_scope_begins_unwritten_again():
    def body(x, out):
        def write(row):
            row[...] = x[...]
            mgpu.commit_smem()  # else the write still matters to whoever has the bytes next

        pl.run_scoped(write, mgpu.SMEM((64, 64), F32))
        pl.run_scoped(lambda row: out.__setitem__(..., row[...]), mgpu.SMEM((64, 64), F32))

    assert "read of row" in warned(body)


@pytest.mark.parametrize("detect_races", [None, True, False])
def test_only_those_who_look_for_races_are_told(detect_races):
    def body(x, out, tile):
        out[...] = tile[...] + x[...]

    options: Any = {"interpret": mgpu.InterpretGPUParams(detect_races=detect_races)}
    assert bool(warned(body, scratch=[mgpu.SMEM((64, 64), F32)], **options)) == (detect_races is not False)
