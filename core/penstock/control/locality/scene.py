"""Where keys are and may be: shards of operators on nodes, as arrays beside a graph of keys.

Neighbours: `key_graph` has the keys, `tables` asks with `OperatorHomes`, the others work on the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.control.locality.key_graph import Floats, KeyGraph
from penstock.control.locality.pair_summary import Integers, Key

Table = Mapping[Key, int]
"""Key -> shard, of keys that do not go by their hash."""


@dataclass(frozen=True, slots=True)
class OperatorHomes:
    """One keyed operator: the node of each shard's home, the shard of a key by its hash, the table that it
    runs by, and how large a key's state is."""

    operator: str
    shard_nodes: Sequence[str]
    hashed: Callable[[Key], int]
    table: Table = field(default_factory=dict)
    key_state_bytes: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A graph on nodes. Arrays by vertex, or by operator and node.

    `hashed`, `now`: the shard of a vertex by hash, and by the table that there is. `shard_node[o]` is the
    node of each of operator o's shards, `move_bytes` what a move of a vertex to another node costs: its
    `state_bytes`, and what is sent besides. `share` is what part of the operator's records a node should
    have by its capacity (0: it may hold none of its keys), `tail` the records that come there in a second by
    their hash, whatever is in tables.
    """

    graph: KeyGraph
    homes: tuple[OperatorHomes, ...]
    nodes: tuple[str, ...]
    shard_node: tuple[Integers, ...]
    hashed: Integers
    now: Integers
    state_bytes: Floats
    move_bytes: Floats
    share: Floats
    tail: Floats

    def nodes_of(self, shard: Integers) -> Integers:
        """The node of each vertex, from its shard."""
        nodes = np.zeros(len(shard), np.int64)
        for number, places in enumerate(self.shard_node):
            mine = self.graph.operator == number
            nodes[mine] = places[shard[mine]]
        return nodes

    def loads(self, node: Integers) -> Floats:
        """Records a second by operator and node, with vertices at `node`."""
        flat = self.graph.operator * len(self.nodes) + node
        loads = np.bincount(flat, self.graph.records_per_s, self.tail.size).reshape(self.tail.shape)
        return self.tail + loads

    def filled(self, node: Integers) -> Floats:
        """`loads` over what a node should have: 1 is even. 0 where there should be nothing."""
        loads = self.loads(node)
        should = self.share * loads.sum(axis=1, keepdims=True)
        filled: Floats = np.divide(loads, should, out=np.zeros(loads.shape), where=should > 0)
        return filled


def scene_of(
    graph: KeyGraph,
    homes: Mapping[str, OperatorHomes],
    capacity: Mapping[str, float],
    key_bytes: float = 0.0,
) -> Scene:
    """`capacity` by node, in any unit; a node that is not there, or has none, takes no key. `key_bytes` is
    what a move costs beside the state. ValueError where an operator's homes are not told, or no node may hold
    its keys."""
    known = tuple(homes[name] for name in graph.operators if name in homes)
    if len(known) < len(graph.operators):
        raise ValueError(f"no homes are told of {sorted(set(graph.operators) - set(homes))}")
    nodes = tuple(sorted({node for each in known for node in each.shard_nodes}))
    number = {node: place for place, node in enumerate(nodes)}
    shard_node = tuple(np.array([number[node] for node in each.shard_nodes], np.int64) for each in known)
    able = np.array([max(0.0, capacity.get(node, 0.0)) for node in nodes])
    shards = np.array([np.bincount(places, minlength=len(nodes)) for places in shard_node])
    share = np.where(shards > 0, able, 0.0)
    if (share.sum(axis=1) <= 0).any():
        raise ValueError("an operator has no shard on a node with capacity")
    hashed = np.zeros(len(graph.keys), np.int64)
    now = hashed.copy()
    for vertex, (operator, key) in enumerate(zip(graph.operator.tolist(), graph.keys, strict=True)):
        hashed[vertex] = shard = known[operator].hashed(key)
        now[vertex] = known[operator].table.get(key, shard)
    counted = np.bincount(graph.operator, graph.records_per_s, len(known))
    records = np.array([graph.records_of(operator) for operator in range(len(known))])
    rest = np.maximum(0.0, records - counted)
    state = np.array([each.key_state_bytes for each in known])
    return Scene(
        graph=graph,
        homes=known,
        nodes=nodes,
        shard_node=shard_node,
        hashed=hashed,
        now=now,
        state_bytes=state[graph.operator],
        move_bytes=state[graph.operator] + key_bytes,
        share=share / share.sum(axis=1, keepdims=True),
        tail=rest[:, np.newaxis] * shards / shards.sum(axis=1, keepdims=True),
    )


def may_hold(scene: Scene) -> NDArray[np.bool_]:
    """By vertex and node: whether a key may be there."""
    allowed: NDArray[np.bool_] = (scene.share > 0)[scene.graph.operator]
    return allowed
