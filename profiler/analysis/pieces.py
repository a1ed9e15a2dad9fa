"""Stretches of time that are cut until each has one explanation."""

from __future__ import annotations

import numpy as np

from profiler.analysis.leaves import Leaves
from profiler.grouping import combined_key, stable_order

NONE = -1

# One stretch of one SM's timeline. Rows that are cut keep every other field.
PIECE_DTYPE = np.dtype(
    [
        ("sm", "i8"),
        ("gap", "i8"),  # number of the uncut stretch
        ("cta", "i8"),  # the CTA that ends the stretch with an MMA, or, after the last MMA, that issued the last one
        ("begin", "i8"),
        ("end", "i8"),
        ("next_site", "i8"),  # of the MMA that ends the stretch
        ("track", "i8"),  # whose doing explains the stretch
        ("leaf", "i8"),  # row of the leaf of `track`
        ("wait", "i8"),  # row of `Trace.waits` in which `track` was
        ("root_track", "i8"),  # end of the blame chain
        ("root_wait", "i8"),
        ("root_site", "i8"),
        ("cause", "i8"),  # index into `list(Cause)`
        ("detail", "i8"),  # index into `list(Detail)`
    ]
)


def make_pieces(sm: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Returns pieces (`PIECE_DTYPE`) with nothing known but where they are. Empty stretches are left out."""
    keep = end > begin
    pieces = np.empty(int(keep.sum()), PIECE_DTYPE)
    for name in PIECE_DTYPE.names or ():
        pieces[name] = NONE
    pieces["sm"], pieces["begin"], pieces["end"] = sm[keep], begin[keep], end[keep]
    return pieces


def cut(pieces: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Cuts each piece at its own time if that lies inside it."""
    inside = (at > pieces["begin"]) & (at < pieces["end"])
    later = pieces[inside]
    later["begin"] = at[inside]
    earlier = pieces.copy()
    earlier["end"][inside] = at[inside]
    return np.concatenate([earlier, later])


def cut_by_leaves(pieces: np.ndarray, leaves: Leaves, track: np.ndarray, field: str = "leaf") -> np.ndarray:
    """Cuts each piece at the leaf boundaries of its `track` and writes the leaf's row into `field`."""
    first = leaves.find(track, pieces["begin"])
    count = leaves.find(track, pieces["end"] - 1) - first + 1
    rows = np.repeat(np.arange(len(pieces)), count)
    leaf = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count) + first[rows]
    parts = pieces[rows]
    parts[field] = leaf
    parts["begin"] = np.maximum(parts["begin"], leaves.begin[leaf])
    parts["end"] = np.minimum(parts["end"], leaves.end[leaf])
    return parts


def join_pieces(pieces: np.ndarray) -> np.ndarray:
    """Sorts pieces by (sm, begin) and joins neighbours that touch and agree on everything but time."""
    pieces = pieces[stable_order(combined_key([pieces["sm"], pieces["begin"]]))]
    if not len(pieces):
        return pieces
    differs = pieces["begin"][1:] != pieces["end"][:-1]
    for name in PIECE_DTYPE.names or ():
        if name not in ("begin", "end", "leaf"):
            differs |= pieces[name][1:] != pieces[name][:-1]
    first = np.concatenate([[0], np.flatnonzero(differs) + 1])
    joined = pieces[first]
    joined["end"] = pieces["end"][np.append(first[1:], len(pieces)) - 1]
    return joined
