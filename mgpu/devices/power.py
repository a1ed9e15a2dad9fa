"""The clock that a chip settles at under its power limit.

What the SMs draw goes with the clock and the square of the voltage, and under a power limit the voltage goes with the
clock: so it is taken as the cube of the clock, times the load. What HBM draws goes with its traffic only. Sixteen of
eighteen matmuls on a GH200 that took 0.2 to 2 ms keep to this within 4 %, whatever their depth, traffic and share of
busy SMs (github hibouwu/CUDA_optimazation, gh200_sm90 V03). Launches of some microseconds end before the limit acts
and run faster; under load for seconds the chip warms up and `full_load_clock_hz` is lower.
"""

from __future__ import annotations

from mgpu.devices.device import Device

_EXPONENT = 3  # of the clock, in the power of the SMs
_LEAST_SHARE = 0.05  # of the power limit that is left to the SMs, however much HBM moves


def power_capped_clock_hz(device: Device, tensor_share: float, hbm_bytes_per_second: float = 0.0) -> int:
    """Returns the clock at which a kernel draws as much power as the chip may, in Hz; at most the boost clock.

    Args:
      device: gives `full_load_clock_hz`, `boost_clock_hz`, `power_base_load` and `power_hbm_bandwidth`.
      tensor_share: share of all SMs' cycles in which the tensor core works, 0 to 1.
      hbm_bytes_per_second: traffic between HBM and L2, both directions.
    """
    left = max(_LEAST_SHARE, 1 - hbm_bytes_per_second / device.power_hbm_bandwidth)
    load = (device.power_base_load + tensor_share) / (device.power_base_load + 1)
    if load <= 0:
        return device.boost_clock_hz
    settled = device.full_load_clock_hz * (left / load) ** (1 / _EXPONENT)
    return min(device.boost_clock_hz, round(settled))
