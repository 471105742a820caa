"""METIS behind the port of graphs that are divided (`penstock.control.locality.partitioner`): multilevel
k-way partitioning, Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998; what the locality paper uses.

Only the operator has it installed.
"""

from __future__ import annotations

import numpy as np
import pymetis

from penstock.control.locality.adjacency import adjacency
from penstock.control.locality.greedy_partitioner import greedy_partition
from penstock.control.locality.key_graph import Floats
from penstock.control.locality.pair_summary import Integers
from penstock.control.locality.partitioner import WeightedGraph

_TOTAL = 1 << 30
"""METIS adds weights up in 32 bits."""
_VERTICES_MIN = 4
"""For each part."""
_CUTS = 4
"""Divisions that are tried, of which the best stays."""


def metis_partition(graph: WeightedGraph, shares: Floats, alpha: float, seed: int) -> Integers:
    """See `Partitioner`."""
    count = len(graph.vertex_weight)
    if len(shares) == 1:
        return np.zeros(count, np.int64)
    if count < _VERTICES_MIN * len(shares) or graph.vertex_weight.sum() <= 0:
        # METIS would print that it is asked for too many parts, and give most of them nothing.
        return greedy_partition(graph, shares, alpha, seed)
    near = adjacency(count, graph.first, graph.second, graph.edge_weight)
    options = pymetis.Options(seed=seed, ufactor=max(1, round((alpha - 1) * 1000)), ncuts=_CUTS)
    found = pymetis.part_graph(
        len(shares),
        pymetis.CSRAdjacency(near.starts.tolist(), near.others.tolist()),
        vweights=_whole(graph.vertex_weight, 0),
        eweights=_whole(near.weights, 1),
        tpwgts=(shares / shares.sum()).tolist(),
        recursive=False,
        options=options,
    )
    return np.array(found.vertex_part, np.int64)


def _whole(weights: Floats, least: int) -> list[int]:
    """The same in whole numbers, `least` each at the least, that come to less than 2^31 together."""
    total = float(weights.sum())
    scale = _TOTAL / total if total > 0 else 0.0
    whole: list[int] = np.maximum(np.rint(weights * scale), least).astype(np.int64).tolist()
    return whole
