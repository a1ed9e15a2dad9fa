import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis.event_graph import Edges, Step, order_graph


def edges_of(rows: list[tuple[int, int, int]]) -> Edges:
    src, dst, weight = (np.array(column, np.int64) for column in zip(*rows))
    return Edges.of(Step.RUN, src, dst, weight, -1, np.full(len(rows), -1))


def diamond():
    """0 -> 2 -> 3 -> 1 takes 5 + 10 + 1, and 0 -> 2 -> 4 -> 1 takes 5 + 3 + 4: node 4 has 4 cycles of slack."""
    rows = [(0, 2, 5), (2, 3, 10), (2, 4, 3), (3, 1, 1), (4, 1, 4)]
    return order_graph(np.array([0, 16, 5, 15, 8]), edges_of(rows)), rows


def test_the_launch_solves_to_its_own_times() -> None:
    graph, _ = diamond()
    assert graph.solve().tolist() == [0, 16, 5, 15, 8]


def test_slack_is_what_an_edge_may_grow() -> None:
    graph, _ = diamond()
    pairs = zip(graph.edges.src.tolist(), graph.edges.dst.tolist())
    slack = dict(zip(pairs, graph.slack().tolist()))
    assert slack == {(0, 2): 0, (2, 3): 0, (3, 1): 0, (2, 4): 4, (4, 1): 4}


def test_other_weights_move_the_critical_path() -> None:
    graph, _ = diamond()
    weight = np.where((graph.edges.src == 2) & (graph.edges.dst == 3), 1, graph.edges.weight)
    assert graph.solve(weight)[graph.SINK] == 5 + 3 + 4


def test_an_edge_without_a_source_is_gone() -> None:
    graph, _ = diamond()
    src = np.where((graph.edges.src == 2) & (graph.edges.dst == 3), -1, graph.edges.src)
    times = graph.solve(src=src)
    assert times[3] == 0
    assert times[graph.SINK] == 12


def test_a_circle_is_refused() -> None:
    with pytest.raises(AssertionError, match="cycle"):
        order_graph(np.zeros(4, np.int64), edges_of([(0, 2, 1), (2, 3, 1), (3, 2, 1), (3, 1, 1)]))


def longest_paths(size: int, rows: list[tuple[int, int, int]]) -> list[int]:
    """One node at a time; every edge goes from a smaller to a larger number but for node 1, which comes last."""
    time = [0] * size
    for node in [*range(2, size), 1]:
        time[node] = max((time[src] + weight for src, dst, weight in rows if dst == node), default=0)
    return time


@st.composite
def graphs(draw):
    size = draw(st.integers(3, 14))
    rows = [(0, node, draw(st.integers(0, 9))) for node in range(2, size)]
    for _ in range(draw(st.integers(0, 25))):
        src = draw(st.integers(2, size - 1))
        dst = draw(st.integers(2, size - 1))
        if src < dst:
            rows.append((src, dst, draw(st.integers(0, 9))))
    return size, [*rows, *((node, 1, draw(st.integers(0, 3))) for node in range(2, size))]


@settings(deadline=None)
@given(graphs(), st.data())
def test_levels_give_the_longest_paths_and_slack_is_tight(graph, data) -> None:
    size, rows = graph
    times = longest_paths(size, rows)
    solved = order_graph(np.array(times), edges_of(rows))
    assert solved.solve().tolist() == times
    row = data.draw(st.integers(0, len(rows) - 1))
    slack = int(solved.slack()[row])
    for extra, moved in ((slack, 0), (slack + 1, 1)):
        weight = solved.edges.weight.copy()
        weight[row] += extra
        assert solved.solve(weight)[solved.SINK] == times[1] + moved
