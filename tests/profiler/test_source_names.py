import pytest

from profiler.source_names import MAX_CHARACTERS, shorten_source


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("ring.py:21", "ring.py:21"),
        ("04_warp_specialized_matmul.py:73", "04_warp…tmul.py:73"),
        ("a_kernel_with_a_long_name.py:1204", "a_kern…ame.py:1204"),
        ("", ""),
        ("no_line_number_in_this_long_name", "no_line_number_in_this_long_name"),
    ],
)
def test_the_middle_goes_and_the_line_stays(location, shown) -> None:
    assert shorten_source(location) == shown
    assert ":" not in location or len(shorten_source(location)) <= MAX_CHARACTERS
