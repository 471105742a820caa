"""A graph's edges by vertex. Neighbours: partitioners and `refining` walk along it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.control.locality.key_graph import Floats
from penstock.control.locality.pair_summary import Integers


@dataclass(frozen=True, slots=True, eq=False)
class Adjacency:
    """Compressed rows: vertex v has `others[starts[v]:starts[v + 1]]`, each once, with their weights."""

    starts: Integers
    others: Integers
    weights: Floats

    def of(self, vertex: int) -> tuple[Integers, Floats]:
        here = slice(self.starts[vertex], self.starts[vertex + 1])
        return self.others[here], self.weights[here]


def adjacency(count: int, first: Integers, second: Integers, weight: Floats) -> Adjacency:
    """Of `count` vertices; edges between the same two are added up."""
    low, high = np.minimum(first, second), np.maximum(first, second)
    pairs, places = np.unique(low * count + high, return_inverse=True)
    weights: Floats = np.bincount(places, weight, len(pairs)).astype(np.float64)
    low, high = pairs // max(1, count), pairs % max(1, count)
    source = np.concatenate((low, high))
    order = np.argsort(source, kind="stable")
    starts = np.searchsorted(source[order], np.arange(count + 1))
    return Adjacency(
        starts.astype(np.int64), np.concatenate((high, low))[order], np.concatenate((weights, weights))[order]
    )
