"""The power-capped clock against clocks that were measured inside matmuls, and how it is chosen."""

import pytest

import mgpu
from mgpu.devices import load_device
from mgpu.devices.power import power_capped_clock_hz
from mgpu.errors import DeviceError

H100 = load_device("h100")


@pytest.mark.parametrize(
    ("tensor_share", "hbm_tbs", "measured_ghz"),
    [
        (0.96, 0.99, 1.533),  # deep tiles
        (0.96, 0.98, 1.513),
        (0.74, 1.46, 1.591),  # shallow tiles: a quarter of the time is not main loop
        (0.92, 1.12, 1.509),
        (0.97 * 0.92, 1.86, 1.476),  # the same matmul in two orders of tiles
        (0.97 * 0.92, 1.19, 1.550),
        (0.85, 2.55, 1.443),
        (0.85, 1.10, 1.559),
        (0.99 * 0.85, 3.00, 1.383),
        (0.99 * 0.85, 1.08, 1.549),
        (0.50 * 0.92, 0.37, 1.757),  # half of the SMs
        (0.99 * 0.85, 2.83, 1.421),  # not among those that the numbers are fitted to, as the next
        (0.97 * 0.95, 1.11, 1.532),
    ],
)
def test_clocks_inside_matmuls_of_about_a_millisecond(tensor_share: float, hbm_tbs: float, measured_ghz: float):
    """GH200 V03, launches of 0.65 to 1.9 ms; share of busy SMs times share of the main loop, HBM traffic."""
    assert power_capped_clock_hz(H100, tensor_share, hbm_tbs * 1e12) / 1e9 == pytest.approx(measured_ghz, rel=0.035)


def test_the_clock_at_full_load_and_its_limits():
    device = H100.override(full_load_clock_hz=10**9, power_base_load=0.5, power_hbm_bandwidth=8 * 10**12)
    assert power_capped_clock_hz(device, 1.0) == 10**9
    # Half the load leaves the cube root of two; seven eighths of the power that of 7 / 8.
    assert power_capped_clock_hz(device, 0.25) == round(1e9 * 2 ** (1 / 3))
    assert power_capped_clock_hz(device, 1.0, 1e12) == round(1e9 * 0.875 ** (1 / 3))
    assert power_capped_clock_hz(device, 0.0) == round(1e9 * 3 ** (1 / 3))
    assert power_capped_clock_hz(H100, 0.0) == H100.boost_clock_hz
    assert power_capped_clock_hz(device.override(power_base_load=0), 0.0) == device.boost_clock_hz
    assert power_capped_clock_hz(device, 1.0, 1e15) > 0


def test_the_clock_is_an_input_or_power_capped():
    with mgpu.device("h100", clock_hz="power_capped", hbm_bandwidth=2e12) as capped:
        assert capped.is_power_capped
        assert (capped.clock_hz, capped.hbm_bandwidth) == (H100.clock_hz, 2 * 10**12)
    assert capped != H100.override(hbm_bandwidth=2e12)
    assert capped.override(hbm_bandwidth=H100.hbm_bandwidth).is_power_capped
    assert not capped.override(clock_hz=1_400_000_000).is_power_capped
    with pytest.raises(DeviceError, match="clock_hz is 'capped', expected an integer of Hz"):
        H100.override(clock_hz="capped")
