"""Moves single keys between nodes: within bounds first, then for as long as it pays.

A key's pull to a node is what its pairs there send in a second, over as long as a table is thought to last;
to the node that it is on now, also what a move would cost, its state first of all. A partitioner knows
neither the state nor whose keys a node may hold, and METIS through its binding balances one weight, not one
an operator. Neighbours: `evenness` has the bounds, `tables` the candidates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.control.locality.adjacency import Adjacency
from penstock.control.locality.key_graph import Floats
from penstock.control.locality.pair_summary import Integers
from penstock.control.locality.scene import Scene, may_hold

_ROUNDS = 6
_SWAPS = 256
_ROUNDING = 1e-9


class Refining:
    """Keys on nodes, while they are moved. `bounds` are records a second by operator and node."""

    def __init__(
        self, scene: Scene, near: Adjacency, bounds: Floats, horizon_s: float, node: Integers
    ) -> None:
        self._scene = scene
        self._near = near
        self._bounds = bounds * (1 + _ROUNDING)
        self._horizon_s = horizon_s
        self.node = node.copy()
        self._loads = scene.loads(node)
        count, nodes = len(node), len(scene.nodes)
        source = np.repeat(np.arange(count), np.diff(near.starts))
        flat = source * nodes + node[near.others]
        pull = np.bincount(flat, near.weights, count * nodes).reshape(count, nodes) * horizon_s
        pull[np.arange(count), scene.nodes_of(scene.now)] += scene.move_bytes
        self._pull: Floats = np.where(may_hold(scene), pull, -np.inf)

    @property
    def is_within(self) -> bool:
        """Whether all bounds are kept, and no key is where none of its operator may be."""
        return bool((self._loads <= self._bounds).all()) and self._stray().size == 0

    def run(self) -> None:
        """Lead back into bounds as far as single moves do, then move keys for as long as one pays."""
        for vertex in self._stray().tolist():
            self._move_out(vertex)
        for operator, node in np.argwhere(self._loads > self._bounds).tolist():
            self._relieve(operator, node)
        for _ in range(_ROUNDS):
            if not self._round() and not self._swaps():
                break

    def _stray(self) -> Integers:
        return np.flatnonzero(np.isneginf(self._pull[np.arange(len(self.node)), self.node]))

    def _move_out(self, vertex: int) -> None:
        """To where it is drawn most of the nodes with room, else to the one that is filled least."""
        operator = self._scene.graph.operator[vertex]
        pull = np.where(self._has_room(vertex), self._pull[vertex], -np.inf)
        best = int(np.argmax(pull))
        if np.isneginf(pull[best]):
            with np.errstate(divide="ignore", invalid="ignore"):
                filled = np.where(
                    self._bounds[operator] > 0, self._loads[operator] / self._bounds[operator], np.inf
                )
            best = int(np.argmin(filled))
        self._move(vertex, best)

    def _relieve(self, operator: int, node: int) -> None:
        """Keys leave, those first that lose least for what they weigh."""
        mine = np.flatnonzero((self._scene.graph.operator == operator) & (self.node == node))
        weight = self._scene.graph.records_per_s[mine]
        others = self._pull[mine].copy()
        others[:, node] = -np.inf
        loss = self._pull[mine, node] - others.max(axis=1)
        order = np.argsort(loss / np.maximum(weight, _ROUNDING), kind="stable")
        for vertex in mine[order].tolist():
            if self._loads[operator, node] <= self._bounds[operator, node]:
                return
            pull = np.where(self._has_room(vertex), self._pull[vertex], -np.inf)
            pull[node] = -np.inf
            best = int(np.argmax(pull))
            if not np.isneginf(pull[best]):
                self._move(vertex, best)

    def _round(self) -> int:
        """Each key that is drawn elsewhere goes there, where there is room; answers how many went."""
        here = self._pull[np.arange(len(self.node)), self.node]
        gain = self._pull.max(axis=1, initial=-np.inf) - here
        drawn = np.flatnonzero(gain > np.abs(here) * _ROUNDING)
        moved = 0
        for vertex in drawn[np.argsort(-gain[drawn], kind="stable")].tolist():
            pull = np.where(self._has_room(vertex), self._pull[vertex], -np.inf)
            best = int(np.argmax(pull))
            here_now = self._pull[vertex, self.node[vertex]]
            if pull[best] > here_now + abs(here_now) * _ROUNDING:
                self._move(vertex, best)
                moved += 1
        return moved

    def _swaps(self) -> int:
        """Keys that are drawn to where there is no room change places with another one of their operator,
        where both together gain; of those that are drawn most, so that it takes no longer than a round."""
        operators, weight = self._scene.graph.operator, self._scene.graph.records_per_s
        every = np.arange(len(self.node))
        gain = self._pull.max(axis=1, initial=-np.inf) - self._pull[every, self.node]
        moved = 0
        for vertex in np.argsort(-gain, kind="stable")[:_SWAPS].tolist():
            here, there = int(self.node[vertex]), int(np.argmax(self._pull[vertex]))
            own = self._pull[vertex, there] - self._pull[vertex, here]
            if here == there or not own > 0:
                continue
            operator, more = operators[vertex], weight[vertex]
            others = np.flatnonzero((operators == operator) & (self.node == there))
            both = own + self._pull[others, here] - self._pull[others, there]
            fits = self._loads[operator, here] - more + weight[others] <= self._bounds[operator, here]
            fits &= self._loads[operator, there] + more - weight[others] <= self._bounds[operator, there]
            both = np.where(fits, both, -np.inf)
            if len(others) and both.max() > own * _ROUNDING:
                self._move(int(others[np.argmax(both)]), here)
                self._move(vertex, there)
                moved += 1
        return moved

    def _has_room(self, vertex: int) -> NDArray[np.bool_]:
        operator = self._scene.graph.operator[vertex]
        weight = self._scene.graph.records_per_s[vertex]
        room: NDArray[np.bool_] = self._loads[operator] + weight <= self._bounds[operator]
        return room

    def _move(self, vertex: int, to: int) -> None:
        operator, weight = self._scene.graph.operator[vertex], self._scene.graph.records_per_s[vertex]
        before = self.node[vertex]
        self._loads[operator, before] -= weight
        self._loads[operator, to] += weight
        self.node[vertex] = to
        others, weights = self._near.of(vertex)
        self._pull[others, before] -= weights * self._horizon_s
        self._pull[others, to] += weights * self._horizon_s
