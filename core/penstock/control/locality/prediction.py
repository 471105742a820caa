"""What part of the traffic stays on a node, with keys where they are or would be.

Of a pair that was counted it is known; of all other records, that they meet as often as two shards drawn by
hash are on one node. METIS' own figure is of the counted pairs alone: the paper's says 75% where 50% comes
(section 4.3). Neighbours: `tables` compares, `locality_decision` says it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.control.locality.pair_summary import Integers
from penstock.control.locality.scene import Scene


@dataclass(frozen=True, slots=True)
class LocalityPrediction:
    """`local_share` of bytes between counted operators, `remote_bytes_per_s` the rest of them; `imbalance`
    the most that a node has of an operator's records, over what it should have by capacity. `edges` is the
    share of each edge."""

    local_share: float
    remote_bytes_per_s: float
    imbalance: float
    edges: tuple[tuple[str, float], ...]


def predicted(scene: Scene, node: Integers) -> LocalityPrediction:
    """With vertices at `node`."""
    graph = scene.graph
    count = len(graph.edges)
    stays = node[graph.first] == node[graph.second]
    local = np.bincount(graph.edge[stays], graph.bytes_per_s[stays], count)
    counted = np.bincount(graph.edge, graph.bytes_per_s, count)
    whole = np.array([edge.bytes_per_s for edge in graph.edges])
    spread = [np.bincount(places, minlength=len(scene.nodes)) / len(places) for places in scene.shard_node]
    by_chance = np.array(
        [
            float(
                spread[graph.operators.index(edge.upstream)] @ spread[graph.operators.index(edge.downstream)]
            )
            for edge in graph.edges
        ]
    )
    local = local + np.maximum(0.0, whole - counted) * by_chance
    filled = scene.filled(node)
    shares = np.divide(local, whole, out=np.zeros(count), where=whole > 0)
    total = float(whole.sum())
    return LocalityPrediction(
        local_share=float(local.sum()) / total if total > 0 else 0.0,
        remote_bytes_per_s=max(0.0, total - float(local.sum())),
        imbalance=float(filled.max(initial=0.0)),
        edges=tuple((edge.name, share) for edge, share in zip(graph.edges, shares.tolist(), strict=True)),
    )
