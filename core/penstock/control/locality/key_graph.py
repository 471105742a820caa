"""The graph of keys that a table is made from: Middleware'16, section 3.3.

A vertex is a key of an operator, weighed by how often it comes; an edge is a pair of keys that follow each
other, weighed by what it sends in a second. One edge between two operators makes it bipartite; several in a
row, or side by side, share the vertices of the operators between them. Neighbours: `pair_summary` counts,
`partitioner` divides, `scene` says where keys are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.control.locality.pair_summary import Integers, Key, PairSummary

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CountedEdge:
    """What is known of the records between two keyed operators: some of them counted by pair of keys, how
    many come in a second, bytes of one on its way."""

    upstream: str
    downstream: str
    summary: PairSummary
    records_per_s: float
    record_bytes: float

    @property
    def name(self) -> str:
        return f"{self.upstream} to {self.downstream}"

    @property
    def bytes_per_s(self) -> float:
        return self.records_per_s * self.record_bytes


@dataclass(frozen=True, slots=True, eq=False)
class KeyGraph:
    """Vertices by number: `keys[v]` of operator `operators[operator[v]]`, which comes `records_per_s[v]`
    times. Pairs by number: `first[e]` and `second[e]` send `bytes_per_s[e]`, counted on `edges[edge[e]]`."""

    operators: tuple[str, ...]
    edges: tuple[CountedEdge, ...]
    keys: tuple[Key, ...]
    operator: Integers
    records_per_s: Floats
    first: Integers
    second: Integers
    edge: Integers
    bytes_per_s: Floats

    def records_of(self, operator: int) -> float:
        """All records of an operator in a second, counted by key or not: those that come, or, where no edge
        leads to it, those that it sends."""
        name = self.operators[operator]
        coming = [edge.records_per_s for edge in self.edges if edge.downstream == name]
        if coming:
            return sum(coming)
        return max(edge.records_per_s for edge in self.edges if edge.upstream == name)


def key_graph(edges: Sequence[CountedEdge], keys_max: int) -> KeyGraph:
    """The graph of the `keys_max` keys that come most often, among equals those that were counted first.

    Counts are what a pair was seen at the least: what is uncertain of a pair is the tail's. A key comes as
    often as it was received, in pairs or by itself, or sent, whichever was counted more often: where its own
    tail is left out, a node that is full of it seems to have room.
    """
    operators = tuple(dict.fromkeys(name for edge in edges for name in (edge.upstream, edge.downstream)))
    places: list[dict[Key, int]] = [{} for _ in operators]
    owners: list[int] = []

    def vertex(operator: int, key: Key) -> int:
        place = places[operator].get(key)
        if place is None:
            place = places[operator][key] = len(owners)
            owners.append(operator)
        return place

    ends: list[tuple[int, int]] = []
    rates: list[NDArray[np.floating]] = []
    alone: dict[int, float] = {}
    """What comes of keys received, whatever follows."""
    for edge in edges:
        upstream, downstream = operators.index(edge.upstream), operators.index(edge.downstream)
        certain = edge.summary.certain
        ends += [
            (vertex(upstream, received), vertex(downstream, sent))
            for (received, sent), count in zip(edge.summary.pairs, certain.tolist(), strict=True)
            if count > 0
        ]
        rate_of_one = edge.records_per_s / max(1, edge.summary.records)
        rates.append(certain[certain > 0] * rate_of_one)
        for key, seen in edge.summary.received.items():
            place = places[upstream].get(key)
            if place is not None:
                alone[place] = max(alone.get(place, 0.0), seen * rate_of_one)
    count = len(owners)
    first, second = np.array(ends, np.int64).reshape(-1, 2).T
    numbers = np.repeat(np.arange(len(edges)), [len(rate) for rate in rates])
    rate: Floats = np.concatenate((np.zeros(0), *rates)).astype(np.float64)
    records = np.maximum(np.bincount(first, rate, count), np.bincount(second, rate, count))
    np.maximum.at(records, list(alone), list(alone.values()))
    keys: list[Key] = [()] * count
    for known in places:
        for key, place in known.items():
            keys[place] = key
    is_in = np.ones(count, np.bool_)
    if count > keys_max:
        is_in[np.argsort(-records, kind="stable")[keys_max:]] = False
    whole = is_in[first] & is_in[second]
    renumbered = np.cumsum(is_in) - 1
    bytes_per_record = np.array([edge.record_bytes for edge in edges])
    return KeyGraph(
        operators=operators,
        edges=tuple(edges),
        keys=tuple(key for key, there in zip(keys, is_in.tolist(), strict=True) if there),
        operator=np.array(owners, np.int64)[is_in],
        records_per_s=records[is_in],
        first=renumbered[first[whole]],
        second=renumbered[second[whole]],
        edge=numbers[whole],
        bytes_per_s=(rate * bytes_per_record[numbers])[whole] if count else np.zeros(0),
    )
