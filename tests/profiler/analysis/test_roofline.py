import pytest

from profiler.analysis.roofline import find_roofline
from profiler.build import build_trace
from support.captures import TILE_BYTES, TILE_FLOPS, ring_capture


def test_ring_by_hand() -> None:
    """Per CTA 6 loads of 16 KiB and 12 MMAs; 4096 FLOP and 128 bytes per cycle and SM."""
    report = find_roofline(build_trace(ring_capture(num_ctas=4, num_sms=2)))
    assert report.flops == 4 * 12 * TILE_FLOPS
    assert report.load_bytes == 4 * 6 * TILE_BYTES
    assert report.intensity == pytest.approx(2 * TILE_FLOPS / TILE_BYTES)
    least = dict(report.ceilings.select("ceiling", "least_cycles").iter_rows())
    assert least["tensor core"] == 2 * 12 * TILE_FLOPS // 4096
    assert least["TMA"] == 2 * 6 * TILE_BYTES // 128
    assert least["tensor core, all SMs"] == -(-4 * 12 * TILE_FLOPS // (4096 * 132))
    assert report.bound == "tensor core"
    assert report.share_of_bound == pytest.approx(2 * 12 * TILE_FLOPS / 4096 / report.cycles)


@pytest.mark.parametrize("trace_scope", ["warpgroup", "warp"])
def test_a_measured_launch_counts_what_its_sites_say(trace_scope) -> None:
    report = find_roofline(build_trace(ring_capture(num_ctas=2, activity=False, trace_scope=trace_scope)))
    assert report.flops == 2 * 12 * TILE_FLOPS
    assert report.load_bytes == 2 * 6 * TILE_BYTES
