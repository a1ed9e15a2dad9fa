"""How fast the tensor core can work on what each site gives it."""

from __future__ import annotations

import numpy as np

from mgpu.capture import CaptureHeader

# The header's peak is that of 16-bit operands; a tensor core takes a fixed number of operand bits each cycle (NVIDIA
# H100 datasheet: FP8 at twice, TF32 at half the rate of FP16).
_PEAK_OPERAND_BITS = 16


def tensor_rates(header: CaptureHeader) -> dict[int, float]:
    """Returns, for each site that starts MMAs, the FLOP per cycle of one SM that its operands allow; {} if unknown."""
    peak = header.peaks.get("tensor_flops", 0.0)
    if not peak:
        return {}
    return {
        site.id: peak * _PEAK_OPERAND_BITS / (site.operand_bits or _PEAK_OPERAND_BITS)
        for site in header.sites
        if site.flops
    }


def peak_of_mix(header: CaptureHeader, site: np.ndarray, flops: np.ndarray) -> float:
    """Returns the FLOP per cycle of one SM at which these MMAs take least time; 0.0 if unknown.

    Args:
      site, flops: int64[MMAs].
    """
    rates = tensor_rates(header)
    if not rates or not flops.sum():
        return float(header.peaks.get("tensor_flops", 0.0))
    default = header.peaks["tensor_flops"]
    cycles = sum(flops[site == number].sum() / rates.get(number, default) for number in np.unique(site).tolist())
    return float(flops.sum() / cycles)
