"""Memory spaces, and the types of what is allocated in them.

`GMEM`, `SMEM` and `REGS` are called like types: `plgpu.SMEM((64, 64), jnp.float16, transforms=...)` describes an
allocation, for `scratch_types` or `pl.run_scoped`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import AbstractRef
from mgpu.lang.transforms import SwizzleTransform, TilingTransform, check_transforms


class MemorySpace(enum.Enum):
    """Where a ref lives: global, shared or register memory."""

    GMEM = "gmem"
    SMEM = "smem"
    REGS = "regs"

    def __call__(
        self,
        shape: Sequence[int],
        dtype: Any,
        *,
        transforms: Sequence[Any] = (),
        packed: bool | None = None,
        collective: bool | None = None,
        layout: Any = None,
    ) -> MemoryRef:
        """Describes an allocation of `shape` and `dtype` in this space.

        Args:
          shape: logical shape; tiling does not change it.
          dtype: element type.
          transforms: how SMEM is laid out: `TilingTransform`, then `SwizzleTransform`.
          packed, collective, layout: properties of tensor memory, which no Hopper GPU has; leave them out.

        Raises:
          KernelTypeError: the transforms do not fit the shape and dtype, or the space has none.
        """
        for name, value in (("packed", packed), ("collective", collective), ("layout", layout)):
            if value is not None:
                raise KernelTypeError(
                    f"{self.name}: {name}={value!r} describes tensor memory (TMEM); this is {self.name}. Leave it out."
                )
        return MemoryRef(tuple(int(size) for size in shape), jnp.dtype(dtype), self, tuple(transforms))

    def __str__(self) -> str:
        return self.value

    @property
    def kind(self) -> MemorySpace:
        """The space itself; a `TiledSpace` answers with its SMEM."""
        return self

    @property
    def transforms(self) -> tuple[()]:
        """A plain space is row-major: no transforms."""
        return ()


GMEM = MemorySpace.GMEM
SMEM = MemorySpace.SMEM
REGS = MemorySpace.REGS


@dataclasses.dataclass(frozen=True)
class TiledSpace:
    """SMEM laid out by transforms: the memory space of a ref that was allocated with them."""

    kind: MemorySpace
    transforms: tuple[TilingTransform | SwizzleTransform, ...]

    def __str__(self) -> str:
        return f"{self.kind}[{', '.join(map(str, self.transforms))}]"


@dataclasses.dataclass(frozen=True)
class MemoryRef:
    """The type of an allocation: shape, dtype, memory space and layout transforms."""

    shape: tuple[int, ...]
    dtype: np.dtype
    memory_space: MemorySpace
    transforms: tuple[TilingTransform | SwizzleTransform, ...] = ()

    def __post_init__(self) -> None:
        if self.transforms and self.memory_space is not MemorySpace.SMEM:
            raise KernelTypeError(
                f"{self.memory_space.name}{self.shape}: transforms {self.transforms} describe an SMEM layout, and this "
                f"is {self.memory_space.name}. Drop the transforms, or allocate it in SMEM."
            )
        check_transforms(self.shape, self.dtype, self.transforms)

    def get_array_aval(self) -> ShapedArray:
        """Returns the aval of the contents."""
        return ShapedArray(self.shape, self.dtype)

    def get_ref_aval(self) -> AbstractRef:
        """Returns the aval of a ref to the allocation: what `pl.run_scoped` passes to the kernel body."""
        space = TiledSpace(self.memory_space, self.transforms) if self.transforms else self.memory_space
        return AbstractRef(self.get_array_aval(), memory_space=space)
