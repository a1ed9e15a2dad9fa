"""Refs to the shared memory of other CTAs of the cluster (distributed shared memory)."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any

import jax

from mgpu.errors import Unsupported
from mgpu.jax_internals import AbstractRef, Transform, TransformedRef, current_source_line, hide_from_source_lines
from mgpu.lang.memory import SMEM
from mgpu.lang.primitive import is_ref, type_error

hide_from_source_lines(__file__)


class _SameType(Transform):
    """A transform that changes where a ref points, not its type."""

    def transform_type(self, x: Any) -> Any:
        """Returns the type of the transformed ref: the same."""
        return x

    def undo(self, x: Any) -> Transform:
        """Refuses: where a ref pointed before cannot be told from its type."""
        raise NotImplementedError(f"{type(self).__name__} cannot be undone")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PeerCtaTransform(_SameType):
    """Points to the same buffer in another CTA of the cluster.

    Attributes:
      axes: cluster axes along which the other CTA is given; along the others it is the same.
      indices: its index along each of them.
    """

    axes: tuple[Hashable, ...] = dataclasses.field(metadata={"static": True})
    indices: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"cluster{list(self.axes)}"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MulticastTransform(_SameType):
    """Points to the same buffer on every device along mesh axes."""

    axes: tuple[Hashable, ...] = dataclasses.field(metadata={"static": True})

    def __str__(self) -> str:
        return f"multicast{list(self.axes)}"


def cluster_ref(ref: Any, block_id: Mapping[Any, Any]) -> TransformedRef:
    """Returns the ref to the same buffer in another CTA of the cluster.

    Reading and writing it goes through distributed shared memory.

    Args:
      ref: ref to a whole SMEM buffer or barrier array.
      block_id: index of the other CTA along each cluster axis; axes left out keep one's own index.

    Raises:
      KernelTypeError: not a ref in SMEM.
    """
    if not is_ref(ref):
        raise type_error("cluster_ref", f"ref must be a ref in SMEM, got {type(ref).__name__}.")
    aval = ref if isinstance(ref, AbstractRef) else getattr(ref, "aval", None) or ref.ref.aval
    kind = getattr(aval.memory_space, "kind", None)
    if kind not in (SMEM, None):
        raise type_error("cluster_ref", f"ref must be in SMEM, got {kind.name}. Every CTA sees the same GMEM.")
    axes = tuple(block_id)
    return with_transform(ref, PeerCtaTransform(axes, tuple(block_id[axis] for axis in axes)))


def multicast_ref(ref: Any, collective_axes: Hashable | tuple[Hashable, ...]) -> TransformedRef:
    """Would return a ref to the same buffer on all devices along mesh axes.

    Raises:
      Unsupported: always: one GPU is simulated.
    """
    del ref
    raise Unsupported(
        f"{current_source_line()} multicast_ref: collective_axes={collective_axes!r} names devices, and one GPU is "
        "simulated. To reach all CTAs of a cluster, copy with copy_gmem_to_smem(collective_axes=...)."
    )


def with_transform(ref: Any, transform: Any) -> TransformedRef:
    """Returns `ref` with one more transform on it."""
    if isinstance(ref, TransformedRef):
        return TransformedRef(ref.ref, (*ref.transforms, transform))
    return TransformedRef(ref, (transform,))
