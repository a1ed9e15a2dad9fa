"""Loops over a grid whose steps are shared out among CTAs or warpgroups, and orders that keep tiles in L2.

`nd_loop` makes a persistent kernel: as many CTAs as the device has SMs, each of which goes through its share of the
tiles.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import current_source_line, hide_from_source_lines
from mgpu.lang.pipeline_grid import check_grid, count_steps, loop

hide_from_source_lines(__file__)


@dataclasses.dataclass(frozen=True)
class NDLoopInfo:
    """Where a step of a loop is.

    Attributes:
      index: grid indices of the step.
      local_index: number of the step among those of this CTA (or warpgroup).
      num_local_steps: how many steps this CTA (or warpgroup) has; None if not known.
    """

    index: tuple[Any, ...]
    local_index: Any
    num_local_steps: Any


def nd_loop(
    grid: Sequence[Any],
    *,
    collective_axes: Sequence[Hashable] | Hashable,
    tiling: Sequence[int] | None = None,
    init_carry: Any = None,
) -> Callable[[Callable[..., Any]], Any]:
    """Runs the decorated body for each point of a grid, dealt out in turn along `collective_axes`.

    With axes of total size P, the participant with index p gets the steps p, p + P, p + 2 P, ... of the grid's order:
    the last axis fastest, or tile by tile. If P does not divide the steps, some participants have one step less.

    Args:
      grid: sizes; integers or scalar arrays.
      collective_axes: name or names of the axes whose members share the steps.
      tiling: visits the grid in tiles of this shape, row-major, each tile row-major; must divide the grid (unchecked
        where a size is an array: what does not fill a tile is then left out).
      init_carry: first carry, a pytree. The body then gets `carry=` and returns the next one.

    Returns:
      A decorator that runs the loop at once and returns the last carry (None without one). The body is called with an
      `NDLoopInfo`.

    Raises:
      KernelTypeError: a tiling of another rank than the grid, or that does not divide its static sizes.
    """
    sizes = check_grid("nd_loop", tuple(grid) if isinstance(grid, (tuple, list)) else grid)
    tile = None if tiling is None else _check_tiling(sizes, tiling)
    axes = tuple(collective_axes) if isinstance(collective_axes, (tuple, list)) else (collective_axes,)

    def run(body: Callable[..., Any]) -> Any:
        participants = math.prod(lax.axis_size(axis) for axis in axes)
        number = lax.axis_index(axes)
        steps = count_steps([*sizes] if tile is None else [*_count_tiles(sizes, tile), *tile])
        even, odd = _divide(steps, participants)
        own_steps: Any = even
        if not (isinstance(odd, int) and odd == 0):
            own_steps = even + jnp.where(number < odd, 1, 0).astype(jnp.int32)

        def step(local_index: Any, carry: Any) -> Any:
            linear = local_index * participants + number
            index = _unravel(linear, sizes) if tile is None else _unravel_tiled(linear, sizes, tile)
            info = NDLoopInfo(index, local_index, own_steps)
            if init_carry is None:
                body(info)
                return None
            return body(info, carry=carry)

        return loop(own_steps, step, init_carry)

    return run


def _divide(steps: Any, participants: int) -> tuple[Any, Any]:
    if isinstance(steps, int):
        return divmod(steps, participants)
    return lax.div(steps, jnp.int32(participants)), lax.rem(steps, jnp.int32(participants))


def _unravel(linear: Any, sizes: Sequence[Any]) -> tuple[Any, ...]:
    index = []
    for size in reversed(sizes[1:]):
        size = jnp.asarray(size, jnp.int32)
        index.append(lax.rem(linear, size))
        linear = lax.div(linear, size)
    return (linear, *reversed(index)) if sizes else ()


def _unravel_tiled(linear: Any, sizes: Sequence[Any], tile: Sequence[int]) -> tuple[Any, ...]:
    per_tile = jnp.int32(math.prod(tile))
    outer = _unravel(lax.div(linear, per_tile), _count_tiles(sizes, tile))
    inner = _unravel(lax.rem(linear, per_tile), tile)
    return tuple(o * side + i for o, i, side in zip(outer, inner, tile, strict=True))


def _count_tiles(sizes: Sequence[Any], tile: Sequence[int]) -> list[Any]:
    return [_divide(size, side)[0] for size, side in zip(sizes, tile, strict=True)]


def _check_tiling(sizes: Sequence[Any], tiling: Sequence[int]) -> tuple[int, ...]:
    tile = tuple(int(side) for side in tiling)
    where = f"{current_source_line()} nd_loop: tiling={tile}"
    if len(tile) != len(sizes):
        raise KernelTypeError(
            f"{where} has {len(tile)} sizes, the grid {tuple(sizes)} has {len(sizes)} axes. Give one for each."
        )
    if any(side < 1 or (isinstance(size, int) and size % side) for size, side in zip(sizes, tile, strict=True)):
        raise KernelTypeError(f"{where} does not divide the grid {tuple(sizes)}. Choose sizes that divide each axis.")
    return tile


def planar_snake(lin_idx: Any, shape: tuple[Any, Any], minor_dim: int, tile_width: int) -> tuple[Any, Any]:
    """Turns a step number into a position in a plane, so that consecutive steps share rows and columns.

    The plane is cut into strips of `tile_width` along `minor_dim`. Within a strip the minor index runs fastest; the
    major index runs up in even strips and down in odd ones, so that the path has no jumps. A last, narrower strip is
    allowed.

    Args:
      lin_idx: step number.
      shape: sizes of the plane; integers or scalar arrays.
      minor_dim: 0 or 1: the dimension that is cut into strips.
      tile_width: width of a strip.

    Returns:
      The indices along dimensions 0 and 1.

    Raises:
      KernelTypeError: `minor_dim` is neither 0 nor 1, or `tile_width` is below 1.
    """
    if minor_dim not in (0, 1) or not isinstance(tile_width, int) or tile_width < 1:
        raise KernelTypeError(
            f"{current_source_line()} planar_snake: need minor_dim 0 or 1 and a positive tile_width, got "
            f"minor_dim={minor_dim!r}, tile_width={tile_width!r}."
        )
    lin_idx = jnp.asarray(lin_idx, jnp.int32)
    major_size = jnp.asarray(shape[1 - minor_dim], jnp.int32)
    minor_size = jnp.asarray(shape[minor_dim], jnp.int32)
    width = jnp.int32(tile_width)
    strip = lax.div(lin_idx, width * major_size)
    in_strip = lax.rem(lin_idx, width * major_size)
    # The last strip may be narrower than the others.
    own_width = jnp.minimum(width, minor_size - strip * width)
    own_width = jnp.maximum(own_width, 1)
    minor = strip * width + lax.rem(in_strip, own_width)
    up = lax.div(in_strip, own_width)
    major = jnp.where(lax.rem(strip, jnp.int32(2)) == 0, up, major_size - 1 - up)
    return (minor, major) if minor_dim == 0 else (major, minor)


def dynamic_scheduling_loop(
    grid_names: Sequence[Hashable],
    thread_axis: Hashable | None = None,
    cluster_axes: Sequence[Hashable] = (),
    init_carry: Any = None,
) -> Callable[[Callable[..., Any]], Any]:
    """Runs the decorated body for the work of this CTA, and for more as long as the hardware hands some out.

    Launch one CTA (or cluster) for each unit of work. A Hopper SM cannot take over work of CTAs that have not started
    (PTX ISA, `clusterlaunchcontrol.try_cancel`: sm_100 and later), so here every CTA finds that there is no more after
    its own: the loop has one step, and the block scheduler balances the load.

    Args:
      grid_names: names of the grid's axes.
      thread_axis: name of the warpgroup axis, if there are several warpgroups.
      cluster_axes: names of all cluster axes.
      init_carry: first carry, a pytree. The body then gets `carry=` and returns the next one.

    Returns:
      A decorator that runs the loop at once and returns the last carry (None without one). The body is called with an
      `NDLoopInfo` whose `num_local_steps` is None.

    Raises:
      KernelTypeError: an axis that the kernel does not have.
    """
    axes = tuple(grid_names)
    for axis in (*axes, *([] if thread_axis is None else [thread_axis]), *cluster_axes):
        try:
            lax.axis_size(axis)
        except NameError as error:
            raise KernelTypeError(
                f"{current_source_line()} dynamic_scheduling_loop: the kernel has no axis {axis!r}. Name its own grid, "
                "thread and cluster axes."
            ) from error

    def run(body: Callable[..., Any]) -> Any:
        info = NDLoopInfo(tuple(lax.axis_index(axis) for axis in axes), jnp.int32(0), None)
        if init_carry is None:
            body(info)
            return None
        return body(info, carry=init_carry)

    return run
