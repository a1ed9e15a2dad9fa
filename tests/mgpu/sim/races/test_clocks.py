"""Clocks of clusters, and what is left of a cluster that has exited."""

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu.sim.engine import Engine
from mgpu.sim.races import Place, Watchers
from mgpu.sim.races.clocks import Agents, ClusterParty, Party, join
from mgpu.sim.races.report import Access
from mgpu.sim.races.shadow import State
from mgpu.sim.races.signals import Signals


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 2), st.integers(0, 12)), max_size=60))
def test_a_wait_tells_of_the_signals_that_it_needs(steps):
    """The model keeps what each signal knew, and joins the first ones of them entry by entry."""
    agents, model_agents = Agents(), Agents()
    parties = [ClusterParty(agents) for _ in range(3)] + [Party(agents)]
    models = [Party(model_agents) for _ in range(4)]
    semaphores, model_semaphores = [Signals() for _ in range(3)], [[] for _ in range(3)]
    for signals, number, semaphore, needed in steps:
        party, model, known = parties[number], models[number], semaphores[semaphore]
        if signals:
            known.signal(party, len(model_semaphores[semaphore]))
            model_semaphores[semaphore].append(dict(model.clock))
            model.clock[model.agent] += 1
        else:
            needed = None if needed == 12 else needed
            if isinstance(party, ClusterParty):
                known.teach(party, needed)
            else:
                join(party.clock, known.known_at(needed))
            for told in model_semaphores[semaphore][:needed]:
                join(model.clock, told)
        assert [party.clock for party in parties] == [model.clock for model in models]


@pytest.mark.parametrize("size", [1, 2])
def test_nothing_is_kept_of_what_an_exited_cluster_knew(size):
    out = np.zeros((1000, 4), np.float32)
    write = Place("write", "k.py:3", "out", 0, space="GMEM", view=lambda array, row: array[row])
    watchers = Watchers("body", Engine(), 500, size, 1, has_warps=False, boxes={}, fresh=[out], watch_all=False)

    def live_parties():
        return sum(type(each) is ClusterParty for each in gc.get_objects())

    gc.collect()
    before = live_parties()
    for cluster in range(10, 60):
        for cta in range(cluster * size, (cluster + 1) * size):
            watchers.of_cta(cta, cluster)[1].write_global(0, write, out, (cta,))
        for _ in range(size):
            assert live_parties() == before + 1
            watchers.exited(cluster)
        assert live_parties() == before
    assert watchers.races() == ()
    watchers.of_cta(999, 499 if size == 1 else 498)[1].write_global(0, write, out, (10 * size,))
    (race,) = watchers.races()
    assert race.first_cta == 10 * size


def test_an_empty_history_is_shared_and_cannot_be_added_to():
    first, second = State(), State()
    assert first.reads is second.reads is first.atomics
    with pytest.raises(AttributeError):
        first.reads.update({2: Access(2, 1, Place("read", "k.py:3", "out", 0), 0, 0)})
