"""Random legal kernels of many kinds, and the same with one synchronisation left out.

Each builder draws its sizes from `draw` (as `random.Random`, or Hypothesis' one, which shrinks) and takes its barriers,
commits and waits from `sync`, which leaves out the one that it is told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mgpu

F32, BF16 = jnp.float32, jnp.bfloat16
SIDE = 64
TILE = mgpu.SMEM((SIDE, SIDE), F32)
_LEFT_OUT = ("barrier_wait", "barrier_arrive", "commit_smem", "wait_smem_to_gmem", "wgmma_wait", "semaphore_wait")


class Sync:
    """The language's synchronisation.

    Args:
      missing: which call of the traced kernel does nothing; None for all do.

    Attributes:
      calls: names of the calls so far.
    """

    def __init__(self, missing: int | None = None) -> None:
        self._missing = missing
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in _LEFT_OUT:
            raise AttributeError(name)

        def call(*args: Any, **options: Any) -> None:
            self.calls.append(name)
            if len(self.calls) - 1 != self._missing:
                getattr(mgpu, name)(*args, **options)

        return call


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A kernel, and what its first output has to be.

    Attributes:
      body, out_type, scratch, options: as `mgpu.kernel` takes them; `out_type` is a tuple.
      operands: its inputs.
      expected: its first output.
      aliases: inputs that outputs begin as.
    """

    body: Callable[..., None]
    out_type: tuple[Any, ...]
    scratch: tuple[Any, ...]
    operands: tuple[np.ndarray, ...]
    expected: np.ndarray
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    aliases: dict[int, int] = dataclasses.field(default_factory=dict)

    def kernel(self, *, detect_races: bool = True, **params: Any) -> Callable[..., Any]:
        """Returns a function of its operands that gives its first output."""
        interpret = mgpu.InterpretGPUParams(detect_races=detect_races, **params)
        kernel = mgpu.kernel(
            self.body, out_type=self.out_type, scratch_types=self.scratch, interpret=interpret, **self.options
        ).with_aliases(self.aliases)
        return lambda *operands: kernel(*operands)[0]


def _integers(*shape: int, dtype: Any = F32) -> np.ndarray:
    """Small integers: sums and products are exact."""
    return (np.arange(np.prod(shape)).reshape(shape) * 7 % 31 - 15).astype(dtype)


def _like(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, F32)


def _swizzled(*shape: int) -> Any:
    return mgpu.SMEM(shape, BF16, transforms=(mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128)))


def _role(number: int) -> Callable[[Callable[[], None]], None]:
    return pl.when(lax.axis_index("wg") == number)


_TWO_ROLES = {"num_threads": 2, "thread_name": "wg"}


def pipeline(draw: Any, sync: Sync) -> Drawn:
    """`emit_pipeline` over a grid of tiles."""
    del sync
    rows, columns, steps = draw.randint(1, 3), draw.randint(1, 4), draw.randint(1, 4)
    delay = draw.randint(0, steps - 1)
    x, y = _integers(rows * SIDE, columns * SIDE), _integers(rows * SIDE, columns * SIDE)

    def body(x_ref: Any, y_ref: Any, out: Any) -> None:
        def add(_: Any, x_tile: Any, y_tile: Any, out_tile: Any) -> None:
            out_tile[...] = x_tile[...] + 2 * y_tile[...]

        tile = mgpu.BlockSpec((SIDE, SIDE), lambda i, j: (i, j), delay_release=delay)
        mgpu.emit_pipeline(
            add,
            grid=(rows, columns),
            in_specs=[tile, tile],
            out_specs=[mgpu.BlockSpec((SIDE, SIDE), lambda i, j: (i, j))],
            max_concurrent_steps=steps,
        )(x_ref, y_ref, out)

    return Drawn(body, (_like(*x.shape),), (), (x, y), x + 2 * y)


def specialised_pipeline(draw: Any, sync: Sync) -> Drawn:
    """`emit_pipeline_warp_specialized`: a product whose accumulator is carried from step to step."""
    depth, steps, consumers = draw.randint(1, 5), draw.randint(2, 4), draw.randint(1, 2)
    by_hand, in_place = draw.randint(0, 1), draw.randint(0, 1)
    a, b = _integers(SIDE * consumers, depth * SIDE, dtype=BF16), _integers(depth * SIDE, SIDE, dtype=BF16)

    def body(a_ref: Any, b_ref: Any, out: Any) -> None:
        mine = pl.ds(lax.axis_index("wg") * SIDE, SIDE)

        def whole(run: Callable[[Any], Any]) -> None:
            out[mine] = run(mgpu.layout_cast(jnp.zeros((SIDE, SIDE), F32), mgpu.Layout.WGMMA))

        def step(_: Any, a_tile: Any, b_tile: Any, *rest: Any) -> Any:
            *consumed, carry = rest

            def multiply(acc: Any) -> Any:
                mgpu.wgmma(acc, a_tile.at[mine], b_tile)
                sync.wgmma_wait(0)
                return None if in_place else acc[...]

            if in_place:
                carry = pl.run_state(multiply)(mgpu.ACC.init(carry))
            else:
                carry = carry + pl.run_scoped(multiply, mgpu.ACC((SIDE, SIDE)))
            for barrier in consumed:
                sync.barrier_arrive(barrier)
            return carry

        mgpu.emit_pipeline_warp_specialized(
            step,
            grid=(depth,),
            in_specs=[
                mgpu.BlockSpec((SIDE * consumers, SIDE), lambda k: (0, k), transforms=_swizzled(8, 64).transforms),
                mgpu.BlockSpec((SIDE, SIDE), lambda k: (k, 0), transforms=_swizzled(8, 64).transforms),
            ],
            max_concurrent_steps=steps,
            num_compute_wgs=consumers,
            memory_registers=40,
            wg_axis="wg",
            compute_context=whole,
            manual_consumed_barriers=bool(by_hand),
        )(a_ref, b_ref)

    expected = a.astype(np.float32) @ b.astype(np.float32)
    options = {"num_threads": consumers + 1, "thread_name": "wg"}
    return Drawn(body, (_like(*expected.shape),), (), (a, b), expected, options)


def through_gmem(draw: Any, sync: Sync) -> Drawn:
    """Tiles are stored to GMEM and loaded again."""
    tiles = draw.randint(1, 4)
    x = _integers(tiles, SIDE, SIDE)

    def body(x_ref: Any, out: Any, between: Any, first: Any, second: Any, full: Any) -> None:
        def step(i: Any, _: Any) -> None:
            first[...] = x_ref[i] * 3
            sync.commit_smem()
            mgpu.copy_smem_to_gmem(first, between.at[i])
            sync.wait_smem_to_gmem(0)
            mgpu.copy_gmem_to_smem(between.at[i], second, full)
            sync.barrier_wait(full)
            out[i] = second[...] + 1

        lax.fori_loop(0, tiles, step, None)

    return Drawn(body, (_like(*x.shape),) * 2, (TILE, TILE, mgpu.Barrier()), (x,), x * 3 + 1)


def scopes(draw: Any, sync: Sync) -> Drawn:
    """The same bytes of SMEM in one `run_scoped` after the other."""
    kinds = [draw.choice(["store", "load", "plain"]) for _ in range(draw.randint(2, 4))]
    turns = draw.randint(1, 3)
    x = _integers(len(kinds), SIDE, SIDE)

    def body(x_ref: Any, out: Any) -> None:
        def use(number: int, kind: str, tile: Any, full: Any) -> None:
            if kind == "load":
                mgpu.copy_gmem_to_smem(x_ref.at[number], tile, full)
                sync.barrier_wait(full)
            else:
                tile[...] = x_ref[number]
                sync.commit_smem()
            if kind == "store":
                mgpu.copy_smem_to_gmem(tile, out.at[number])
                sync.wait_smem_to_gmem(0)
            else:
                out[number] = tile[...]

        def turn(_: Any, carry: Any) -> Any:
            for number, kind in enumerate(kinds):
                pl.run_scoped(lambda *refs, n=number, k=kind: use(n, k, *refs), TILE, mgpu.Barrier())
            return carry

        lax.fori_loop(0, turns, turn, None)

    return Drawn(body, (_like(*x.shape),), (), (x,), x)


def shared_loop(draw: Any, sync: Sync) -> Drawn:
    """`nd_loop` over CTAs, with one buffer for all stores of a CTA."""
    grid, ctas = (draw.randint(1, 4), draw.randint(1, 4)), draw.randint(1, 3)
    x = _integers(grid[0] * 8, grid[1] * 128)

    def body(x_ref: Any, out: Any, tile: Any) -> None:
        @mgpu.nd_loop(grid, collective_axes="cta")
        def _(info: Any) -> None:
            i, j = info.index
            part = pl.ds(i * 8, 8), pl.ds(j * 128, 128)
            sync.wait_smem_to_gmem(0)
            tile[...] = x_ref[part] * 2
            sync.commit_smem()
            mgpu.copy_smem_to_gmem(tile, out.at[part])

        sync.wait_smem_to_gmem(0)

    options = {"grid": (ctas,), "grid_names": ("cta",)}
    return Drawn(body, (_like(*x.shape),), (mgpu.SMEM((8, 128), F32),), (x,), x * 2, options)


def counted_ring(draw: Any, sync: Sync) -> Drawn:
    """A ring whose number of steps is read from GMEM; the sum is carried in registers."""
    most, stages = 6, draw.randint(1, 3)
    steps = draw.randint(1, most)
    x = _integers(most, SIDE, SIDE)

    def body(x_ref: Any, count: Any, out: Any, ring: Any, full: Any, empty: Any) -> None:
        @_role(1)
        def _() -> None:
            def load(step: Any, _: Any) -> None:
                slot = lax.rem(step, stages)
                pl.when(step >= stages)(lambda: sync.barrier_wait(empty.at[slot]))
                mgpu.copy_gmem_to_smem(x_ref.at[step], ring.at[slot], full.at[slot])

            lax.fori_loop(0, count[0], load, None)

        @_role(0)
        def _() -> None:
            def add(step: Any, total: Any) -> Any:
                slot = lax.rem(step, stages)
                sync.barrier_wait(full.at[slot])
                value = ring[slot]
                sync.barrier_arrive(empty.at[slot])
                return total + value

            out[...] = lax.fori_loop(0, count[0], add, jnp.zeros((SIDE, SIDE), F32))

    scratch = (
        mgpu.SMEM((stages, SIDE, SIDE), F32),
        mgpu.Barrier(num_barriers=stages),
        mgpu.Barrier(num_barriers=stages),
    )
    operands = (x, np.array([steps], np.int32))
    return Drawn(body, (_like(SIDE, SIDE),), scratch, operands, x[:steps].sum(0), _TWO_ROLES)


def loading_warps(draw: Any, sync: Sync) -> Drawn:
    """Each warp of a warpgroup loads its part."""
    tiles = draw.randint(1, 4)
    x = _integers(tiles, 4, 8, 128)

    def body(x_ref: Any, out: Any, parts: Any, full: Any) -> None:
        def step(i: Any, _: Any) -> None:
            @mgpu.warp_map
            def _(warp: Any) -> None:
                mgpu.copy_gmem_to_smem(x_ref.at[i, warp], parts.at[warp], full)

            sync.barrier_wait(full)
            out[i] = parts[...] + 1

        lax.fori_loop(0, tiles, step, None)

    scratch = (mgpu.SMEM((4, 8, 128), F32), mgpu.Barrier(num_arrivals=4))
    return Drawn(body, (_like(*x.shape),), scratch, (x,), x + 1)


def cluster_ring(draw: Any, sync: Sync) -> Drawn:
    """A cluster of two axes: a is shared along one, b along the other."""
    rows, columns = draw.choice([(1, 2), (2, 1), (2, 2)])
    depth, stages = draw.randint(1, 4), draw.randint(1, 3)
    a, b = _integers(rows, SIDE, depth * SIDE, dtype=BF16), _integers(columns, depth * SIDE, SIDE, dtype=BF16)

    def body(a_ref: Any, b_ref: Any, out: Any, a_ring: Any, b_ring: Any, full: Any, empty: Any) -> None:
        row, column = lax.axis_index("row"), lax.axis_index("column")

        @_role(1)
        def _() -> None:
            def load(step: Any, _: Any) -> None:
                slot, part = lax.rem(step, stages), pl.ds(step * SIDE, SIDE)
                pl.when(step >= stages)(lambda: sync.barrier_wait(empty.at[slot]))
                mgpu.copy_gmem_to_smem(a_ref.at[row, :, part], a_ring.at[slot], full.at[slot], collective_axes="column")
                mgpu.copy_gmem_to_smem(b_ref.at[column, part], b_ring.at[slot], full.at[slot], collective_axes="row")

            lax.fori_loop(0, depth, load, None)
            # A CTA stays until its peers have told it that they are done.
            first = max(0, depth - stages)
            lax.fori_loop(first, depth, lambda step, _: mgpu.barrier_wait(empty.at[lax.rem(step, stages)]), None)

        @_role(0)
        def _() -> None:
            def multiply(acc: Any) -> Any:
                def step(number: Any, _: Any) -> None:
                    slot = lax.rem(number, stages)
                    sync.barrier_wait(full.at[slot])
                    mgpu.wgmma(acc, a_ring.at[slot], b_ring.at[slot])
                    sync.wgmma_wait(0)
                    sync.barrier_arrive(empty.at[slot])

                lax.fori_loop(0, depth, step, None)
                return acc[...]

            out[row, column] = pl.run_scoped(multiply, mgpu.ACC((SIDE, SIDE)))

    expected = np.einsum("xmk,ykn->xymn", a.astype(np.float32), b.astype(np.float32))
    scratch = (
        _swizzled(stages, SIDE, SIDE),
        _swizzled(stages, SIDE, SIDE),
        mgpu.Barrier(num_arrivals=2, num_barriers=stages),
        mgpu.ClusterBarrier(collective_axes=("row", "column"), num_barriers=stages),
    )
    options = {"cluster": (rows, columns), "cluster_names": ("row", "column"), **_TWO_ROLES}
    return Drawn(body, (_like(*expected.shape),), scratch, (a, b), expected, options)


def sum_in_gmem(draw: Any, sync: Sync) -> Drawn:
    """CTAs add to one output by TMA reductions."""
    ctas = draw.randint(1, 5)
    x, zeros = _integers(ctas, SIDE, SIDE), np.zeros((SIDE, SIDE), np.float32)

    def body(x_ref: Any, _: Any, out: Any, tile: Any) -> None:
        tile[...] = x_ref[lax.axis_index("cta")]
        sync.commit_smem()
        mgpu.copy_smem_to_gmem(tile, out, reduction_op="add")
        sync.wait_smem_to_gmem(0)

    options = {"grid": (ctas,), "grid_names": ("cta",)}
    return Drawn(body, (_like(SIDE, SIDE),), (TILE,), (x, zeros), x.sum(0), options, {1: 0})


BUILDERS: dict[str, Callable[[Any, Sync], Drawn]] = {
    builder.__name__: builder
    for builder in (
        pipeline,
        specialised_pipeline,
        through_gmem,
        scopes,
        shared_loop,
        counted_ring,
        loading_warps,
        cluster_ring,
        sum_in_gmem,
    )
}
