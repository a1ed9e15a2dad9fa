"""CTAs of a cluster that wait for each other: what the launch would have taken if all worked as long as the fastest.

A multicast load, or a barrier that joins the CTAs of a cluster, makes every CTA as slow as the slowest one.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from profiler.analysis.graph_edges import LaunchGraph


@dataclasses.dataclass(frozen=True)
class EvenClusters:
    """A launch whose CTAs of a cluster do their own work equally fast.

    Attributes:
      weight: new weights of the event graph's edges, int64.
      caveat: which CTA works longest, in words.
    """

    weight: np.ndarray
    caveat: str


def even_clusters(launch: LaunchGraph, own_work: np.ndarray) -> EvenClusters | None:
    """Scales each warpgroup's own work to that of the rank in the cluster that works least; None without clusters.

    Args:
      launch: the event graph.
      own_work: bool[edges], edges in which a track does its own work.
    """
    if int(np.prod(launch.trace.header.cluster)) < 2:
        return None
    edges = launch.graph.edges
    tracks = launch.trace.tracks.with_columns(rank=pl.col("cta") - pl.col("cta").min().over("cluster"))
    work = np.bincount(edges.track[own_work], edges.weight[own_work], tracks.height)
    tracks = tracks.with_columns(work=pl.Series(work))
    ranks = tracks.group_by("warpgroup", "rank").agg(pl.col("work").median(), pl.col("role").first())
    ranks = ranks.with_columns(least=pl.col("work").min().over("warpgroup"))
    ranks = ranks.with_columns(excess=pl.col("work") - pl.col("least")).sort(
        "excess", "warpgroup", "rank", descending=[True, False, False]
    )
    if ranks.is_empty() or not ranks["excess"][0]:
        return None
    factor = tracks.join(ranks, on=["warpgroup", "rank"], how="left", maintain_order="left").select(
        pl.when(pl.col("work_right") > 0).then(pl.col("least") / pl.col("work_right")).otherwise(1.0)
    )
    scale = np.append(factor.to_series().to_numpy(), 1.0)[edges.track]
    slow = ranks.row(0, named=True)
    return EvenClusters(
        np.where(own_work, np.rint(edges.weight * scale).astype(np.int64), edges.weight),
        f"WG{slow['warpgroup']} of the CTA with rank {slow['rank']} in its cluster works {slow['work']:,.0f} cycles, "
        f"of the one that works least {slow['least']:,.0f} (medians)",
    )
