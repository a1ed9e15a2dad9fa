"""Warp-level regions: four warps with roles of their own, per-warp barriers, copies and tracks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
import profiler
from mgpu.devices import load_device

X = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)


def run(body, scratch, *operands, **options):
    out = jax.ShapeDtypeStruct((32, 64), jnp.float32)
    return mgpu.kernel(body, out_type=out, scratch_types=scratch, **options)(*operands)


def pipeline(x_ref, out_ref, tiles, full, empty, steps=8):
    """Warp 1 loads tiles, warp 2 stores them: a pipeline of two slots inside one warpgroup."""

    @mgpu.warp_map
    def _roles(warp):
        @pl.when(warp == 1)
        def _produce():
            def step(i, _):
                slot = lax.rem(i, 2)
                pl.when(i >= 2)(lambda: mgpu.barrier_wait(empty.at[slot]))
                mgpu.copy_gmem_to_smem(x_ref.at[pl.ds(i * 4, 4)], tiles.at[slot], full.at[slot])

            lax.fori_loop(0, steps, step, None)

        @pl.when(warp == 2)
        def _consume():
            def step(i, _):
                slot = lax.rem(i, 2)
                mgpu.barrier_wait(full.at[slot])
                mgpu.copy_smem_to_gmem(tiles.at[slot], out_ref.at[pl.ds(i * 4, 4)])
                mgpu.wait_smem_to_gmem(0, wait_read_only=True)
                mgpu.barrier_arrive(empty.at[slot])

            lax.fori_loop(0, steps, step, None)

    mgpu.wait_smem_to_gmem(0)


PIPELINE_SCRATCH = [mgpu.SMEM((2, 4, 64), jnp.float32), mgpu.Barrier(num_barriers=2), mgpu.Barrier(num_barriers=2)]


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_warps_run_a_pipeline_between_them(seed):
    result = run(pipeline, PIPELINE_SCRATCH, X, interpret=mgpu.InterpretGPUParams(seed=seed))
    np.testing.assert_array_equal(result, X)


def test_phases_of_a_warp_last_from_one_region_to_the_next():
    """Warp 3 alone waits for each load, in regions of a loop; then the whole warpgroup waits for one more."""

    def body(x_ref, out_ref, tile, full):
        def step(i, _):
            @mgpu.warp_map
            def _wait(warp):
                pl.when(warp == 0)(lambda: mgpu.copy_gmem_to_smem(x_ref.at[pl.ds(i * 8, 8)], tile, full))
                pl.when(warp == 0)(lambda: mgpu.barrier_wait(full))

            out_ref[pl.ds(i * 8, 8)] = tile[...]

        lax.fori_loop(0, 4, step, None)
        mgpu.copy_gmem_to_smem(x_ref.at[pl.ds(8, 8)], tile, full)
        mgpu.barrier_wait(full)
        out_ref[pl.ds(0, 8)] = tile[...]

    expected = X.copy()
    expected[:8] = X[8:16]
    np.testing.assert_array_equal(run(body, [mgpu.SMEM((8, 64), jnp.float32), mgpu.Barrier()], X), expected)


def test_barrier_test_polls_without_blocking():
    def body(x_ref, out_ref, tile, full, polls):
        @mgpu.warp_map
        def _poll(warp):
            @pl.when(warp == 0)
            def _():
                mgpu.copy_gmem_to_smem(x_ref, tile, full)
                count = lax.while_loop(
                    lambda state: ~state[0],
                    lambda state: (mgpu.barrier_test(full), state[1] + 1),
                    (jnp.bool_(False), jnp.int32(0)),
                )[1]
                polls[0] = count

        out_ref[...] = tile[...] + jnp.where(polls[0] > 2, 0.0, 1000.0)

    scratch = [mgpu.SMEM((32, 64), jnp.float32), mgpu.Barrier(), mgpu.SMEM((4,), jnp.int32)]
    np.testing.assert_array_equal(run(body, scratch, X), X)


def test_barrier_test_belongs_to_one_warp():
    def body(x_ref, out_ref, barrier):
        out_ref[...] = x_ref[...] + jnp.where(mgpu.barrier_test(barrier), 1.0, 0.0)

    with pytest.raises(mgpu.errors.KernelTypeError, match=r"^test_warps.py:\d+ barrier_test: .*inside mgpu.warp_map"):
        run(body, [mgpu.Barrier()], X)


def _traced(tmp_path, scope):
    params = mgpu.CompilerParams(profile_space=256, profile_dir=str(tmp_path), profile_trace_scope=scope)
    run(pipeline, PIPELINE_SCRATCH, X, compiler_params=params)
    return profiler.open(tmp_path)[0].load_trace()


def test_warp_scope_records_each_warps_own_events(tmp_path):
    trace = _traced(tmp_path, mgpu.TraceScope.WARP)
    assert profiler.check_trace(trace) == []
    tracks = {row["track"]: row["warp"] for row in trace.tracks.iter_rows(named=True)}
    by_warp = {warp: [] for warp in range(4)}
    for span in trace.spans.sort("begin").iter_rows(named=True):
        by_warp[tracks[span["track"]]].append(span["name"])
    assert [name for name in by_warp[1] if name.startswith("load")] == ["load tiles"] * 8
    assert [name for name in by_warp[2] if name == "wait full"] == ["wait full"] * 8
    assert not any(name.startswith(("load", "wait full")) for name in by_warp[0] + by_warp[3])
    # The last wait belongs to the whole warpgroup, so all four tracks show it.
    assert all(names[-1] == "wait stores" for names in by_warp.values())


def test_warpgroup_scope_shows_the_first_warp(tmp_path):
    trace = _traced(tmp_path, mgpu.TraceScope.WARPGROUP)
    assert profiler.check_trace(trace) == []
    assert trace.spans["name"].to_list() == ["wait stores"]


def test_the_warpgroup_goes_on_one_warpgroup_barrier_after_the_last_warp(tmp_path):
    def body(_x_ref, out_ref):
        @mgpu.warp_map
        def _delay(warp):
            pl.when(warp == 2)(lambda: pl.delay(500))

        with jax.named_scope("after"):
            pl.delay(1)
        out_ref[...] = jnp.zeros((32, 64), jnp.float32)

    params = mgpu.CompilerParams(profile_space=16, profile_dir=str(tmp_path))
    run(body, [], X, compiler_params=params, interpret=mgpu.InterpretGPUParams(record_cycles=0))
    trace = profiler.open(tmp_path)[0].load_trace()
    (track,) = trace.tracks.iter_rows(named=True)
    (after,) = trace.spans.iter_rows(named=True)
    device = load_device("h100")
    meeting = device.named_barrier_cycles + 4 * device.named_barrier_cycles_per_warp
    # One cycle to branch on nothing: the role is known while compiling.
    assert after["begin"] - track["begin"] == device.cycles(500) + meeting


def test_what_needs_a_whole_warpgroup_is_refused():
    def multiply(_x_ref, _out_ref, tile):
        def scope(acc):
            mgpu.warp_map(lambda warp: mgpu.wgmma(acc, tile, tile))

        pl.run_scoped(scope, mgpu.ACC((64, 64)))

    transforms = (mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128))
    with pytest.raises(
        mgpu.errors.Unsupported, match=r"test_warps.py:\d+ wgmma in a warp-level region.*whole warpgroup"
    ):
        run(multiply, [mgpu.SMEM((64, 64), jnp.float16, transforms=transforms)], X)

    def nested(_x_ref, _out_ref):
        mgpu.warp_map(lambda _: mgpu.warp_map(lambda _: pl.delay(1)))

    with pytest.raises(mgpu.errors.Unsupported, match=r"inside a warp-level region"):
        run(nested, [], X)

    def allocate(_x_ref, _out_ref):
        mgpu.warp_map(lambda _: pl.run_scoped(lambda _: pl.delay(1), mgpu.SMEM((8,), jnp.float32)))

    with pytest.raises(mgpu.errors.Unsupported, match=r"allocating SMEM or barriers inside a warp-level region"):
        run(allocate, [], X)


def test_a_deadlock_names_the_warp():
    def body(_x_ref, _out_ref, full):
        mgpu.warp_map(lambda warp: pl.when(warp == 2)(lambda: mgpu.barrier_wait(full)))

    with pytest.raises(mgpu.errors.DeadlockError, match=r"its warps \(warp 2 on full\[0\] phase 0"):
        run(body, [mgpu.Barrier()], X)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer JAX calls it mpmd_map
def test_core_map_over_a_warp_mesh_is_the_same_region():
    def body(x_ref, out_ref, tile, full):
        @pl.core_map(mgpu.WarpMesh(axis_name="w"))
        def _roles():
            pl.when(lax.axis_index("w") == 3)(lambda: mgpu.copy_gmem_to_smem(x_ref, tile, full))

        mgpu.barrier_wait(full)
        out_ref[...] = tile[...]

    np.testing.assert_array_equal(run(body, [mgpu.SMEM((32, 64), jnp.float32), mgpu.Barrier()], X), X)


def _array_loaded(x_ref, out_ref, tile):
    mgpu.warp_map(lambda warp: pl.when(warp == 0)(lambda: out_ref.__setitem__(..., x_ref[...])))


def _array_stored(x_ref, out_ref, tile):
    mgpu.warp_map(lambda warp: tile.__setitem__(..., jnp.zeros((8, 64), jnp.float32)))


def _array_closed_over(x_ref, out_ref, tile):
    row = x_ref[0]
    mgpu.warp_map(lambda warp: tile.__setitem__((0, 0), row[0]))


def _array_of_inline_code(x_ref, out_ref, tile):
    def region(warp):
        wanted = mgpu.ShapeDtypeStruct((128,), jnp.float32, layout=mgpu.Layout.WG_SPLAT)
        mgpu.inline_mgpu(return_type=wanted)(lambda context: None)()

    mgpu.warp_map(region)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_array_loaded, r"get: a warp-level region loads an array float32\[32, 64\], and one warp loads only scalars"),
        (_array_stored, r"an array float32\[8, 64\], and one warp has only scalars"),
        (_array_closed_over, r"warp-level region: closes over an array float32\[64\].*only scalars and refs"),
        (_array_of_inline_code, r"an array float32\[128\], and one warp has only scalars"),
    ],
)
def test_arrays_stay_out_of_warp_level_regions(body, message):
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"^test_warps.py:\d+ " + f".*{message}"):
        run(body, [mgpu.SMEM((8, 64), jnp.float32)], X)
