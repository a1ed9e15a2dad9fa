"""A pipeline that can be broken in one place: a persistent matmul whose roles hand each other slots of two rings."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import MgpuError, RaceWarning, UnwrittenWarning

SIDE = 64


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """What the kernel looks like. Every CTA multiplies, `turns` times, its rows of a with b.

    Attributes:
      stages: slots of the operands.
      tiles: steps along k of one product.
      turns: products of a CTA, one after the other.
      consumers: warpgroups that multiply, each its own rows.
      out_slots: buffers that results are stored from.
      in_flight: wgmmas that stay in flight when a slot is released; 1 releases the slot of the step before.
      cluster: CTAs that share b by multicast.
    """

    stages: int
    tiles: int
    turns: int
    consumers: int
    out_slots: int
    in_flight: int
    cluster: int

    @property
    def steps(self) -> int:
        """Loads of a CTA."""
        return self.tiles * self.turns

    @property
    def is_ring(self) -> bool:
        """Whether a slot is used twice."""
        return self.steps > self.stages


@dataclasses.dataclass(frozen=True)
class _Refs:
    a: Any
    b: Any
    out: Any
    a_smem: Any
    b_smem: Any
    out_smem: Any
    full: Any
    empty: Any
    end: Any


@dataclasses.dataclass(frozen=True)
class _Roles:
    """What the warpgroups do, with one mistake."""

    pipeline: Pipeline
    mistake: str
    refs: _Refs

    def _slot(self, step: Any, mistake: str = "") -> Any:
        """Returns the slot of a step; the next one if that is the mistake."""
        return lax.rem(step + int(mistake != "" and mistake == self.mistake), self.pipeline.stages)

    def produce(self) -> None:
        p, refs = self.pipeline, self.refs
        late = {"wait one load too late": p.stages + 1, "wait for the first slots too": 0}
        first = late.get(self.mistake, p.stages)

        def load(step: Any, _: Any) -> None:
            if self.mistake != "no wait for an empty slot":
                freed = self._slot(step, "wait for the next slot")
                pl.when(step >= first)(lambda: mgpu.barrier_wait(refs.empty.at[freed]))
            depth, full = pl.ds(lax.rem(step, p.tiles) * SIDE, SIDE), refs.full.at[self._slot(step)]
            a_slot = refs.a_smem.at[self._slot(step, "load into the next slot")]
            mgpu.copy_gmem_to_smem(refs.a.at[lax.axis_index("c"), :, depth], a_slot, full)
            shared = "c" if p.cluster > 1 else None
            b_slot = refs.b_smem.at[self._slot(step)]
            mgpu.copy_gmem_to_smem(refs.b.at[depth], b_slot, full, collective_axes=shared)

        lax.fori_loop(0, p.steps, load, None)

    def consume(self, mine: Any) -> None:
        lax.fori_loop(0, self.pipeline.turns, lambda turn, _: self._turn(turn, mine), None)
        if self.mistake != "no wait at the end":
            mgpu.wait_smem_to_gmem(0)

    def _turn(self, turn: Any, mine: Any) -> None:
        p, refs, mistake = self.pipeline, self.refs, self.mistake
        result = pl.run_scoped(lambda acc: self._product(turn, mine, acc), mgpu.ACC((SIDE, SIDE)))
        buffer = refs.out_smem.at[mine, lax.rem(turn, p.out_slots)]
        if mistake != "no wait for a stored buffer":
            pending = p.out_slots - (mistake != "wait for one store too few")
            mgpu.wait_smem_to_gmem(pending, wait_read_only=True)
        buffer[...] = result
        if mistake not in ("no commit", "commit after the store"):
            mgpu.commit_smem()
        row = jnp.where(turn == 1, 0, turn) if mistake == "store two results to one place" else turn
        mgpu.copy_smem_to_gmem(buffer, refs.out.at[row, lax.axis_index("c"), pl.ds(mine * SIDE, SIDE)])
        if mistake == "commit after the store":
            mgpu.commit_smem()

    def _product(self, turn: Any, mine: Any, acc: Any) -> Any:
        p, mistake = self.pipeline, self.mistake
        lax.fori_loop(0, p.tiles, lambda tile, _: self._step(turn * p.tiles + tile, tile, mine, acc), None)
        if mistake == "read the accumulator early":
            result = mgpu.wgmma_accumulator_load(acc, wait_n=p.in_flight or None)
            mgpu.wgmma_wait(0)
        else:
            mgpu.wgmma_wait(0)
            result = acc[...]
        if p.in_flight and mistake != "release before the wait":
            self._release(turn * p.tiles + p.tiles - 1)
        return result

    def _step(self, step: Any, tile: Any, mine: Any, acc: Any) -> None:
        p, refs, mistake = self.pipeline, self.refs, self.mistake
        if mistake != "no wait for a full slot":
            mgpu.barrier_wait(refs.full.at[self._slot(step, "wait for the next full slot")])
        a_slot = refs.a_smem.at[self._slot(step), pl.ds(mine * SIDE, SIDE)]
        mgpu.wgmma(acc, a_slot, refs.b_smem.at[self._slot(step)])
        if mistake == "release before the wait":
            self._release(step)
        if mistake != "no wgmma wait":
            mgpu.wgmma_wait(p.in_flight)
        if mistake == "release before the wait":
            return
        if p.in_flight == 0:
            self._release(step)
        else:
            pl.when(tile > 0)(lambda: self._release(step - 1))

    def _release(self, step: Any) -> None:
        if self.mistake != "no release":
            mgpu.barrier_arrive(self.refs.empty.at[self._slot(step, "release the next slot")])


def make_kernel(pipeline: Pipeline, mistake: str = "", **options: Any) -> Any:
    """Returns the kernel of a pipeline with one mistake; "" for none."""
    p = pipeline

    def body(*refs: Any) -> None:
        roles, warpgroup = _Roles(p, mistake, _Refs(*refs)), lax.axis_index("wg")
        pl.when(warpgroup == p.consumers)(roles.produce)
        pl.when(warpgroup < p.consumers)(lambda: roles.consume(warpgroup))
        if p.cluster > 1:  # a CTA stays until its peers have released its slots
            mgpu.barrier_arrive(roles.refs.end)
            mgpu.barrier_wait(roles.refs.end)

    loads = 2 + {"a load too many expected": 1, "a load too few expected": -1}.get(mistake, 0)
    users = p.consumers + {"a release too many expected": 1, "a release too few expected": -1}.get(mistake, 0)
    empty: Any = mgpu.Barrier(num_arrivals=users, num_barriers=p.stages)
    if p.cluster > 1 and mistake != "release to one's own CTA only":
        empty = mgpu.ClusterBarrier(collective_axes=("c",), num_arrivals=users, num_barriers=p.stages)
    return mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((p.turns, p.cluster, SIDE * p.consumers, SIDE), jnp.float32),
        scratch_types=[
            _swizzled(p.stages, SIDE * p.consumers, SIDE),
            _swizzled(p.stages, SIDE, SIDE),
            mgpu.SMEM((p.consumers, p.out_slots, SIDE, SIDE), jnp.float32),
            mgpu.Barrier(num_arrivals=loads, num_barriers=p.stages),
            empty,
            mgpu.ClusterBarrier(collective_axes=("c",), num_arrivals=p.consumers + 1),
        ],
        cluster=(p.cluster,),
        cluster_names=("c",),
        num_threads=p.consumers + 1,
        thread_name="wg",
        **options,
    )


def _swizzled(*shape: int) -> Any:
    return mgpu.SMEM(shape, jnp.bfloat16, transforms=(mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128)))


def operands(pipeline: Pipeline) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a, b and what the kernel gives: small integers, whose sums are exact."""
    depth = SIDE * pipeline.tiles

    def integers(*shape: int) -> np.ndarray:
        return (np.arange(math.prod(shape), dtype=np.float32).reshape(shape) % 31 - 15).astype(jnp.bfloat16)

    a, b = integers(pipeline.cluster, SIDE * pipeline.consumers, depth), integers(depth, SIDE)
    product = a.astype(np.float32) @ b.astype(np.float32)
    return a, b, np.broadcast_to(product, (pipeline.turns, *product.shape))


def run_checked(kernel: Any, *arrays: np.ndarray) -> tuple[np.ndarray | None, str]:
    """Runs a kernel. Returns its output, None if it failed, and what was found wrong with it, "" if nothing."""
    mgpu.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RaceWarning)
        warnings.simplefilter("error", UnwrittenWarning)
        try:
            out = np.asarray(kernel(*arrays))
        except (MgpuError, UnwrittenWarning) as error:
            return None, f"{type(error).__name__}: {error}"
    races = mgpu.get_races()
    mgpu.reset()
    return out, str(races[0]) if races else ""
