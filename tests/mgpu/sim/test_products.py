"""Late products: which wgmmas become one, and what they multiply."""

import numpy as np
import pytest

from mgpu.sim import products
from mgpu.sim.matmul import matmul_function
from mgpu.sim.multiplier import Multiplier
from mgpu.sim.products import Products

ADD = matmul_function(np.float16, np.float32)
STEP = 4


@pytest.fixture(params=[True, False], ids=["places known", "places unknown"])
def known(request):
    """Whether the queue is told where operands lie, or has to find out."""
    return request.param


@pytest.fixture
def shapes(monkeypatch):
    """The shapes (m, n, k) of the products that are computed."""
    found = []

    def multiply(acc, a, b):
        found.append((*acc.shape, a.shape[1]))
        acc += a @ b

    monkeypatch.setattr(products, "add_product", multiply)
    return found


def operands(m=8, n=6, k=16):
    generator = np.random.default_rng(0)
    return (generator.integers(-8, 8, shape).astype(np.float32) for shape in ((m, k), (k, n)))


def issue(queue, acc, a, b, *, steps=(0, 1, 2, 3), in_smem=False, function=None, known=False, lasting=10):
    """Issues a wgmma for each of some steps along k, at 0, 10, 20, ..., which take `lasting` cycles."""
    for number, step in enumerate(steps):
        k = slice(step * STEP, (step + 1) * STEP)
        places = (k.start * a.strides[1], k.start * b.strides[0]) if known else (None, None)
        mma = (10 * number + lasting, in_smem, function or products.add_product, acc, a[:, k], b[k], *places)
        queue.add(10 * number, mma)


def test_steps_that_lie_side_by_side_are_one_product(shapes, known):
    a, b = operands()
    queue, acc = Products(), np.ones((8, 6), np.float32)
    issue(queue, acc, a, b, known=known)
    queue.retire(0)
    assert shapes == [(8, 6, 16)]
    np.testing.assert_array_equal(acc, 1 + a @ b)


def test_transposed_operands_too(shapes, known):
    a, b = operands()
    queue, acc = Products(), np.zeros((8, 6), np.float32)
    issue(queue, acc, np.asfortranarray(a), np.asfortranarray(b), known=known)
    queue.retire(0)
    assert shapes == [(8, 6, 16)]
    np.testing.assert_array_equal(acc, a @ b)


def test_what_is_in_flight_stays(shapes, known):
    a, b = operands()
    queue, acc = Products(), np.zeros((8, 6), np.float32)
    issue(queue, acc, a, b, known=known)
    queue.retire(1)
    np.testing.assert_array_equal(acc, a[:, :12] @ b[:12])
    queue.retire(0)
    assert shapes == [(8, 6, 12), (8, 6, 4)]
    np.testing.assert_array_equal(acc, a @ b)


@pytest.mark.parametrize(
    ("steps", "depths"),
    [([0, 2, 3], [4, 8]), ([1, 0], [4, 4]), ([0, 0], [4, 4]), ([0, 1, 0, 1], [8, 8])],
)
def test_other_steps_are_products_of_their_own(shapes, known, steps, depths):
    a, b = operands()
    queue, acc = Products(), np.zeros((8, 6), np.float32)
    issue(queue, acc, a, b, steps=steps, known=known)
    queue.retire(0)
    assert [k for _, _, k in shapes] == depths
    expected = sum(a[:, step * STEP : (step + 1) * STEP] @ b[step * STEP : (step + 1) * STEP] for step in steps)
    np.testing.assert_array_equal(acc, expected)


def test_copies_of_neighbours_are_products_of_their_own(shapes):
    """Two arrays may lie behind each other by chance."""
    a, b = operands()
    queue, acc = Products(), np.zeros((8, 6), np.float32)
    for step in range(2):
        k = slice(step * STEP, (step + 1) * STEP)
        queue.add(0, (10, False, products.add_product, acc, a[:, k].copy(), b[k], None, None))
    queue.retire(0)
    assert [k for _, _, k in shapes] == [4, 4]


def test_accumulators_in_turn_are_products_of_their_own(shapes):
    a, b = operands()
    queue, accumulators = Products(), [np.zeros((8, 6), np.float32) for _ in range(2)]
    for step in range(4):
        issue(queue, accumulators[step % 2], a, b, steps=[step])
    queue.retire(0)
    assert [k for _, _, k in shapes] == [4] * 4
    np.testing.assert_array_equal(sum(accumulators), a @ b)


def test_rounding_at_every_step_stays():
    a, b = operands()
    queue, acc = Products(), np.full((8, 6), 2048, np.float32)
    issue(queue, acc, a, b * 0 + 0.25, function=matmul_function(np.float16, np.float16))
    queue.retire(0)
    expected = np.full((8, 6), 2048, np.float16)
    for step in range(4):
        expected += (a[:, step * STEP : (step + 1) * STEP].sum(1, keepdims=True) * 0.25).astype(np.float16)
    np.testing.assert_array_equal(acc, expected)


def test_smem_is_multiplied_before_it_is_overwritten(shapes):
    a, b = operands()
    queue, acc = Products(), np.zeros((8, 6), np.float32)
    issue(queue, acc, a, b, in_smem=True)
    queue.before_overwriting(25)
    assert [k for _, _, k in shapes] == [4, 4]
    a[:, :8] = 99
    queue.retire(0)
    a_before, b_before = operands()
    np.testing.assert_array_equal(acc, a_before @ b_before)


def test_slots_are_not_multiplied_before_they_are_filled_again(shapes):
    a, b = operands()
    queue = Products()
    issue(queue, np.zeros((8, 6), np.float32), a, b)
    queue.before_overwriting(100)
    assert shapes == []


@pytest.mark.parametrize("lasting", [1, 10, 35, 1000])
def test_a_long_loop_is_several_products_whenever_its_wgmmas_end(shapes, monkeypatch, lasting):
    monkeypatch.setattr(products, "FULL_FLOPS", 2 * 8 * 6 * 3 * STEP)
    monkeypatch.setattr(products, "MOST_PENDING", 1)  # the first one is added up before the last wgmma, or at the end
    a, b = operands(k=7 * STEP)
    queue, acc = Products(), np.zeros((8, 6), np.float32)
    issue(queue, acc, a, b, steps=range(7), lasting=lasting)
    assert len(shapes) == (2 if lasting <= 10 else 1 if lasting <= 35 else 0)
    queue.retire(0)
    assert [k for _, _, k in shapes] == [3 * STEP, 3 * STEP, STEP]
    np.testing.assert_array_equal(acc, a @ b)


def test_what_has_ended_does_not_pile_up(shapes, monkeypatch):
    monkeypatch.setattr(products, "MOST_PENDING", 3)
    a, b = operands(k=8 * STEP)
    queue, acc = Products(), np.zeros((8, 6), np.float32)
    issue(queue, acc, a, b, steps=[0, 2, 4, 6, 1, 3, 5, 7])  # no two of them are one product
    assert len(shapes) == 5
    queue.retire(0)
    np.testing.assert_array_equal(acc, a @ b)


class Worker(Multiplier):
    """A multiplier without a thread: computes the jobs whose numbers it is given, when they come."""

    def __init__(self, computes):
        super().__init__()
        self.computes = computes
        self.jobs = []

    def submit(self, job):
        self.jobs.append(job)
        if len(self.jobs) - 1 in self.computes:
            job.compute()


@pytest.mark.parametrize("computes", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("in_flight", [0, 1, 3, 6])
def test_who_multiplies_does_not_show(monkeypatch, computes, in_flight):
    """Nor does what is in flight, although the multiplier may have computed it."""
    monkeypatch.setattr(products, "FULL_FLOPS", 2 * 64 * 32 * 3 * STEP)
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape, dtype=np.float32) for shape in ((64, 7 * STEP), (7 * STEP, 32)))
    results, worker = [], Worker(computes)
    for multiplier in (None, worker):
        queue, acc = Products(multiplier), np.ones((64, 32), np.float32)
        issue(queue, acc, a, b, steps=range(7))
        queue.retire(in_flight)
        results.append(acc.copy())
        queue.retire(0)
        results.append(acc)
    assert len(worker.jobs) == 2
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])
    k = (7 - in_flight) * STEP
    np.testing.assert_allclose(results[0], 1 + a[:, :k] @ b[:k], rtol=1e-5, atol=1e-5)


def test_products_of_smem_are_not_multiplied_ahead(monkeypatch):
    monkeypatch.setattr(products, "FULL_FLOPS", 1)
    a, b = operands()
    worker = Worker(())
    issue(Products(worker), np.zeros((8, 6), np.float32), a, b, in_smem=True)
    issue(Products(worker), np.zeros((8, 6), np.float32), a, b, function=matmul_function(np.float16, np.float16))
    assert worker.jobs == []
