"""How even loads have to be: Middleware'16, section 3.1, an instance gets at most alpha times the average of
its operator. Here an instance is a node, the average its share by capacity, and where single keys are too
heavy for that, as even as packing the heaviest first makes it. Neighbours: `refining` keeps the bounds."""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np

from penstock.control.locality.key_graph import Floats
from penstock.control.locality.pair_summary import Integers
from penstock.control.locality.scene import Scene


def packed(scene: Scene) -> Integers:
    """A node for each vertex, for evenness alone: the heaviest first, each to the node that is filled
    least of those that may hold it."""
    node = np.zeros(len(scene.graph.keys), np.int64)
    weight = scene.graph.records_per_s.tolist()
    for operator in range(len(scene.homes)):
        share, tail = scene.share[operator], scene.tail[operator]
        mine = np.flatnonzero(scene.graph.operator == operator)
        mine = mine[np.argsort(-scene.graph.records_per_s[mine], kind="stable")]
        filled = [(float(tail[i] / share[i]), i) for i in np.flatnonzero(share > 0).tolist()]
        heapify(filled)
        for vertex in mine.tolist():
            load, least = filled[0]
            node[vertex] = least
            heapreplace(filled, (load + weight[vertex] / float(share[least]), least))
    return node


def bounds(scene: Scene, alpha: float, even: Integers) -> Floats:
    """The most records a second by operator and node, its tail at the least; `even` is what `packed`
    answers."""
    loads = scene.loads(even)
    worst = scene.filled(even).max(axis=1, keepdims=True)
    most: Floats = np.maximum(alpha, worst) * scene.share * loads.sum(axis=1, keepdims=True)
    most[:] = np.maximum(most, scene.tail)
    return most
