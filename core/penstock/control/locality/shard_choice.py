"""Which shard of its node a key goes to: the one it is on where that is there, else the emptiest.

Neighbours: `tables` has a node for each key. A shard is worked by one task at a time, so hot keys of one node
are spread over its shards; tasks then share the shards (`elasticutor.intra_executor_balance`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from penstock.control.locality.pair_summary import Integers
from penstock.control.locality.scene import Scene

_UNEVEN_MAX = 1.25
"""Some unevenness is left to the tasks, which share shards every half second; to move a key between shards of
a node for less brings nothing."""


def chosen_shards(scene: Scene, node: Integers) -> Integers:
    """A shard on `node` for each vertex, heaviest first. One stays on its shard, by table or else by hash,
    unless that would have more than 1.25 times the average of the node's shards, and more than the emptiest
    would."""
    chosen = np.zeros(len(node), np.int64)
    weight = scene.graph.records_per_s
    for operator, places in enumerate(scene.shard_node):
        tail = float(scene.tail[operator].sum()) / len(places)
        loads = [tail] * len(places)
        means = scene.loads(node)[operator] / np.maximum(1, np.bincount(places, minlength=len(scene.nodes)))
        emptiest = [
            [(tail, shard) for shard in np.flatnonzero(places == i).tolist()] for i in range(len(scene.nodes))
        ]
        for each in emptiest:
            heapify(each)
        mine = np.flatnonzero(scene.graph.operator == operator)
        for vertex in mine[np.argsort(-weight[mine], kind="stable")].tolist():
            here, more = int(node[vertex]), float(weight[vertex])
            heap = emptiest[here]
            while heap[0][0] != loads[heap[0][1]]:
                heappop(heap)
            least = heap[0][1]
            shard = least
            for known in (int(scene.now[vertex]), int(scene.hashed[vertex])):
                if places[known] == here:
                    is_even = loads[known] + more <= _UNEVEN_MAX * means[here] or loads[known] <= loads[least]
                    shard = known if is_even else least
                    break
            chosen[vertex] = shard
            loads[shard] += more
            heappush(heap, (loads[shard], shard))
    return chosen
