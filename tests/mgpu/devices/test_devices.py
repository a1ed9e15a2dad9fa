"""Device tables: complete, sourced, and hard to misuse."""

import dataclasses
from pathlib import Path

import pytest

from mgpu.devices import Device, device_from_file, list_devices, load_device
from mgpu.devices.device import NUMBER_NAMES
from mgpu.errors import DeviceError

DEVICES = ("b200", "h100", "h200")


def test_the_built_in_devices_are_listed():
    assert list_devices() == DEVICES


@pytest.mark.parametrize("name", DEVICES)
def test_every_number_has_a_unit_a_source_and_the_value_of_its_field(name: str):
    device = load_device(name)
    assert device.name == name
    for number_name in NUMBER_NAMES:
        number = device.number(number_name)
        assert number.value == getattr(device, number_name)
        assert number.unit
        assert number.source
        assert number.confidence in ("H", "M", "L")


def test_published_specifications_of_h100():
    h100 = load_device("h100")
    assert (h100.num_sms, h100.registers_per_sm, h100.max_warps_per_sm) == (132, 65536, 64)
    assert (h100.smem_per_sm_bytes, h100.smem_per_cta_bytes) == (228 * 1024, 227 * 1024)
    # The data sheet's 989 dense bf16 TFLOP/s come from 4096 flop per cycle on 132 SMs at 1.83 GHz.
    assert h100.wgmma_flops_per_cycle * h100.num_sms * 1.83e9 == pytest.approx(989e12, rel=0.01)


def test_h200_differs_from_h100_in_its_memory_only():
    h100, h200 = load_device("h100"), load_device("h200")
    different = {name for name in NUMBER_NAMES if getattr(h100, name) != getattr(h200, name)}
    assert different == {"hbm_bytes", "hbm_peak_bandwidth", "hbm_bandwidth", "l2_bytes"}


def test_b200_has_no_wgmma():
    b200 = load_device("b200")
    assert not b200.has_wgmma
    assert {getattr(b200, name) for name in NUMBER_NAMES if name.startswith("wgmma_")} == {0}
    assert load_device("h100").has_wgmma


def test_an_unknown_device_names_the_nearest_one():
    with pytest.raises(DeviceError, match=r"'H100'.*Did you mean 'h100'\? Known: b200, h100, h200"):
        load_device("H100")


def test_override_replaces_numbers_and_says_so():
    h100 = load_device("h100")
    changed = h100.override(tma_latency_l2_cycles=500, wgmma_interval_overhead_cycles=0, hbm_bandwidth=1e12)
    assert changed.tma_latency_l2_cycles == 500
    assert isinstance(changed.hbm_bandwidth, int)
    assert changed.number("tma_latency_l2_cycles")[:3] == (500, "cycles", "set by Device.override")
    assert h100.tma_latency_l2_cycles == 260, "the original is left alone"
    assert changed != h100
    assert hash(changed) != hash(h100)
    assert h100.override() == h100


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"tma_isue_cycles": 3}, "'tma_isue_cycles'. Did you mean 'tma_issue_cycles'"),
        ({"zzz": 3}, "no device number is called 'zzz'. mgpu.devices.Device lists them"),
        ({"tma_issue_cycles": -1}, "tma_issue_cycles is -1 cycles, expected at least 0"),
        ({"hbm_bandwidth": 0}, "hbm_bandwidth is 0 bytes/s, expected more than 0"),
        ({"num_sms": 1.5}, "num_sms is 1.5, expected an integer of count"),
        ({"num_sms": True}, "num_sms is True, expected an integer"),
        ({"num_sms": "4"}, "num_sms is '4', expected an integer"),
        ({"l2_queueing_fraction": float("nan")}, "l2_queueing_fraction is nan, expected a number"),
    ],
)
def test_override_refuses(numbers: dict, message: str):
    with pytest.raises(DeviceError) as caught:
        load_device("h100").override(**numbers)
    assert message in str(caught.value)


def test_cycles_of_a_duration_follow_the_clock():
    device = load_device("h100").override(clock_hz=2_000_000_000)
    assert device.cycles(1200) == 2400
    assert device.cycles(0.3) == 1


def test_devices_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_device("h100").num_sms = 1  # pyright: ignore[reportAttributeAccessIssue]


def write_device(path: Path, table: str) -> Path:
    path.write_text(f'name = "mine"\nbase = "h100"\n{table}\n')
    return path


def test_a_file_of_ones_own_starts_from_a_base(tmp_path: Path):
    table = '[num_sms]\nvalue = 114\nunit = "count"\nsource = "H100 PCIe data sheet"\nconfidence = "H"'
    device = device_from_file(write_device(tmp_path / "mine.toml", table))
    assert isinstance(device, Device)
    assert (device.name, device.num_sms, device.l2_bytes) == ("mine", 114, load_device("h100").l2_bytes)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[num_sms]\nvalue = 1\nunit = "cycles"\nsource = "x"\nconfidence = "H"', "unit 'cycles', expected 'count'"),
        ('[num_sms]\nvalue = 1\nunit = "count"', "expected the keys value, unit, source, confidence"),
        ('[num_sms]\nvalue = 1\nunit = "count"\nsource = ""\nconfidence = "H"', "needs a source"),
        ('[num_sm]\nvalue = 1\nunit = "count"\nsource = "x"\nconfidence = "H"', "Did you mean 'num_sms'"),
        ("[num_sms", "not a TOML file"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, table: str, message: str):
    with pytest.raises(DeviceError) as caught:
        device_from_file(write_device(tmp_path / "mine.toml", table))
    assert message in str(caught.value)
    assert "mine.toml" in str(caught.value)


def test_a_file_without_a_base_must_be_complete(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n')
    with pytest.raises(DeviceError, match=r"lacks num_sms, .*start with base"):
        device_from_file(path)
    path.write_text("")
    with pytest.raises(DeviceError, match="has no name"):
        device_from_file(path)
    with pytest.raises(DeviceError, match="cannot read"):
        device_from_file(tmp_path / "absent.toml")
