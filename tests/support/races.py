"""Running kernels for their races."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mgpu
from mgpu.errors import RaceWarning, UnwrittenWarning
from mgpu.sim.races import Race

I32 = jnp.int32


def find_races(body: Any, out: Any, *operands: Any, everywhere: bool | None = True, **options: Any) -> tuple[Race, ...]:
    """Runs a kernel and returns its races, which are not warned of.

    Args:
      body: the kernel.
      out: shape of an int32 output, or its `out_type`.
      *operands: its inputs.
      everywhere: `detect_races` of the run.
      **options: arguments of `mgpu.kernel`; `scratch` for `scratch_types`.
    """
    out_type = jax.ShapeDtypeStruct(out, I32) if isinstance(out, tuple) and all(type(n) is int for n in out) else out
    mgpu.reset()
    kernel = mgpu.kernel(
        body,
        out_type=out_type,
        scratch_types=options.pop("scratch", ()),
        interpret=mgpu.InterpretGPUParams(detect_races=everywhere),
        **options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RaceWarning)
        warnings.simplefilter("ignore", UnwrittenWarning)
        jax.block_until_ready(kernel(*operands))
    races = mgpu.get_races()
    mgpu.reset()
    return races


def row(value: Any, count: int = 4) -> jax.Array:
    """Returns a row of equal integers."""
    return jnp.full((count,), value, I32)


def needed(races: tuple[Race, ...]) -> str:
    """Returns what the only race needs; "" if there is none."""
    if not races:
        return ""
    (race,) = races
    return race.needs


NUMBERS = np.arange(16, dtype=np.int32)
