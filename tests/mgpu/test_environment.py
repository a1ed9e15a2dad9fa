import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu import environment
from mgpu.errors import DeviceError, ParamsError


@given(st.dictionaries(st.sampled_from(["a_cycles", "b_ns", "c"]), st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_survive_the_environment(numbers) -> None:
    assert environment.parse_numbers(environment.format_numbers(numbers)) == numbers


def test_the_clock_rule_survives_the_environment(monkeypatch) -> None:
    numbers = environment.parse_numbers("clock_hz = power_capped, tma_issue_cycles=0")
    assert numbers == {"clock_hz": "power_capped", "tma_issue_cycles": 0}
    assert environment.parse_numbers(environment.format_numbers(numbers)) == numbers
    pytest.importorskip("jax")
    from mgpu.launch import device_choice

    monkeypatch.setenv(environment.NUMBERS, environment.format_numbers(numbers))
    assert device_choice.choose("h100").device.is_power_capped


def test_factors_on_a_role_reach_the_options_of_a_kernel(monkeypatch) -> None:
    assert environment.parse_compute_scale("1=0.5, 2=0") == {1: 0.5, 2: 0}
    with pytest.raises(ParamsError, match="'producer=2' does not scale a warpgroup's work: expected WARPGROUP=FACTOR"):
        environment.parse_compute_scale("1=0.5,producer=2")
    pytest.importorskip("jax")
    from mgpu.launch import kernel
    from mgpu.sim.options import InterpretGPUParams

    options = InterpretGPUParams(seed=3, compute_scale={0: 2.0, 1: 2.0})
    assert kernel._options(options) is options
    monkeypatch.setenv(environment.COMPUTE_SCALE, "1=0.5")
    assert kernel._options(options).compute_scale == {0: 2.0, 1: 0.5}
    assert kernel._options(options).seed == 3
    assert kernel._options(None).compute_scale == {1: 0.5}


def test_other_numbers_take_no_words() -> None:
    with pytest.raises(ParamsError, match="hbm_bandwidth=power_capped"):
        environment.parse_numbers("hbm_bandwidth=power_capped")


def test_recording_is_redirected_only_if_asked(monkeypatch) -> None:
    assert environment.recording(64, "own") == (64, "own")
    assert environment.recording(0, "") == (0, "")
    monkeypatch.setenv(environment.PROFILE_DIR, "elsewhere")
    assert environment.recording(64, "own") == (64, "elsewhere")
    assert environment.recording(0, "") == (environment.DEFAULT_PROFILE_SPACE, "elsewhere")
    monkeypatch.setenv(environment.PROFILE_SPACE, "32")
    assert environment.recording(0, "") == (32, "elsewhere")
    monkeypatch.setenv(environment.PROFILE_SPACE, "many")
    with pytest.raises(ParamsError, match="MGPU_PROFILE_SPACE='many'"):
        environment.recording(0, "")


def test_device_numbers_replace_those_of_any_device(monkeypatch) -> None:
    pytest.importorskip("jax")
    from mgpu.launch import device_choice

    monkeypatch.setenv(environment.NUMBERS, "mbarrier_hop_cycles=3")
    assert device_choice.choose("h100").device.mbarrier_hop_cycles == 3
    assert device_choice.choose("h100", mbarrier_hop_cycles=5).device.mbarrier_hop_cycles == 3
    monkeypatch.setenv(environment.NUMBERS, "mbarrier_hops=3")
    with pytest.raises(DeviceError, match="mbarrier_hop_cycles"):
        device_choice.choose("h100")
