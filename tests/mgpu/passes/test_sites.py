"""Which places are recorded, and what is known about them before the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.core import ShapedArray
from jax.experimental import pallas as pl

import mgpu as plgpu
from mgpu.frontend.build import build_program
from mgpu.frontend.program import KernelProgram, Launch
from mgpu.params import CompilerParams
from mgpu.passes.budget import plan_budget
from mgpu.passes.sites import plan_sites
from mgpu.sites import SiteKind
from support.examples import load_example
from support.kernels import swizzled


def program_of(body: Callable[..., None], scratch: Any, launch: Launch | None = None) -> KernelProgram:
    aval = ShapedArray((256, 64), jnp.float16)
    program, _ = build_program(
        body,
        name="body",
        in_tree=jax.tree.structure((0,)),
        in_avals=[aval],
        out_type=jax.ShapeDtypeStruct(aval.shape, aval.dtype),
        scratch=scratch,
        launch=launch or Launch(),
        params=CompilerParams(),
    )
    return program


def test_operations_name_their_barrier_buffer_line_and_size() -> None:
    def body(x: Any, o: Any, tile: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[pl.ds(0, 64)], tile.at[1], loaded.at[1])
        plgpu.barrier_wait(loaded.at[1])
        plgpu.barrier_arrive(loaded.at[0])
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile.at[0], o.at[pl.ds(0, 64)])
        plgpu.wait_smem_to_gmem(0)

    first = body.__code__.co_firstlineno + 1
    plan = plan_sites(program_of(body, [plgpu.SMEM((2, 64, 64), jnp.float16), plgpu.Barrier(num_barriers=2)]))
    seen = [(s.kind, s.name, s.barrier, s.buffer, s.size_bytes, s.line - first) for s in plan.sites]
    assert seen == [
        (SiteKind.TMA_LOAD, "load tile", "loaded", "tile", 8192, 0),
        (SiteKind.BARRIER_WAIT, "wait loaded", "loaded", "", 0, 1),
        (SiteKind.BARRIER_ARRIVE, "arrive loaded", "loaded", "", 0, 2),
        (SiteKind.COMMIT_SMEM, "commit_smem", "", "", 0, 3),
        (SiteKind.TMA_STORE, "store o", "", "tile", 8192, 4),
        (SiteKind.STORE_WAIT, "wait stores", "", "", 0, 5),
    ]
    assert {site.function.rsplit(".", 1)[-1] for site in plan.sites} == {"body"}
    assert [(b.name, b.num_slots, b.num_arrivals) for b in plan.barriers] == [("loaded", 2, 1)]


def test_named_scopes_are_sites_and_repeats_stay_apart() -> None:
    def body(x: Any, o: Any) -> None:
        for _ in range(2):
            with jax.named_scope("half"):
                plgpu.commit_smem()
        with jax.named_scope("outer"):

            def step(i: Any, _: None) -> None:
                with jax.named_scope("inner"):
                    plgpu.commit_smem()

            lax.fori_loop(0, 3, step, None)

    plan = plan_sites(program_of(body, []))
    scopes = [(s.name, s.scope) for s in plan.sites if s.kind is SiteKind.SCOPE]
    assert scopes == [("half", ""), ("half", ""), ("outer", ""), ("inner", "outer")]
    commits = [s.scope for s in plan.sites if s.kind is SiteKind.COMMIT_SMEM]
    assert commits == ["half", "half", "outer/inner"]


def test_a_jitted_helper_called_twice_gives_two_sites() -> None:
    def body(x: Any, o: Any) -> None:
        helper = jax.jit(plgpu.commit_smem)
        helper()
        helper()

    plan = plan_sites(program_of(body, []))
    assert len([s for s in plan.sites if s.kind is SiteKind.COMMIT_SMEM]) == 2


def test_budget_of_the_matmul_adds_up() -> None:
    example = load_example("04_warp_specialized_matmul")
    kernel = example.make_matmul(256, 512, stages=4)
    program, _ = kernel._program(jax.tree.structure((0, 0)), [jnp.zeros((256, 128), jnp.bfloat16)] * 2)
    budget = plan_budget(program, smem_per_cta_bytes=232448, registers_per_sm=65536)
    ring, strips, barriers = 4 * (128 + 256) * 64 * 2, 4 * 64 * 64 * 2, 2 * 128
    assert budget.smem_bytes == ring + strips + barriers
    assert budget.registers_per_thread == 168  # 65536 / 384, in steps of 8
    assert budget.profile_bytes == 0


def test_scopes_side_by_side_share_their_smem() -> None:
    def body(x: Any, o: Any) -> None:
        for rows in (64, 128):
            pl.run_scoped(lambda s: s.__setitem__(..., s[...]), plgpu.SMEM((rows, 64), jnp.float16))

    budget = plan_budget(program_of(body, []), smem_per_cta_bytes=232448, registers_per_sm=65536)
    assert budget.smem_bytes == 128 * 64 * 2


def test_register_estimate_follows_the_accumulator() -> None:
    def with_columns(columns: int) -> int:
        def body(x: Any, o: Any, a: Any, b: Any) -> None:
            pl.run_scoped(lambda acc: plgpu.wgmma(acc, a, b), plgpu.ACC((64, columns)))

        program = program_of(body, [swizzled(64, 64), swizzled(64, columns)])
        return plan_budget(program, smem_per_cta_bytes=232448, registers_per_sm=65536).registers_per_thread

    # 64 x n float32 over 128 threads are n / 2 registers.
    assert with_columns(256) - with_columns(64) == 96


@pytest.mark.parametrize(
    ("rows", "warpgroups", "resident"),
    [
        pytest.param(128, 1, 2, id="fast.cu kernel 3"),
        pytest.param(64, 2, 2, id="Gluon's 128 x 128 with eight warps"),
    ],
)
def test_as_many_ctas_fit_as_on_the_device(rows: int, warpgroups: int, resident: int) -> None:
    def body(x: Any, o: Any, a: Any, b: Any) -> None:
        def multiply(acc: Any) -> jax.Array:
            plgpu.wgmma(acc, a, b)
            return acc[...]

        o[pl.ds(0, rows), :] = pl.run_scoped(multiply, plgpu.ACC((rows, 128)))[:, :64].astype(o.dtype)

    program = program_of(body, [swizzled(rows, 64), swizzled(64, 128)])
    registers = plan_budget(program, smem_per_cta_bytes=232448, registers_per_sm=65536).registers_per_thread
    assert 65536 // (registers * 128 * warpgroups) == resident


def test_an_event_buffer_without_room_goes_to_gmem() -> None:
    def body(x: Any, o: Any, s: Any) -> None:
        o[...] = s[...]

    program = program_of(body, [plgpu.SMEM((256, 64), jnp.float16)])
    recorded = dataclasses.replace(program, params=CompilerParams(profile_space=100, profile_dir="x"))
    small = plan_budget(recorded, smem_per_cta_bytes=33_000, registers_per_sm=65536)
    large = plan_budget(recorded, smem_per_cta_bytes=34_000, registers_per_sm=65536)
    assert (small.profile_in_smem, large.profile_in_smem) == (False, True)
    assert large.total_smem_bytes == 32768 + (100 + 16) * 8
