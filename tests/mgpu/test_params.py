"""CompilerParams: the reference's fields and defaults, and what it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import mgpu
from mgpu.errors import ParamsError

NOT_COMPARED = {
    "profile_bounds_check": "newer JAX only; always on here",
    "skip_device_barrier": "newer JAX only; of kernels that talk to other GPUs",
    "is_multi_process": "newer JAX only; of kernels that talk to other GPUs",
}


def test_fields_and_defaults_are_those_of_jax() -> None:
    theirs = pytest.importorskip("jax.experimental.pallas.mosaic_gpu").CompilerParams
    ours = vars(mgpu.CompilerParams())
    for field in dataclasses.fields(theirs):
        if field.name in NOT_COMPARED:
            continue
        default = field.default
        expected = default.value if hasattr(default, "value") else default
        mine = ours[field.name]
        assert (mine.value if hasattr(mine, "value") else mine) == expected, field.name


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"profile_space": 16}, "profile_space=16 without profile_dir"),
        ({"profile_dir": "x"}, "profile_dir='x' without profile_space"),
        ({"profile_space": -1, "profile_dir": "x"}, "profile_space must be an integer of at least 0, got -1"),
        ({"profile_space": 2.0, "profile_dir": "x"}, "profile_space must be an integer"),
        ({"max_concurrent_steps": 0}, "max_concurrent_steps must be an integer of at least 1"),
        ({"delay_release": 1}, "delay_release=1 must be less than max_concurrent_steps=1.*Use max_concurrent_steps=2"),
        ({"dimension_semantics": ("parallel", "serial")}, "'serial'; each entry is 'parallel' or 'sequential'"),
        ({"profile_trace_scope": "warp"}, "TraceScope.WARP or TraceScope.WARPGROUP, got 'warp'"),
        ({"lowering_semantics": 1}, "LoweringSemantics.Lane or LoweringSemantics.Warpgroup"),
        ({"approx_math": 1}, "approx_math must be True or False"),
    ],
)
def test_bad_fields_say_what_to_do(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        mgpu.CompilerParams(**fields)
