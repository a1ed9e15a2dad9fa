"""What an event costs on the device, by the compiled code: not more than in JAX's own recorder.

Runs where MGPU_CUDA_PACKAGES names the compiler's packages; see `support.mosaic_compiler`.
"""

from __future__ import annotations

import dataclasses

import pytest
from jax.experimental.pallas import mosaic_gpu

from mgpu.params import TraceScope
from support import mosaic_compiler
from support.event_cost import JAX, JAX_CHECKED, OURS, cost_of_an_event

SCOPES = 8
HAS_BOUNDS_CHECK = "profile_bounds_check" in {field.name for field in dataclasses.fields(mosaic_gpu.CompilerParams)}

pytestmark = pytest.mark.skipif(
    not mosaic_compiler.is_available(), reason=f"{mosaic_compiler.PACKAGES} does not name the compiler's packages"
)


@pytest.mark.parametrize("scope", list(TraceScope))
@pytest.mark.parametrize("recorder", OURS)
def test_an_event_costs_no_more_than_in_jax(recorder, scope, tmp_path, monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    instructions, cycles = cost_of_an_event(recorder, scope, SCOPES, tmp_path)
    theirs, their_cycles = cost_of_an_event(JAX, scope, SCOPES, tmp_path)
    assert cycles <= their_cycles
    # JAX checks no bounds; ours does, with up to four instructions for all events of an iteration.
    assert instructions <= theirs + 4 / (2 * SCOPES)


@pytest.mark.skipif(not HAS_BOUNDS_CHECK, reason="this JAX cannot check bounds")
@pytest.mark.parametrize("scope", list(TraceScope))
def test_bounds_cost_less_than_in_jax(scope, tmp_path, monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    ours = cost_of_an_event("ours, GMEM", scope, SCOPES, tmp_path)
    theirs = cost_of_an_event(JAX_CHECKED, scope, SCOPES, tmp_path)
    assert all(2 * own < other for own, other in zip(ours, theirs, strict=True))
