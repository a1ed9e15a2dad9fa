import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu import environment
from mgpu.errors import DeviceError, ParamsError


@given(st.dictionaries(st.sampled_from(["a_cycles", "b_ns", "c"]), st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_survive_the_environment(numbers) -> None:
    assert environment.parse_numbers(environment.format_numbers(numbers)) == numbers


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
    device_choice = pytest.importorskip("mgpu.launch.device_choice")
    monkeypatch.setenv(environment.NUMBERS, "mbarrier_hop_cycles=3")
    assert device_choice.choose("h100").device.mbarrier_hop_cycles == 3
    assert device_choice.choose("h100", mbarrier_hop_cycles=5).device.mbarrier_hop_cycles == 3
    monkeypatch.setenv(environment.NUMBERS, "mbarrier_hops=3")
    with pytest.raises(DeviceError, match="mbarrier_hop_cycles"):
        device_choice.choose("h100")
