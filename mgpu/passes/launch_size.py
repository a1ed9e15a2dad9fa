"""What a whole launch needs: a grid that CUDA takes, and room in the GPU's memory."""

from __future__ import annotations

import itertools
import math

from mgpu.devices import Device
from mgpu.errors import ResourceError
from mgpu.frontend.program import KernelProgram
from mgpu.lang.transforms import bits_of
from mgpu.units import format_bytes

GRID_LIMITS = (65535, 65535, 2**31 - 1)
"""CTAs along z, y and x of a grid (CUDA C++ programming guide, technical specifications)."""


def check_grid(program: KernelProgram) -> None:
    """Checks that CUDA takes the grid. Its last axis becomes x, the one before y, and all others together z.

    Raises:
      ResourceError: there are too many CTAs along one of them.
    """
    launch = program.launch
    grid, cluster = ((*(1,) * (3 - len(sizes)), *sizes) for sizes in (launch.grid, launch.cluster))
    grid = (math.prod(grid[:-2]), *grid[-2:])
    for name, clusters, ctas, limit in zip("zyx", grid, cluster[-3:], GRID_LIMITS, strict=True):
        if clusters * ctas > limit:
            raise ResourceError(
                f"{program.source} kernel {program.name}: grid={launch.grid}"
                + (f" with cluster={launch.cluster}" if launch.cluster else "")
                + f" has {clusters * ctas:,} CTAs along {name}, CUDA takes at most {limit:,}: the last axis becomes x, "
                "the one before y, all others together z. Put the longest axis last, or give each CTA more work."
            )


def check_memory(program: KernelProgram, event_bytes: int, device: Device) -> None:
    """Checks that the operands and the event buffers of all recorded CTAs fit into the GPU's memory.

    Args:
      program: the traced kernel.
      event_bytes: of the event buffer of one CTA.
      device: the GPU.

    Raises:
      ResourceError: they do not; says what takes how much, and which `profile_space` fits.
    """
    sizes = {
        name: math.prod(aval.shape) * bits_of(aval.dtype) // 8
        for name, aval in zip(program.operand_names, itertools.chain(program.in_avals, program.out_avals), strict=True)
    }
    operands = sum(sizes.values())
    where = f"{program.source} kernel {program.name}: needs"
    has = f"{device.name} has {format_bytes(device.hbm_bytes)}"
    if operands > device.hbm_bytes:
        largest = max(sizes, key=lambda name: sizes[name])
        raise ResourceError(
            f"{where} {format_bytes(operands)} of GMEM for its operands, {has}. Largest: {largest} "
            f"{format_bytes(sizes[largest])}. Use smaller operands, or mgpu.device({device.name!r}, hbm_bytes=...)."
        )
    space, recorded = program.params.profile_space, program.params.profile_window.ctas
    num_ctas = program.launch.num_ctas if recorded is None else len(recorded)
    events = num_ctas * event_bytes
    if space and operands + events > device.hbm_bytes:
        fits = (device.hbm_bytes - operands) * space // events
        raise ResourceError(
            f"{where} {format_bytes(events)} of GMEM for the event buffers of {num_ctas:,} CTAs with "
            f"profile_space={space:,}, {has}. Use a profile_space of at most {fits:,}, or a ProfileWindow that records "
            "fewer CTAs."
        )
