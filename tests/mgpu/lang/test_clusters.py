"""Clusters: multicast loads, barriers over CTAs, shared memory of peers."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
import profiler
from mgpu.capture import Capture
from mgpu.devices import load_device
from mgpu.profile_dir import CAPTURE_FILE, list_launches

F32 = jnp.float32
X = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)


def launch(body, out, scratch, *operands, cluster=(2,), names=("c",), seed=None, **options):
    interpret = mgpu.InterpretGPUParams(seed=seed)
    return mgpu.kernel(
        body,
        out_type=out,
        scratch_types=scratch,
        cluster=cluster,
        cluster_names=names,
        interpret=interpret,
        **options,
    )(*operands)


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("size", [2, 4])
def test_a_multicast_load_reaches_every_cta(size, seed):
    def body(x_ref, out_ref, buffer, full):
        mgpu.copy_gmem_to_smem(x_ref, buffer, full, collective_axes="c")
        mgpu.barrier_wait(full)
        out_ref[lax.axis_index("c")] = buffer[...]

    out = jax.ShapeDtypeStruct((size, 64, 64), F32)
    result = launch(body, out, [mgpu.SMEM((64, 64), F32), mgpu.Barrier()], X, cluster=(size,), seed=seed)
    np.testing.assert_array_equal(result, np.stack([X] * size))


def test_a_multicast_goes_along_the_named_axes_only():
    """In a 2 x 2 cluster, CTAs of one row share the row's tile."""

    def body(x_ref, out_ref, buffer, full):
        row, column = lax.axis_index("r"), lax.axis_index("c")
        mgpu.copy_gmem_to_smem(x_ref.at[pl.ds(row * 32, 32)], buffer.at[0], full, collective_axes=("c",))
        mgpu.barrier_wait(full)
        out_ref[row, column] = buffer[0]

    out = jax.ShapeDtypeStruct((2, 2, 32, 64), F32)
    scratch = [mgpu.SMEM((2, 32, 64), F32), mgpu.Barrier()]
    result = launch(body, out, scratch, X, cluster=(2, 2), names=("r", "c"))
    for row, column in itertools.product(range(2), range(2)):
        np.testing.assert_array_equal(result[row, column], X[row * 32 : row * 32 + 32])


def test_a_partitioned_load_gives_each_cta_its_part_and_tells_the_leader():
    def body(x_ref, out_ref, buffer, full, together):
        rank = lax.axis_index("c")
        partition = mgpu.CopyPartition.PARTITIONED(1)
        mgpu.copy_gmem_to_smem(x_ref, buffer, full, collective_axes="c", leader_tracked=partition)
        pl.when(rank == 0)(lambda: mgpu.barrier_wait(full))
        mgpu.barrier_arrive(together)
        mgpu.barrier_wait(together)
        out_ref[:, pl.ds(rank * 32, 32)] = buffer[...]

    scratch = [mgpu.SMEM((64, 32), F32), mgpu.Barrier(), mgpu.ClusterBarrier(collective_axes=("c",))]
    np.testing.assert_array_equal(launch(body, jax.ShapeDtypeStruct((64, 64), F32), scratch, X), X)


def test_a_replicated_load_gives_each_cta_everything():
    def body(x_ref, out_ref, buffer, full, together):
        rank = lax.axis_index("c")
        mgpu.copy_gmem_to_smem(x_ref, buffer, full, collective_axes="c", leader_tracked=mgpu.CopyPartition.REPLICATED)
        pl.when(rank == 0)(lambda: mgpu.barrier_wait(full))
        mgpu.barrier_arrive_and_wait(together)
        out_ref[rank] = buffer[...]

    scratch = [mgpu.SMEM((64, 64), F32), mgpu.Barrier(), mgpu.ClusterBarrier(collective_axes=("c",))]
    result = launch(body, jax.ShapeDtypeStruct((2, 64, 64), F32), scratch, X)
    np.testing.assert_array_equal(result, np.stack([X, X]))


def _exchange(x_ref, out_ref, buffer, together):
    """Every CTA publishes its tile and reads its right neighbour's."""
    rank, size = lax.axis_index("c"), x_ref.shape[0]
    buffer[...] = x_ref[rank]
    mgpu.barrier_arrive_and_wait(together)
    out_ref[rank] = mgpu.cluster_ref(buffer, {"c": lax.rem(rank + 1, size)})[...]
    mgpu.barrier_arrive_and_wait(together)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_cluster_ref_reads_the_peer(size, seed):
    tiles = np.random.default_rng(0).normal(size=(size, 8, 128)).astype(np.float32)
    scratch = [mgpu.SMEM((8, 128), F32), mgpu.ClusterBarrier(collective_axes=("c",))]
    result = launch(_exchange, jax.ShapeDtypeStruct(tiles.shape, F32), scratch, tiles, cluster=(size,), seed=seed)
    np.testing.assert_array_equal(result, np.roll(tiles, -1, axis=0))


def test_a_cluster_barrier_along_rows_and_columns_takes_the_arrivals_of_both():
    """In a 2 x 4 cluster a CTA shares its row with 3 and its column with 1 other: 5 arrivals complete a phase."""

    def body(out_ref, together):
        mgpu.barrier_arrive_and_wait(together)
        out_ref[lax.axis_index("r"), lax.axis_index("c")] = jnp.full((128,), 1.0)

    directory_free = jax.ShapeDtypeStruct((2, 4, 128), F32)
    scratch = [mgpu.ClusterBarrier(collective_axes=("r", "c"))]
    result = launch(body, directory_free, scratch, cluster=(2, 4), names=("r", "c"))
    np.testing.assert_array_equal(result, np.ones((2, 4, 128)))


def test_async_store_smem_lands_in_the_other_cta():
    def body(x_ref, out_ref, buffer, landed):
        rank = lax.axis_index("c")
        value = x_ref[rank]
        mgpu.async_store_smem(value, buffer, landed, cluster_idx=1 - rank, cluster_dim="c")
        mgpu.barrier_wait(landed)
        out_ref[rank] = buffer[...]

    tiles = np.random.default_rng(0).normal(size=(2, 8, 128)).astype(np.float32)
    scratch = [mgpu.SMEM((8, 128), F32), mgpu.Barrier()]
    result = launch(body, jax.ShapeDtypeStruct(tiles.shape, F32), scratch, tiles)
    np.testing.assert_array_equal(result, tiles[::-1])


def test_async_store_smem_can_add():
    def body(x_ref, out_ref, buffer, ready, landed):
        rank = lax.axis_index("c")
        buffer[...] = x_ref[rank]
        mgpu.barrier_arrive_and_wait(ready)
        mgpu.async_store_smem(x_ref[rank], buffer, landed, cluster_idx=1 - rank, cluster_dim="c", atomic="add")
        mgpu.barrier_wait(landed)
        out_ref[rank] = buffer[...]

    tiles = np.random.default_rng(0).integers(0, 9, size=(2, 8, 128)).astype(np.int32)
    scratch = [mgpu.SMEM((8, 128), jnp.int32), mgpu.ClusterBarrier(collective_axes=("c",)), mgpu.Barrier()]
    result = launch(body, jax.ShapeDtypeStruct(tiles.shape, jnp.int32), scratch, tiles)
    np.testing.assert_array_equal(result, np.stack([tiles.sum(0)] * 2))


def test_remote_arrivals_are_logged_with_the_cta_that_they_come_from(tmp_path):
    def body(out_ref, together):
        mgpu.barrier_arrive_and_wait(together)
        out_ref[lax.axis_index("c")] = jnp.zeros((128,), F32)

    params = mgpu.CompilerParams(profile_space=64, profile_dir=str(tmp_path))
    scratch = [mgpu.ClusterBarrier(collective_axes=("c",))]
    launch(body, jax.ShapeDtypeStruct((2, 128), F32), scratch, compiler_params=params)
    capture = Capture.load(list_launches(tmp_path)[0] / CAPTURE_FILE)
    arrivals = capture.arrivals
    first = arrivals[(arrivals["phase"] == 0) & (arrivals["cta"] == 0)]
    assert first["source_cta"].tolist() == [0, 1]
    # Both arrive in the same cycle; the remote one takes half of the measured round trip between SMs, 181 // 2.
    assert first["time"][1] - first["time"][0] == 181 // 2
    assert capture.header.barriers[0].num_arrivals == 2
    assert first["completes"].tolist() == [False, True]


@pytest.mark.parametrize("size", [2, 4])
def test_a_multicast_asks_l2_for_each_byte_once(size, tmp_path):
    """The shares that the CTAs fetch add up to one tile."""

    def body(x_ref, out_ref, buffer, full):
        mgpu.copy_gmem_to_smem(x_ref, buffer, full, collective_axes="c")
        mgpu.barrier_wait(full)
        out_ref[lax.axis_index("c")] = buffer[...]

    params = mgpu.CompilerParams(profile_space=64, profile_dir=str(tmp_path))
    out = jax.ShapeDtypeStruct((size, 64, 64), F32)
    launch(body, out, [mgpu.SMEM((64, 64), F32), mgpu.Barrier()], X, cluster=(size,), compiler_params=params)
    spans = Capture.load(list_launches(tmp_path)[0] / CAPTURE_FILE).unit_spans
    assert spans["bytes"].tolist() == [64 * 64 * 4 // size] * size


def test_every_operation_has_a_site_and_the_trace_is_sound(tmp_path):
    """A kernel with a prefetch, a multicast, a remote store and cluster barriers; recording must stay consistent."""

    def body(x_ref, out_ref, buffer, inbox, full, landed, together):
        rank = lax.axis_index("c")
        mgpu.async_prefetch(x_ref, collective_axes="c")
        mgpu.copy_gmem_to_smem(x_ref, buffer, full, collective_axes="c")
        mgpu.barrier_wait(full)
        mgpu.barrier_arrive_and_wait(together)
        mgpu.async_store_smem(buffer[...], inbox, landed, cluster_idx=1 - rank, cluster_dim="c")
        mgpu.barrier_wait(landed)
        out_ref[rank] = inbox[...]

    tile = mgpu.SMEM((64, 64), F32)
    scratch = [tile, tile, mgpu.Barrier(), mgpu.Barrier(), mgpu.ClusterBarrier(collective_axes=("c",))]
    params = mgpu.CompilerParams(profile_space=64, profile_dir=str(tmp_path))
    result = launch(body, jax.ShapeDtypeStruct((2, 64, 64), F32), scratch, X, compiler_params=params)
    np.testing.assert_array_equal(result, np.stack([X, X]))
    trace = profiler.open(tmp_path)[0].load_trace()
    assert profiler.check_trace(trace) == []
    report = profiler.build_report(trace)
    names = set(trace.spans["name"]) | set(trace.instants["name"])
    assert {"prefetch x_ref", "load buffer", "wait full", "store inbox of a peer", "wait landed"} <= names
    assert report is not None


def test_a_remote_read_takes_the_round_trip_and_its_bytes(tmp_path):
    """Latency 181 cycles; 8 KiB at an SM's share of 3.27 TB/s (device table): time to the next event by hand."""

    def body(out_ref, buffer, together):
        rank = lax.axis_index("c")
        with jax.named_scope("read"):
            value = mgpu.cluster_ref(buffer, {"c": 1 - rank})[...]
        out_ref[rank] = value
        mgpu.barrier_arrive(together)
        mgpu.barrier_wait(together)  # the peer has read

    params = mgpu.CompilerParams(profile_space=64, profile_dir=str(tmp_path))
    options = {"compiler_params": params, "interpret": mgpu.InterpretGPUParams(record_cycles=0, detect_races=False)}
    mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((2, 32, 64), F32),
        scratch_types=[mgpu.SMEM((32, 64), F32), mgpu.ClusterBarrier(collective_axes=("c",))],
        cluster=(2,),
        cluster_names=("c",),
        **options,
    )()
    device = load_device("h100")
    bytes_per_cycle = device.dsmem_bandwidth / device.clock_hz / device.num_sms
    expected = device.dsmem_latency_cycles + math.ceil(32 * 64 * 4 / bytes_per_cycle)
    spans = profiler.open(tmp_path)[0].load_trace().spans
    durations = [cycles for name, cycles in zip(spans["name"], spans["dur"], strict=True) if name == "read"]
    assert durations == [expected, expected]


def _multicast_to(buffer_shape, **arguments):
    def body(x_ref, _out_ref, buffer, full):
        mgpu.copy_gmem_to_smem(x_ref, buffer, full, **arguments)

    return lambda: launch(body, jax.ShapeDtypeStruct((64, 64), F32), [mgpu.SMEM(buffer_shape, F32), mgpu.Barrier()], X)


@pytest.mark.parametrize(
    ("arguments", "shape", "message"),
    [
        ({"collective_axes": "k"}, (64, 64), r"collective_axes='k' is no axis of the kernel"),
        ({"leader_tracked": mgpu.CopyPartition.REPLICATED}, (64, 64), r"leader_tracked needs collective_axes"),
        ({"collective_axes": "c", "leader_tracked": 3}, (64, 64), r"must be CopyPartition.PARTITIONED\(axis\) or"),
        (
            {"collective_axes": "c", "leader_tracked": mgpu.CopyPartition.PARTITIONED(0)},
            (64, 64),
            r"of which each CTA gets \[32, 64\]",
        ),
        (
            {"collective_axes": "c", "leader_tracked": mgpu.CopyPartition.PARTITIONED(2)},
            (64, 64),
            r"PARTITIONED\(2\) does not divide src",
        ),
    ],
)
def test_misuse_of_collective_copies_names_the_line_and_the_remedy(arguments, shape, message):
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"test_clusters.py:\d+ copy_gmem_to_smem: .*" + message):
        _multicast_to(shape, **arguments)()


def test_a_multicast_to_a_peers_buffer_is_refused():
    def body(x_ref, _out_ref, buffer, full):
        mgpu.copy_gmem_to_smem(x_ref, mgpu.cluster_ref(buffer, {"c": 0}), full, collective_axes="c")

    with pytest.raises(
        mgpu.errors.Unsupported, match=r"test_clusters.py:\d+ a collective copy to buffer of another CTA"
    ):
        launch(body, jax.ShapeDtypeStruct((64, 64), F32), [mgpu.SMEM((64, 64), F32), mgpu.Barrier()], X)


def test_a_rank_outside_the_cluster_is_found():
    def body(out_ref, buffer):
        out_ref[...] = mgpu.cluster_ref(buffer, {"c": lax.axis_index("c") + 1})[...]

    with pytest.raises(mgpu.errors.SimulationError, match=r"test_clusters.py:\d+ .*CTA 2 of a cluster of 2"):
        launch(body, jax.ShapeDtypeStruct((8, 128), F32), [mgpu.SMEM((8, 128), F32)])


def test_waiting_on_a_peers_barrier_is_refused():
    def body(_out_ref, full):
        mgpu.barrier_wait(mgpu.cluster_ref(full, {"c": 0}))

    with pytest.raises(mgpu.errors.Unsupported, match=r"waiting on a barrier of another CTA.*arrive on yours"):
        launch(body, jax.ShapeDtypeStruct((8, 128), F32), [mgpu.Barrier()])


def test_cluster_refs_to_gmem_and_multicast_refs_are_refused():
    def gmem(out_ref):
        mgpu.cluster_ref(out_ref, {"c": 0})

    def devices(out_ref):
        mgpu.multicast_ref(out_ref, "x")

    with pytest.raises(mgpu.errors.KernelTypeError, match=r"ref must be in SMEM, got GMEM"):
        launch(gmem, jax.ShapeDtypeStruct((8, 128), F32), [])
    with pytest.raises(mgpu.errors.Unsupported, match=r"one GPU is simulated"):
        launch(devices, jax.ShapeDtypeStruct((8, 128), F32), [])


def test_a_cluster_barrier_needs_axes():
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"collective_axes must be a tuple of cluster axis names"):
        mgpu.ClusterBarrier(collective_axes="c")  # pyright: ignore[reportArgumentType]
