"""The recorder's window on the GPU: its PTX on a small machine, and what is lowered for kernels of both kinds."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import mgpu as plgpu
from mgpu.capture import pack_tag
from mgpu.devices import load_device
from mgpu.errors import ParamsError
from mgpu.gpu import ptx
from mgpu.gpu.capture_reader import read_capture, track_words
from mgpu.gpu.instrument import instrument
from mgpu.gpu.recorder import RecordFormat, row_of_cta
from mgpu.params import TraceScope
from mgpu.passes.sites import plan_sites
from mgpu.profile_window import ProfileWindow
from mgpu.sites import Edge, SiteKind
from support.foreign_kernels import STEPS, kernels_of, lowered, ring_copy
from support.gpu_kernels import KERNELS
from support.gpu_lowering import kernel_texts, lower_for_gpu, program_of
from support.ptx_pieces import Memory, Thread

SMEM_BASE, GMEM_BASE = 1024, 1 << 40
GAP, INNER, OUTER, TAIL = range(4)
BEGIN_GAP, END_GAP = pack_tag(GAP, Edge.BEGIN), pack_tag(GAP, Edge.END)


def mark(site, payload=0):
    return pack_tag(site, Edge.INSTANT, payload)


class Machine:
    """One CTA of warpgroups that all run the same nested loops."""

    def __init__(self, layout, row=None):
        self.layout = layout
        self.smem, self.gmem = Memory(SMEM_BASE, 4 * layout.smem_words), Memory(GMEM_BASE, 4 * layout.gmem_words)
        addresses = [SMEM_BASE, GMEM_BASE] if layout.in_smem else [GMEM_BASE]
        self.operands = [*addresses, *([] if row is None else [row % 2**32])]
        self.where = {"per_warp": layout.per_warp, "in_smem": layout.in_smem}
        self.cycles = 0
        memories = {"shared": self.smem, "global": self.gmem}
        self.threads = [Thread(tid, self.special, memories) for tid in range(128 * layout.num_warpgroups)]

    def special(self, name):
        self.cycles += 1
        return self.cycles

    def all(self, text, operands=()):
        for thread in self.threads:
            thread.run(text, list(operands))

    def event(self, tag, level):
        self.all(ptx.event(tag, in_smem=self.layout.in_smem, has_payload=False, level=level))

    def run(self, outer_turns, inner_turns, *, has_counter=True, first=0):
        in_smem, levels = self.layout.in_smem, self.layout.window.levels
        counters = [has_counter, False]
        self.all(
            ptx.declare(self.layout.capacity, levels=len(levels), **self.where, **self.layout.filters), self.operands
        )

        def turn(level, number):
            if level > len(levels):
                return
            start, end = levels[level - 1]
            text = ptx.iteration(
                level, start, end, BEGIN_GAP, END_GAP, in_smem=in_smem, has_counter=counters[level - 1]
            )
            self.all(text, [number] if counters[level - 1] else [])

        def loop(level, turns, begin, body):
            if level <= len(levels):
                self.all(ptx.enter_loop(level))
            for number in range(begin, begin + turns):
                turn(level, number)
                body(number)
            if level <= len(levels):
                self.all(ptx.leave_loop(level, END_GAP, in_smem=in_smem))

        def outer(k):
            self.event(mark(OUTER, k), min(1, len(levels)))
            loop(2, inner_turns, 0, lambda j: self.event(mark(INNER, j), min(2, len(levels))))

        loop(1, outer_turns, first, outer)
        self.event(mark(TAIL), 0)
        self.all(ptx.finish(self.layout.capacity, **self.where, **self.layout.filters), self.operands)
        return self.gmem.bytes.view(np.uint32).view(track_words(self.layout.capacity)).reshape(-1)


def expected(levels, outer_turns, inner_turns, first=0):
    """What a track holds, from the definition: events of the iterations inside, and a mark around each stretch out."""
    found, stack = [], [False]

    def switch(level, inside):
        if inside == stack[level]:
            found.append(END_GAP if inside else BEGIN_GAP)
            stack[level] = not inside

    def is_in(level, number):
        if level >= len(levels):
            return True
        start, end = levels[level]
        return start <= number and (end is None or number < end)

    for k in range(first, first + outer_turns):
        switch(0, is_in(0, k))
        if not is_in(0, k):
            continue
        found.append(mark(OUTER, k))
        stack.append(False)
        for j in range(inner_turns):
            switch(1, is_in(1, j))
            if is_in(1, j):
                found.append(mark(INNER, j))
        switch(1, True)
        stack.pop()
    switch(0, True)
    return [*found, mark(TAIL)]


@pytest.mark.parametrize("in_smem", [True, False])
@pytest.mark.parametrize("scope", list(TraceScope))
@pytest.mark.parametrize("iterations", [range(2, 4), slice(3, None), (None, range(1, 2)), (range(1, 3), range(2))])
def test_iterations_outside_are_left_out_and_marked(iterations, scope, in_smem):
    window = ProfileWindow(iterations=iterations)
    tracks = Machine(RecordFormat(40, 1, scope, in_smem, window)).run(5, 3)
    wanted = expected(window.levels, 5, 3)
    for track in tracks:
        assert track["count"] == len(wanted)
        assert track["events"][: len(wanted), 0].tolist() == wanted
        clocks = track["events"][: len(wanted), 1].tolist()
        assert clocks == sorted(clocks)


@pytest.mark.parametrize(("has_counter", "kept"), [(True, [2, 3]), (False, [4, 5])])
def test_a_loop_that_begins_late_is_counted_by_its_counter_or_by_turns(has_counter, kept):
    window = ProfileWindow(iterations=range(2, 4))
    layout = RecordFormat(40, 1, TraceScope.WARPGROUP, in_smem=True, window=window)
    (track,) = Machine(layout).run(6, 0, has_counter=has_counter, first=2)
    sites = track["events"][: track["count"], 0].tolist()
    assert [tag >> 16 for tag in sites if tag & 0x3FFF == OUTER] == kept


def test_an_overflow_inside_the_window_counts_what_is_inside():
    window = ProfileWindow(iterations=range(4))
    layout = RecordFormat(2, 1, TraceScope.WARPGROUP, in_smem=True, window=window)
    (track,) = Machine(layout).run(9, 0)
    assert track["count"] == 4 + 2 + 1
    assert track["events"][:, 0].tolist() == [mark(OUTER, 0), mark(OUTER, 1)]


@pytest.mark.parametrize("in_smem", [True, False])
@pytest.mark.parametrize("scope", list(TraceScope))
def test_only_the_chosen_warpgroups_have_tracks(scope, in_smem):
    layout = RecordFormat(8, 4, scope, in_smem, ProfileWindow(warpgroups=[1, 3]))
    assert layout.num_tracks == 2 * (4 if layout.per_warp else 1)
    tracks = Machine(layout).run(2, 0)
    assert len(tracks) == layout.num_tracks
    assert {int(track["count"]) for track in tracks} == {3}


@pytest.mark.parametrize(("row", "count"), [(0, 3), (5, 3), (-1, 0)])
def test_a_cta_without_a_row_writes_nothing(row, count):
    layout = RecordFormat(8, 1, TraceScope.WARPGROUP, in_smem=True, window=ProfileWindow(ctas=[0]))
    machine = Machine(layout, row)
    (track,) = machine.run(2, 0)
    assert track["count"] == count
    assert machine.gmem.bytes.any() == bool(count)


def test_rows_number_the_recorded_ctas():
    window = ProfileWindow(ctas=[2, 3, 7, 8, 11])
    rows = jax.vmap(lambda cta: row_of_cta(cta, window))(np.arange(13, dtype=np.int32))
    assert rows.tolist() == [-1, -1, 0, 1, -1, -1, -1, 2, 3, -1, -1, 4, -1]


@pytest.mark.parametrize("scope", list(TraceScope))
def test_tracks_of_a_window_carry_their_own_numbers(scope):
    kernel, operands, _ = KERNELS["ring_copy"](None)
    program = program_of(kernel, *operands)
    window = ProfileWindow(ctas=[0], warpgroups=[1], iterations=range(2, 4))
    layout = RecordFormat(4, 2, scope, in_smem=True, window=window)
    words = np.zeros((1, layout.num_tracks), track_words(4)).view(np.uint32).reshape(1, -1)
    capture = read_capture(program, plan_sites(program, None, window), layout, load_device("h100"), words, 1)
    assert set(capture.tracks["warpgroup"].tolist()) == {1}
    assert capture.tracks["warp"].tolist() == ([0, 1, 2, 3] if layout.per_warp else [-1])
    assert capture.header.sites[-1].kind is SiteKind.UNRECORDED
    assert [note.partition(" were recorded")[0] for note in capture.header.notes] == [
        "only warpgroups 1",
        "only iterations 2:4",
    ]


def test_each_role_of_a_kernel_asks_for_the_same_iterations(monkeypatch, tmp_path):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    params = plgpu.CompilerParams(
        profile_space=64, profile_dir=str(tmp_path), profile_window=ProfileWindow(iterations=range(2, 4))
    )
    kernel, operands, _ = KERNELS["ring_copy"](params)
    (text,) = kernel_texts(lower_for_gpu(kernel, *operands))
    # The producer's fori_loop and the consumer's while loop both count with their own counter, an operand.
    assert text.count("mov.b32 turn, $0;") == text.count("setp.ge.s32 now, turn, 2;") == 2
    assert text.count("setp.lt.s32 switch, turn, 4;") == 2
    assert text.count("mov.u32 mgpu_turn1, 0;") == 2
    assert "@mgpu_on1 st.shared" in text
    assert "@mgpu_on st.shared" not in text  # this kernel records nothing outside its loops


def test_an_unmodified_kernel_has_the_same_window():
    (equation,) = kernels_of(ring_copy(grid=(4,), grid_names=("i",)), STEPS)
    kernel = instrument(equation, 100, TraceScope.WARPGROUP, ProfileWindow(ctas=[1, 2], iterations=range(2, 4)))
    (text,) = kernel_texts(lowered(equation, kernel))
    assert text.count("mov.b32 turn, $0;") == 1
    assert text.count("@mgpu_on1 st.global") == 2 * len(kernel.plan.sites) - 2
    assert kernel.record_format.window.recorded_ctas(4) == (1, 2)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (ProfileWindow(ctas=[1]), r"ProfileWindow\(ctas=\) names 1, but the launch has 1: 0 to 0"),
        (
            ProfileWindow(iterations=(None, range(2))),
            "has 2 levels, the recorded code of the kernel has loops nested 1",
        ),
    ],
)
def test_a_kernel_without_such_a_window_is_an_error(window, message):
    (equation,) = kernels_of(ring_copy(), STEPS)
    with pytest.raises(ParamsError, match=message):
        instrument(equation, 100, TraceScope.WARPGROUP, window)
