"""What every partitioner answers, on METIS and on the one of plain Python, and how near its cuts are to the
best."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.control.locality.greedy_partitioner import greedy_partition
from penstock.control.locality.key_graph import Floats
from penstock.control.locality.pair_summary import Integers
from penstock.control.locality.partitioner import Partitioner, WeightedGraph
from penstock_operator.partitioning.choice import installed_partitioner
from penstock_operator.partitioning.metis import metis_partition

PARTITIONERS = pytest.mark.parametrize("partition", [metis_partition, greedy_partition])


def grown(seed: int, vertices: int, pairs: int) -> WeightedGraph:
    """A bipartite graph whose vertices weigh what their pairs do, as counted keys do."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, vertices // 3, pairs)
    second = rng.integers(vertices // 3, vertices, pairs)
    weight = np.ceil(rng.pareto(1.2, pairs) * 3 + 1)
    vertex = np.bincount(first, weight, vertices) + np.bincount(second, weight, vertices)
    return WeightedGraph(vertex, first, second, weight)


def clusters(count: int, size: int) -> WeightedGraph:
    """Groups that send nothing to each other: a cut of 0 is there to be found."""
    ends = [(c * size, c * size + other) for c in range(count) for other in range(1, size)]
    first, second = np.array(ends).T
    weight = np.ones(len(ends))
    vertex = np.bincount(first, weight, count * size) + np.bincount(second, weight, count * size)
    return WeightedGraph(vertex, first, second, weight)


def cut(graph: WeightedGraph, part: Integers) -> float:
    return float(graph.edge_weight[part[graph.first] != part[graph.second]].sum())


def loads(graph: WeightedGraph, part: Integers, parts: int) -> Floats:
    return np.bincount(part, graph.vertex_weight, parts)


@PARTITIONERS
def test_parts_have_their_shares(partition: Partitioner) -> None:
    graph = grown(1, 900, 3000)
    for shares in (np.full(6, 1 / 6), np.array([0.5, 0.25, 0.125, 0.125])):
        part = partition(graph, shares, 1.03, 1)
        assert part.shape == graph.vertex_weight.shape
        assert part.min() >= 0
        assert part.max() < len(shares)
        total = graph.vertex_weight.sum()
        allowed = np.maximum(1.03 * shares, graph.vertex_weight.max() / total + shares) + 0.005
        assert (loads(graph, part, len(shares)) / total <= allowed).all()


@PARTITIONERS
def test_the_same_seed_gives_the_same_parts(partition: Partitioner) -> None:
    graph = grown(2, 600, 2000)
    shares = np.full(5, 0.2)
    assert (partition(graph, shares, 1.03, 7) == partition(graph, shares, 1.03, 7)).all()


@PARTITIONERS
def test_groups_that_have_nothing_to_do_with_each_other_are_not_cut(partition: Partitioner) -> None:
    graph = clusters(24, 20)
    part = partition(graph, np.full(4, 0.25), 1.03, 1)
    assert cut(graph, part) == 0
    assert loads(graph, part, 4).tolist() == [24 * 38 / 4] * 4


@PARTITIONERS
def test_nothing_and_one_part_are_divided_too(partition: Partitioner) -> None:
    nothing = WeightedGraph(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    assert partition(nothing, np.full(3, 1 / 3), 1.03, 1).tolist() == []
    assert set(partition(grown(3, 60, 90), np.ones(1), 1.03, 1).tolist()) == {0}


@PARTITIONERS
@pytest.mark.parametrize(("vertices", "parts"), [(1, 4), (5, 32), (40, 256), (40, 11)])
@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.filterwarnings("error")
def test_more_parts_than_there_is_to_divide_are_no_fault(
    partition: Partitioner, vertices: int, parts: int, weight: float, capfd: pytest.CaptureFixture[str]
) -> None:
    ends = np.arange(vertices // 2)
    graph = WeightedGraph(np.full(vertices, weight), ends, vertices - 1 - ends, np.ones(len(ends)))
    part = partition(graph, np.full(parts, 1 / parts), 1.03, 1)
    assert ((part >= 0) & (part < parts)).all()
    # What is started by hand writes its figures to the same place.
    assert capfd.readouterr() == ("", "")


@PARTITIONERS
def test_weights_may_be_of_any_size(partition: Partitioner) -> None:
    graph = grown(4, 300, 900)
    for scale in (1e-9, 1e15):
        scaled = WeightedGraph(
            graph.vertex_weight * scale, graph.first, graph.second, graph.edge_weight * scale
        )
        part = partition(scaled, np.full(3, 1 / 3), 1.03, 1)
        worst = loads(graph, part, 3).max() / graph.vertex_weight.sum()
        assert worst <= 1.04 / 3 + graph.vertex_weight.max() / graph.vertex_weight.sum()


def test_metis_cuts_less_than_the_plain_one_and_much_less_than_chance() -> None:
    shares = np.full(6, 1 / 6)
    for seed in range(5):
        graph = grown(seed, 1500, 4000)
        chance = cut(graph, np.random.default_rng(seed).integers(0, 6, 1500))
        plain, metis = (
            cut(graph, each(graph, shares, 1.03, 1)) for each in (greedy_partition, metis_partition)
        )
        assert metis < 0.75 * chance
        assert metis < plain


def test_the_operator_has_metis_where_it_is_installed() -> None:
    assert installed_partitioner() is metis_partition
