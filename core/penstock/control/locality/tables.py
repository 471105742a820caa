"""Which routing tables operators should have: Middleware'16, section 3.3, and when a new one is worth it.

Pure. Two candidates: keys divided anew, with parts matched to nodes so that little moves, and the tables that
there are with single keys moved. Of both the better one is proposed if the traffic that it saves, for as long
as a table is thought to last, outweighs the state that has to be sent once. Neighbours: `partitioner` is the
port of METIS, `refining` moves single keys, `locality_decision` is what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.control.locality.adjacency import adjacency
from penstock.control.locality.evenness import bounds, packed
from penstock.control.locality.key_graph import CountedEdge, Floats, key_graph
from penstock.control.locality.locality_decision import (
    ChangeTables,
    EdgeView,
    LocalityDecision,
    TableTreatment,
)
from penstock.control.locality.matching import matched
from penstock.control.locality.pair_summary import Integers, Key
from penstock.control.locality.partitioner import Partitioner, WeightedGraph
from penstock.control.locality.prediction import LocalityPrediction, predicted
from penstock.control.locality.refining import Refining
from penstock.control.locality.scene import OperatorHomes, Scene, scene_of
from penstock.control.locality.shard_choice import chosen_shards
from penstock.control.wording import counted, of_bytes

_SAME_SHARE = 0.01
_FEW_KEYS = 1000
_ROOM_MIN = 0.01
"""Of an even share."""


@dataclass(frozen=True, slots=True)
class TableRules:
    """`alpha`: how much more than its share a node may have of an operator (METIS' default). `horizon_s`: how
    long a table is thought to last (the paper makes one each ten minutes). `key_bytes`: what a key that
    changes its node costs beside its state, in bytes on the wire: an entry, and records that wait for it.
    `keys_max`: of all tables together. `records_min`: less were counted on an edge, so nothing is decided.
    `gain_min`: of the local share, what a change must bring at the least, whatever it costs."""

    alpha: float = 1.03
    horizon_s: float = 600.0
    key_bytes: float = 1024.0
    keys_max: int = 1 << 16
    records_min: int = 10_000
    gain_min: float = 0.01


@dataclass(frozen=True, slots=True)
class LocalityLook:
    """What is seen at `at_us`: edges that are counted, homes by operator, capacity by node. `missing` names
    whose counts could not be read; `is_busy`: a reconfiguration, or a treatment of the operators, is under
    way."""

    at_us: int
    edges: tuple[CountedEdge, ...]
    homes: Mapping[str, OperatorHomes]
    capacity: Mapping[str, float]
    missing: tuple[str, ...] = ()
    is_busy: bool = False


def decide_tables(
    look: LocalityLook, partition: Partitioner, rules: TableRules, seed: int
) -> LocalityDecision:
    """The same look, rules and seed give the same decision."""
    hold = _held(look, rules)
    if hold is not None:
        return hold
    graph = key_graph(look.edges, rules.keys_max)
    scene = scene_of(graph, look.homes, look.capacity, rules.key_bytes)
    before = predicted(scene, scene.nodes_of(scene.now))
    by_hash = predicted(scene, scene.nodes_of(scene.hashed))
    if len(scene.nodes) == 1:
        why = f"all homes are on node {scene.nodes[0]}"
        return _decision(look, TableTreatment.NONE, "one-node", why, None, by_hash, before, before)
    if not any(edge.bytes_per_s > 0 for edge in look.edges):
        why = "nothing is sent"
        return _decision(look, TableTreatment.NONE, "no-traffic", why, None, by_hash, before, before)
    if not graph.keys:
        why = "no pair of keys was met more often than any other may have been"
        return _decision(look, TableTreatment.NONE, "no-pairs", why, None, by_hash, before, before)
    best = _best(scene, partition, rules, seed)
    gain = best.expected.local_share - before.local_share
    saved = (before.remote_bytes_per_s - best.expected.remote_bytes_per_s) * rules.horizon_s
    action = best.change
    words = _words(look.edges, best.expected, before, by_hash)
    cost = f"{_cost_words(action)}, {of_bytes(saved)} less are sent in {rules.horizon_s:g} s"
    if gain < rules.gain_min:
        why = f"{words}: {rules.gain_min:.0%} more is the least that a change must bring"
        return _decision(look, TableTreatment.NONE, "little-gain", why, None, by_hash, before, best.expected)
    if saved <= action.cost_bytes:
        why = f"{words}, but {cost}"
        return _decision(look, TableTreatment.NONE, "cost", why, None, by_hash, before, best.expected)
    why = f"{words}; {cost}"
    return _decision(look, TableTreatment.CHANGE, "gain", why, action, by_hash, before, best.expected)


@dataclass(frozen=True, slots=True)
class _Candidate:
    change: ChangeTables
    expected: LocalityPrediction
    worth: float


def _best(scene: Scene, partition: Partitioner, rules: TableRules, seed: int) -> _Candidate:
    """The candidate that is worth most, among equals the one that moves less: tables as they are, with
    single keys moved, come first."""
    graph = scene.graph
    near = adjacency(len(graph.keys), graph.first, graph.second, graph.bytes_per_s)
    even = packed(scene)
    most = bounds(scene, rules.alpha, even)
    candidates: list[_Candidate] = []
    starts = [divided(scene, partition, rules.alpha, seed), even]
    if len(graph.keys) <= _FEW_KEYS or any(each.table for each in scene.homes):
        starts.insert(0, scene.nodes_of(scene.now))
    for start in starts:
        # From an even start it is always within bounds: they are made for that. It also helps where keys are
        # few and heavy.
        if start is even and candidates and len(graph.keys) > _FEW_KEYS:
            break
        refining = Refining(scene, near, most, rules.horizon_s, start)
        refining.run()
        if refining.is_within:
            candidates.append(_candidate(scene, refining.node, rules))
    return max(candidates, key=lambda candidate: candidate.worth)


def divided(scene: Scene, partition: Partitioner, alpha: float, seed: int) -> Integers:
    """A node for each vertex, whatever moves: the graph in as many parts as nodes that may hold keys, each
    part at the node where it keeps most of what is there."""
    graph = scene.graph
    nodes = np.flatnonzero((scene.share > 0).any(axis=0))
    room = _room(scene)[nodes]
    shares = room / room.sum()
    weighted = WeightedGraph(graph.records_per_s, graph.first, graph.second, graph.bytes_per_s)
    parts = partition(weighted, shares, alpha, seed)
    # What stays: state, and where that is nothing to speak of, keys.
    kept = np.maximum(scene.move_bytes, 1.0)
    now = np.searchsorted(nodes, scene.nodes_of(scene.now))
    is_here = (now < len(nodes)) & (nodes[np.minimum(now, len(nodes) - 1)] == scene.nodes_of(scene.now))
    stays = np.bincount(parts[is_here] * len(nodes) + now[is_here], kept[is_here], len(nodes) ** 2)
    value: Floats = stays.reshape(len(nodes), len(nodes)).astype(np.float64)
    # A part was made for a node's share, and fits none of another share.
    is_other = ~np.isclose(shares[:, np.newaxis], shares, rtol=_SAME_SHARE)
    value[is_other] -= 1.0 + float(kept.sum())
    return nodes[matched(value)[parts]]


def _room(scene: Scene) -> Floats:
    """What each node should have of the records of counted keys: its share of all, less its tail; a part of
    nothing would be none, so each has a little."""
    records = scene.loads(scene.nodes_of(scene.now)).sum(axis=1, keepdims=True)
    should = np.maximum((scene.share * records - scene.tail).sum(axis=0), 0.0)
    least = max(float(should.sum()), 1.0) * _ROOM_MIN / len(should)
    room: Floats = np.maximum(should, least)
    return room


def _candidate(scene: Scene, node: Integers, rules: TableRules) -> _Candidate:
    shard = chosen_shards(scene, node)
    tables: dict[str, dict[Key, int]] = {each.operator: {} for each in scene.homes}
    differs = np.flatnonzero(shard != scene.hashed).tolist()
    for vertex in differs:
        tables[scene.homes[scene.graph.operator[vertex]].operator][scene.graph.keys[vertex]] = int(
            shard[vertex]
        )
    keys_moved, keys_over, state = _kept_cold(scene, tables, rules.keys_max - len(differs))
    before, after = scene.nodes_of(scene.now), scene.nodes_of(shard)
    is_over = before != after
    keys_over += int(np.count_nonzero(is_over))
    state += float(scene.state_bytes[is_over].sum())
    change = ChangeTables(
        tables=tables,
        keys_moved=keys_moved + int(np.count_nonzero(shard != scene.now)),
        keys_over=keys_over,
        state_bytes=state,
        cost_bytes=state + rules.key_bytes * keys_over,
    )
    expected = predicted(scene, after)
    worth = -expected.remote_bytes_per_s * rules.horizon_s - change.cost_bytes
    return _Candidate(change, expected, worth)


def _kept_cold(scene: Scene, tables: Mapping[str, dict[Key, int]], room: int) -> tuple[int, int, float]:
    """Puts keys that tables have and nobody counted now into `tables`, where they are, the latest first, up
    to `room`. Answers of the others: keys, keys that change their node, and their bytes of state."""
    keys, over, state = 0, 0, 0.0
    hot = {(int(operator), key) for operator, key in zip(scene.graph.operator, scene.graph.keys, strict=True)}
    for number, (homes, places) in enumerate(zip(scene.homes, scene.shard_node, strict=True)):
        for key, shard in reversed(list(homes.table.items())):
            if (number, key) in hot:
                continue
            if room > 0:
                tables[homes.operator][key] = shard
                room -= 1
                continue
            keys += 1
            if places[shard] != places[homes.hashed(key)]:
                over += 1
                state += homes.key_state_bytes
    return keys, over, state


def _held(look: LocalityLook, rules: TableRules) -> LocalityDecision | None:
    """The decision to wait, with its reason, where one is due."""
    if look.is_busy:
        return _decision(look, TableTreatment.HOLD, "busy", "a change is under way")
    if look.missing:
        why = f"counts are missing of {', '.join(look.missing)}"
        return _decision(look, TableTreatment.HOLD, "missing-counts", why)
    homeless = [
        each.operator
        for each in look.homes.values()
        if not any(look.capacity.get(node, 0.0) > 0 for node in each.shard_nodes)
    ]
    if homeless:
        why = f"no node with capacity is home of a shard of {', '.join(homeless)}"
        return _decision(look, TableTreatment.HOLD, "no-capacity", why)
    few = [edge for edge in look.edges if edge.summary.records < rules.records_min]
    if few or not look.edges:
        told = [f"{counted(edge.summary.records, 'record')} from {edge.name}" for edge in few]
        why = f"{' and '.join(told) or 'no edge'} counted, {rules.records_min} are asked for"
        return _decision(look, TableTreatment.HOLD, "few-records", why)
    return None


def _decision(
    look: LocalityLook,
    treatment: TableTreatment,
    rule: str,
    reason: str,
    action: ChangeTables | None = None,
    by_hash: LocalityPrediction | None = None,
    without: LocalityPrediction | None = None,
    expected: LocalityPrediction | None = None,
) -> LocalityDecision:
    return LocalityDecision(
        at_us=look.at_us,
        operators=tuple(
            dict.fromkeys(name for edge in look.edges for name in (edge.upstream, edge.downstream))
        ),
        treatment=treatment,
        rule=rule,
        reason=reason,
        action=action,
        seen=tuple(_view(edge) for edge in look.edges),
        by_hash=by_hash,
        without=without,
        expected=expected,
        conditions={"CountsUnavailable": reason} if rule == "missing-counts" else {},
    )


def _view(edge: CountedEdge) -> EdgeView:
    records = edge.summary.records
    certain = int(edge.summary.certain.sum())
    return EdgeView(
        name=edge.name,
        records=records,
        records_per_s=edge.records_per_s,
        pairs=int(np.count_nonzero(edge.summary.certain > 0)),
        counted_share=certain / records if records else 0.0,
    )


def _words(
    edges: Sequence[CountedEdge],
    expected: LocalityPrediction,
    before: LocalityPrediction,
    by_hash: LocalityPrediction,
) -> str:
    return (
        f"{expected.local_share:.0%} of the bytes {' and '.join(f'from {edge.name}' for edge in edges)} "
        f"would stay on their node instead of {before.local_share:.0%} (by hash {by_hash.local_share:.0%})"
    )


def _cost_words(change: ChangeTables) -> str:
    of_it = f"{of_bytes(change.state_bytes)} of it state"
    return f"to move {counted(change.keys_over, 'key')} takes {of_bytes(change.cost_bytes)}, {of_it}"
