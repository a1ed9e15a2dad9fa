import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.clock import align_sms, clamp_backward_steps, cycles_to_ns, ns_to_cycles, unwrap_clocks
from support.captures import ring_capture

LOW = 0xFFFFFFFF


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1 << 45),
            st.lists(st.integers(0, (1 << 32) - 1), max_size=20),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_unwrapping_gives_back_the_64_bit_counter_of_every_track(tracks) -> None:
    true = [begin + np.cumsum(np.array(steps, np.int64)) for begin, steps in tracks]
    offsets = np.cumsum([0, *(len(t) for t in true)])
    joined = np.concatenate(true)
    begins = np.array([begin for begin, _ in tracks], np.int64)
    unwrapped = unwrap_clocks((joined & LOW).astype(np.uint32), offsets, begins)
    np.testing.assert_array_equal(unwrapped, joined)


def test_a_step_back_is_not_a_wrap() -> None:
    clocks = np.array([100, 90, 120], np.uint32)
    cycles = unwrap_clocks(clocks, np.array([0, 3]), np.array([50]))
    assert cycles.tolist() == [100, 90 + (1 << 32), 120 + (1 << 32)]
    repaired, backward = clamp_backward_steps(cycles)
    assert repaired.tolist() == [100, 100, 120]
    assert backward == 1


def test_cycles_and_ns_at_a_known_rate() -> None:
    assert cycles_to_ns(1755, 1.755e9) == pytest.approx(1000)
    assert ns_to_cycles(1000, 1.755e9) == pytest.approx(1755)


def test_sms_of_a_simulated_launch_share_a_clock() -> None:
    alignment = align_sms(ring_capture(num_ctas=3))
    assert not alignment.shift_cycles.any()
    assert alignment.residual_cycles == 0


def test_counters_that_run_ahead_are_shifted_back() -> None:
    offsets = (5_000, 5_000 + 10**13, 17)
    capture = ring_capture(num_ctas=6, num_sms=3, activity=False, sm_clock_offsets=offsets)
    alignment = align_sms(capture)
    # ns are whole numbers in the capture, so a shift is right to within the cycles of a ns.
    np.testing.assert_allclose(alignment.shift_cycles, [0, 5_000 - offsets[1], 5_000 - 17], atol=2)
    assert alignment.residual_cycles <= 4


def test_the_residual_shows_a_coarse_timer() -> None:
    capture = ring_capture(num_ctas=4, activity=False)
    tracks = capture.tracks.copy()
    for name in ("ns_begin", "ns_end"):
        tracks[name] = tracks[name] // 1024 * 1024
    coarse = align_sms(dataclasses.replace(capture, tracks=tracks))
    assert 100 < coarse.residual_cycles < 2 * 1024 * 1.755
