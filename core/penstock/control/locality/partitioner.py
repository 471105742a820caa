"""The port behind which a graph is divided into parts. Neighbours: METIS is an adapter of the operator's,
since only the operator has the library; `greedy_partitioner` is one of plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.control.locality.key_graph import Floats
from penstock.control.locality.pair_summary import Integers


@dataclass(frozen=True, slots=True, eq=False)
class WeightedGraph:
    """`vertex_weight` by vertex, at least 0; `first[e]`, `second[e]`, two vertices, and `edge_weight[e]`,
    above 0, by edge. An edge counts once, whichever way it points; the same two vertices may have several."""

    vertex_weight: Floats
    first: Integers
    second: Integers
    edge_weight: Floats


class Partitioner(Protocol):
    """Divides a graph so that little edge weight is cut."""

    def __call__(self, graph: WeightedGraph, shares: Floats, alpha: float, seed: int) -> Integers:
        """The part of each vertex, from 0 to len(shares) - 1. `shares` are above 0 and come to 1: a part
        should have at most `alpha` times its share of all vertex weight, as far as weights allow. The same
        seed gives the same answer."""
