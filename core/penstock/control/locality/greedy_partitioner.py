"""Divides a graph in one pass: the heaviest vertex first, to the part that it shares most with.

Where METIS is not to be had, and beside it in tests: its cuts are worse, since what comes early knows nothing
of what comes later. Neighbours: `partitioner` is the port, `refining` mends what it can.
"""

from __future__ import annotations

import numpy as np

from penstock.control.locality.adjacency import adjacency
from penstock.control.locality.key_graph import Floats
from penstock.control.locality.pair_summary import Integers
from penstock.control.locality.partitioner import WeightedGraph


def greedy_partition(graph: WeightedGraph, shares: Floats, alpha: float, seed: int) -> Integers:  # noqa: ARG001
    """See `Partitioner`. A vertex that fits nowhere goes to the part that is filled least; draws nothing."""
    near = adjacency(len(graph.vertex_weight), graph.first, graph.second, graph.edge_weight)
    room = shares * (graph.vertex_weight.sum() or 1.0)
    load = np.zeros(len(shares))
    part = np.full(len(graph.vertex_weight), -1, np.int64)
    pull = np.zeros((len(graph.vertex_weight), len(shares)))
    for vertex in np.argsort(-graph.vertex_weight, kind="stable").tolist():
        weight = graph.vertex_weight[vertex]
        filled = (load + weight) / room
        fits = filled <= alpha
        # What shares nothing with anybody goes where there is most room.
        best = int(np.lexsort((filled, -pull[vertex], ~fits))[0] if fits.any() else np.argmin(filled))
        part[vertex] = best
        load[best] += weight
        others, weights = near.of(vertex)
        # Each neighbour is there once.
        pull[others, best] += weights
    return part
