"""The machine that runs compiled kernels in tests, itself tested: snippets of PTX with results worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from support.ptx.copies import TensorMap
from support.ptx.machine import Launch, Machine
from support.ptx.memory import Region
from support.ptx.parse import PtxError, parse_kernel

OUT, DATA = 1 << 36, 1 << 37

HEAD = """
.visible .entry k(.param .u64 .ptr .align 256 out_param, .param .u64 data_param, .param .align 64 .b8 map[128])
{
.reg .pred %p<8>; .reg .b16 %rs<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;
.shared .align 16 .b8 smem;
ld.param.b64 %rd0, [out_param];
ld.param.b64 %rd1, [data_param];
mov.b64 %rd2, map;
mov.u32 %r0, %tid.x;
mov.b64 %rd3, smem;
cvt.u32.u64 %r1, %rd3;
mad.wide.u32 %rd4, %r0, 4, %rd0;
"""


def run(body, threads=32, *, ctas=1, cluster=1, data=None, words=256, tensor_map=b"\0" * 128, shared=4096, **options):
    """Runs a body; what it stores at out_param[i] is returned."""
    out = np.full(words, 0xCDCDCDCD, np.uint32)
    data = np.zeros(4, np.uint32) if data is None else data
    regions = [Region("out", OUT, out.view(np.uint8)), Region("data", DATA, data.reshape(-1).view(np.uint8))]
    params = OUT.to_bytes(8, "little") + DATA.to_bytes(8, "little") + bytes(48) + tensor_map
    launch = Launch((ctas, 1, 1), (threads, 1, 1), (cluster, 1, 1), shared, params)
    machine = Machine(parse_kernel(HEAD + body + "\nret;\n}"), launch, regions, **options)
    machine.run()
    return out


def float_bits(*values):
    return np.array(values, np.float32).view(np.uint32)


@pytest.mark.parametrize(
    ("text", "a", "b", "result"),
    [
        ("add.u32 %r4, %r2, %r3;", 0xFFFFFFFF, 2, 1),
        ("sub.s32 %r4, %r2, %r3;", 1, 3, 0xFFFFFFFE),
        ("mul.lo.s32 %r4, %r2, %r3;", 0xFFFFFFFF, 5, 0xFFFFFFFB),
        ("mul.hi.u32 %r4, %r2, %r3;", 0x80000000, 6, 3),
        ("mad.lo.u32 %r4, %r2, %r3, 7;", 3, 4, 19),
        ("shr.s32 %r4, %r2, %r3;", 0x80000000, 31, 0xFFFFFFFF),
        ("shr.u32 %r4, %r2, %r3;", 0x80000000, 32, 0),
        ("shl.b32 %r4, %r2, %r3;", 1, 40, 0),
        ("min.u32 %r4, %r2, %r3;", 0xFFFFFFFF, 4, 4),
        ("min.s32 %r4, %r2, %r3;", 0xFFFFFFFF, 4, 0xFFFFFFFF),
        ("not.b32 %r4, %r2;", 0xF0F0F0F0, 0, 0x0F0F0F0F),
        ("setp.lt.s32 %p1, %r2, %r3; selp.b32 %r4, 8, 9, %p1;", 0xFFFFFFFF, 0, 8),
        ("setp.lt.u32 %p1, %r2, %r3; selp.b32 %r4, 8, 9, %p1;", 0xFFFFFFFF, 0, 9),
        ("setp.eq.u32 %p1, %r2, 5; setp.ne.and.b32 %p2, %r3, 1, %p1; selp.u32 %r4, 1, 0, %p2;", 5, 2, 1),
        ("@!%p0 mov.u32 %r4, 3; @%p0 mov.u32 %r4, 4;", 0, 0, 4),
        ("mul.wide.u32 %rd5, %r2, %r3; shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r4, %rd5;", 1 << 31, 4, 2),
        ("fma.rn.f32 %r4, %r2, %r3, 0f3F800000;", *float_bits(1.5, 2.0, 4.0).tolist()),
        ("max.NaN.f32 %r4, %r2, %r3;", 0x7FC00000, *float_bits(1.0).tolist(), 0x7FC00000),
        ("ex2.approx.f32 %r4, %r2;", *float_bits(3.0).tolist(), 0, *float_bits(8.0).tolist()),
        ("cvt.rn.bf16x2.f32 %r4, %r2, %r3;", *float_bits(1.0, -2.0).tolist(), 0x3F80C000),
        ("cvt.rn.f16x2.f32 %r4, %r2, %r3;", *float_bits(1.0, -2.0).tolist(), 0x3C00C000),
        ("cvt.u16.u32 %rs1, %r2; sub.s16 %rs1, %rs1, 2; cvt.u32.u16 %r4, %rs1;", 0x10001, 0, 0xFFFF),
        ("mov.b64 %rd5, {%r2, %r3}; mov.b64 {%r4, %r5}, %rd5; mov.b32 %r4, %r5;", 1, 2, 2),
        ("mov.b32 %r4, 1; { .reg .b32 %r2; mov.b32 %r2, 50; add.u32 %r4, %r4, %r2; } add.u32 %r4, %r4, %r2;", 3, 0, 54),
    ],
)
def test_arithmetic(text, a, b, result):
    head = f"setp.ge.u32 %p0, %r0, 0; mov.b32 %r2, {a}; mov.b32 %r3, {b};"
    out = run(f"{head}{text} st.global.b32 [%rd4], %r4;")
    assert set(out[:32].tolist()) == {result}
    assert (out[32:] == 0xCDCDCDCD).all()


def test_lanes_that_part_meet_again():
    # Lane l adds l + 1 ones in a loop of its own length; then all of them vote.
    out = run("""
    mov.u32 %r2, 0;
    again: add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %r0; @%p1 bra again;
    vote.sync.ballot.b32 %r3, %p1, -1;
    add.u32 %r2, %r2, %r3;
    st.global.b32 [%rd4], %r2;
    """)
    assert out[:32].tolist() == list(range(1, 33))


def test_one_lane_waits_for_another_of_its_warp():
    # Lane 0 spins until lane 5 has stored: lanes have counters of their own, so both make progress.
    out = run("""
    setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r0, 5;
    @!%p1 bra others;
    spin: ld.global.u32 %r2, [%rd1]; setp.ne.u32 %p3, %r2, 7; @%p3 bra spin;
    bra end;
    others: @%p2 st.global.u32 [%rd1], 7;
    end: st.global.b32 [%rd4], 1;
    """)
    assert (out[:32] == 1).all()


def test_shuffles_votes_and_election():
    out = run("""
    shfl.sync.bfly.b32 %r2, %r0, 3, 31, -1;
    shfl.sync.idx.b32 %r3, %r0, 9, 31, -1;
    elect.sync %r4|%p1, -1;
    selp.u32 %r5, 1000, 0, %p1;
    mad.lo.u32 %r2, %r3, 100, %r2; add.u32 %r2, %r2, %r5;
    st.global.b32 [%rd4], %r2;
    """)
    assert out[:32].tolist() == [900 + (lane ^ 3) + (1000 if lane == 0 else 0) for lane in range(32)]


def test_warps_exchange_through_shared_memory():
    for seed in range(5):
        out = run(
            """
        mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0;
        bar.sync 1, 128;
        sub.u32 %r3, 127, %r0; mad.lo.u32 %r2, %r3, 4, %r1; ld.shared.u32 %r4, [%r2];
        st.global.b32 [%rd4], %r4;
        """,
            128,
            seed=seed,
        )
        assert out[:128].tolist() == list(range(128))[::-1]


MBARRIER = """
setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r1], 32;
bar.sync 0;
setp.ge.u32 %p2, %r0, 32; @%p2 bra consumer;
mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2+64], %r0; mbarrier.arrive.shared.b64 _, [%r1];
bra end;
consumer: wait: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], PARITY; @!%p3 bra wait;
mad.lo.u32 %r2, %r0, 4, %r1; ld.shared.u32 %r4, [%r2+-64]; st.global.b32 [%rd4], %r4;
end:
"""


def test_a_warp_waits_on_an_mbarrier():
    for seed in range(5):
        out = run(MBARRIER.replace("PARITY", "0"), 64, seed=seed)
        assert out[32:64].tolist() == list(range(32))


def test_a_phase_that_never_ends_is_a_deadlock():
    body = MBARRIER.replace("b64 [%r1], 32", "b64 [%r1], 33")
    with pytest.raises(PtxError, match=r"deadlock: no warp can go on\s+CTA \(0, 0, 0\) warp 1: mbarrier.try_wait"):
        run(body.replace("PARITY", "0"), 64)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("st.global.b32 [%rd4+1000], 1;", "at offset 1024 of out, which has 1024 bytes|where there is no memory"),
        ("st.global.b32 [%rd4+-4], 1;", "where there is no memory|at offset -4 of out"),
        ("st.global.b32 [%rd4+2], 1;", "misaligned"),
        ("ld.shared.b32 %r4, [%r1+4096];", "at offset 4096 of shared memory"),
        ("add.u32 %r4, %r9, 1;", "register %r9 is read, but was never written"),
        ("setp.lt.u32 %p1, %r0, 4; @%p1 bar.sync 0; ret; ", "deadlock"),
        ("mbarrier.arrive.shared.b64 _, [%r1];", "no mbarrier was initialised at offset 0"),
        (
            "mbarrier.init.shared.b64 [%r1], 8; mbarrier.arrive.shared.b64 _, [%r1], 9;",
            "an mbarrier that expects 8 arrivals got more in one phase",
        ),
        ("mbarrier.init.shared.b64 [%r1], 1; st.shared.b32 [%r1+4], 1;", "access to the mbarrier at offset 4"),
        ("tcgen05.alloc.b32 [%r1], 32;", "does not know 'tcgen05.alloc"),
        (".reg .b32 %r2;", "declared twice"),
    ],
)
def test_what_no_gpu_allows_is_an_error(body, message):
    with pytest.raises(PtxError, match=message):
        run(body, 64)


def test_a_box_is_swizzled_and_what_is_outside_is_zero():
    # A box of 8 rows of 128 bytes, two rows beyond the tensor's end: 16-byte piece p of row r lies at piece p ^ r.
    data = np.arange(10 * 32, dtype=np.uint32).reshape(10, 32)
    tensor_map = TensorMap(4, 3, DATA, (32, 10), (4, 128), (32, 8))
    assert TensorMap.from_bytes(tensor_map.to_bytes()) == tensor_map
    out = run(
        """
    setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r1+2048], 1; bar.warp.sync -1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+2048], 1024;
    @%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd2, {0, 4}], [%r1+2048];
    wait: mbarrier.try_wait.parity.shared.b64 %p3, [%r1+2048], 0; @!%p3 bra wait;
    mad.lo.u32 %r2, %r0, 32, %r1; mad.wide.u32 %rd4, %r0, 32, %rd0;
    ld.shared.v4.b32 {%r3, %r4, %r5, %r6}, [%r2]; st.global.v4.b32 [%rd4], {%r3, %r4, %r5, %r6};
    ld.shared.v4.b32 {%r3, %r4, %r5, %r6}, [%r2+16]; st.global.v4.b32 [%rd4+16], {%r3, %r4, %r5, %r6};
    """,
        data=data,
        tensor_map=tensor_map.to_bytes(),
    ).reshape(8, 8, 4)
    padded = np.concatenate([data, np.zeros((2, 32), np.uint32)])[4:].reshape(8, 8, 4)
    for row in range(8):
        for piece in range(8):
            assert out[row, piece ^ row].tolist() == padded[row, piece].tolist()


def test_a_bulk_store_is_done_when_its_group_is():
    out = run("""
    mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0; bar.warp.sync -1;
    setp.eq.u32 %p1, %r0, 3; @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 128;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    setp.eq.u32 %p1, %r0, 3; @%p1 ld.global.u32 %r3, [%rd0+124]; @%p1 st.global.u32 [%rd0+128], %r3;
    """)
    assert out[:33].tolist() == [*range(32), 31]


def test_a_store_from_a_cta_that_has_ended_is_an_error():
    with pytest.raises(PtxError, match="ended while a copy from or to its shared memory was under way"):
        run("cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 128; cp.async.bulk.commit_group;")


def test_ctas_of_a_cluster_reach_each_other():
    out = run(
        """
    mov.u32 %r2, %cluster_ctarank; mad.lo.u32 %r3, %r0, 4, %r1; mad.lo.u32 %r4, %r2, 100, %r0;
    st.shared.u32 [%r3], %r4;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    xor.b32 %r5, %r2, 1; mapa.shared::cluster.u32 %r6, %r3, %r5; ld.shared::cluster.u32 %r7, [%r6];
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mov.u32 %r8, %ctaid.x; mad.lo.u32 %r9, %r8, 32, %r0; mad.wide.u32 %rd4, %r9, 4, %rd0; st.global.u32 [%rd4], %r7;
    """,
        ctas=4,
        cluster=2,
    )
    assert out[:128].reshape(4, 32)[:, 0].tolist() == [100, 0, 100, 0]


def test_clocks_of_an_sm_and_the_global_timer():
    out = run(
        """
    mov.u64 %rd5, %clock64; mov.u32 %r2, %clock; mov.u64 %rd6, %clock64; mov.u64 %rd7, %globaltimer; mov.u32 %r3, %smid;
    mov.u32 %r8, %ctaid.x; mad.wide.u32 %rd4, %r8, 32, %rd0;
    st.global.u64 [%rd4], %rd5; st.global.u64 [%rd4+8], %rd6; st.global.u64 [%rd4+16], %rd7;
    st.global.u32 [%rd4+24], %r2; st.global.u32 [%rd4+28], %r3;
    """,
        ctas=3,
        num_sms=2,
        start=(1 << 34) - 1,
    )
    longs, words = out[:24].view(np.uint64).reshape(3, 4), out[:24].reshape(3, 8)
    assert words[:, 7].tolist() == [0, 1, 0]
    for first, second, timer, _ in longs.tolist():
        assert first < second < first + 100
        assert timer % 32 == 0
    # %clock is the low half of %clock64, read in between.
    between = words[:, 6].astype(np.int64) - (longs[:, 0] & 0xFFFFFFFF).astype(np.int64)
    assert ((between > 0) & (between < 100)).all()
