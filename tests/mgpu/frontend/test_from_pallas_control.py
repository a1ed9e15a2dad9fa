"""Control flow of imported kernels around refs that are parts of other refs: a pipeline's slots, members of unions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mgpu

X = np.arange(8 * 128, dtype=np.int32).reshape(8, 128)
pallas_call = getattr(plgpu, "pallas_call", pl.pallas_call)  # the former is new in JAX 0.12


def store_rows(x_ref, out_ref, _, count):
    def row(index: Any, _: Any) -> tuple[()]:
        out_ref[index] = x_ref[index] + 1
        return ()

    lax.fori_loop(0, count, row, ())


def in_scan(x_ref, out_ref, scratch_ref):
    store_rows(x_ref, out_ref, scratch_ref, 4)


def in_while(x_ref, out_ref, scratch_ref):
    store_rows(x_ref, out_ref, scratch_ref, jnp.asarray(4))


def in_while_condition(x_ref, out_ref, _):
    out_ref[...] = jnp.zeros_like(out_ref)

    def is_below(_: Any) -> Any:
        return jnp.max(out_ref[...] - x_ref[...]) < 1

    def add(carry: Any) -> Any:
        out_ref[...] += x_ref[...] + 1
        return carry + 1

    lax.while_loop(is_below, add, 0)


def in_cond(x_ref, out_ref, _):
    def copy(offset: int) -> None:
        out_ref[...] = x_ref[...] + offset

    lax.cond(x_ref[0, 0] >= 0, lambda: copy(1), lambda: copy(-1))


def in_scope(x_ref, out_ref, _):
    def copy(scratch_ref: Any) -> Any:
        scratch_ref[...] = x_ref[...] + 1
        return scratch_ref[...]

    out_ref[...] = pl.run_scoped(copy, plgpu.SMEM((4, 128), jnp.int32))


def in_cond_in_scan(x_ref, out_ref, _):
    def row(index: Any, _: Any) -> tuple[()]:
        def copy(offset: int) -> None:
            out_ref[index] = x_ref[index] + offset

        lax.cond(x_ref[index, 0] >= 0, lambda: copy(1), lambda: copy(-1))
        return ()

    lax.fori_loop(0, 4, row, ())


def in_cond_with_a_member_of_a_union(x_ref, out_ref, union_ref):
    member_ref, _ = union_ref

    def copy(offset: int) -> None:
        member_ref[...] = x_ref[...] + offset

    lax.cond(x_ref[0, 0] >= 0, lambda: copy(1), lambda: copy(-1))
    out_ref[...] = member_ref[...]


BODIES = [
    in_scan,
    in_while,
    in_while_condition,
    in_cond,
    in_scope,
    in_cond_in_scan,
    in_cond_with_a_member_of_a_union,
]


@pytest.mark.filterwarnings("ignore:.*pallas_call.*deprecated")
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_blocks_of_a_pallas_call(body):
    block = pl.BlockSpec((4, 128), lambda i: (i, 0))
    call = pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(X.shape, jnp.int32),
        grid=(2,),
        in_specs=[block],
        out_specs=block,
        scratch_shapes=[plgpu.RefUnion(plgpu.SMEM((4, 128), jnp.int32), plgpu.SMEM((8, 128), jnp.int32))],
        compiler_params=plgpu.CompilerParams(),
    )
    np.testing.assert_array_equal(mgpu.from_pallas(call)(X), X + 1)
