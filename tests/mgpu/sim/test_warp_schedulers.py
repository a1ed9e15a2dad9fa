"""CUDA-core throughput: pipes by hand, and the published softmax budget."""

from mgpu.devices import load_device
from mgpu.sim.warp_schedulers import WarpSchedulers, Work

H100 = load_device("h100")


def test_work_adds_and_repeats():
    work = Work(fma=128, issue=4) + 2 * Work(mufu=16, issue=1)
    assert work == Work(fma=128, mufu=32, issue=6)
    assert work * 3 == Work(fma=384, mufu=96, issue=18)


def test_the_slowest_pipe_decides():
    schedulers = WarpSchedulers(H100)
    # 12.8 cycles of FMA, 10 of MUFU, 25 of issue.
    assert schedulers.run(100, Work(fma=1638, mufu=160, issue=100)) == 125


def test_no_work_takes_no_time():
    assert WarpSchedulers(H100).run(7, Work()) == 7


def test_pipes_are_shared_by_warpgroups_but_independent_of_each_other():
    schedulers = WarpSchedulers(H100)
    assert schedulers.run(0, Work(mufu=1600)) == 100
    assert schedulers.run(0, Work(mufu=1600)) == 200
    assert schedulers.run(0, Work(fma=12800)) == 100


def test_an_exponential_of_a_128_by_128_tile():
    """arXiv 2603.05451: 1024 cycles on 16 special-function lanes."""
    assert WarpSchedulers(H100).run(0, Work(mufu=128 * 128)) == 1024


def test_storing_a_tile_to_smem():
    """128 B/cycle: 32 KiB take 256 cycles."""
    assert WarpSchedulers(H100).run(0, Work(smem_bytes=32 * 1024)) == 256
