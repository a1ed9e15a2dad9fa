"""Waits for barriers, which take the sleeps around them along, against waits that are events of their own."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mgpu
from mgpu import CompilerParams
from mgpu.devices import load_device
from mgpu.sim.compile.emitter import Emitter
from mgpu.sim.options import InterpretGPUParams
from mgpu.sim.simulation import RunResult, prepare, simulate
from support.random_kernels import BUILDERS, Drawn, Sync

H100 = load_device("h100")


def run(drawn: Drawn, **options) -> RunResult:
    kernel = mgpu.kernel(
        drawn.body,
        out_type=drawn.out_type,
        scratch_types=drawn.scratch,
        compiler_params=CompilerParams(profile_space=4000, profile_dir="unused"),
        **drawn.options,
    ).with_aliases(drawn.aliases)
    program, consts = kernel._program(jax.tree.structure(drawn.operands), list(drawn.operands))
    return simulate(prepare(program, H100, H100.num_sms, InterpretGPUParams(**options)), consts, drawn.operands)


def park_literally(self: Emitter, barrier: str, parity: str) -> None:
    self.flush()
    self.line(f"if not {barrier}.wait(process, {parity}): yield None")


@pytest.mark.parametrize("kind", BUILDERS)
@given(draw=st.randoms(use_true_random=False))
@settings(max_examples=6, deadline=None)
def test_joined_sleeps_change_no_time(kind, draw):
    drawn = BUILDERS[kind](draw, Sync())
    joined = run(drawn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Emitter, "park", park_literally)
        literal = run(drawn)
    assert joined.cycles == literal.cycles
    assert joined.events <= literal.events
    assert joined.capture is not None
    assert literal.capture is not None
    np.testing.assert_array_equal(joined.capture.tracks, literal.capture.tracks)
    np.testing.assert_array_equal(joined.capture.words, literal.capture.words)
    np.testing.assert_array_equal(joined.capture.arrivals, literal.capture.arrivals)
