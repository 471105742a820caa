"""A topology by slots: each operator's completed rows are the next one's arrivals, and full queues hold back.

Back-pressure is what stream systems do: an executor that is full stops everybody who sends to its operator,
with rows for whatever shard. So of what is offered to an operator from outside a share is taken, the same for
all its shards, that leaves no executor over its bound; operators upstream work for a share of their time.
Neighbours: `slots` is one operator, `replay` drives.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.simulation.queueing.model import Arrivals, Edge, FloatArray, SimulatedTopology
from penstock.simulation.queueing.network import Counters
from penstock.simulation.queueing.record import Record
from penstock.simulation.queueing.slots import Ahead, SlotQueues
from penstock.simulation.queueing.station import Station

_LOOK_PIECES = 512


class SlotNetwork:
    def __init__(
        self,
        topology: SimulatedTopology,
        arrivals: Arrivals,
        stations: Mapping[str, Station],
        records: Mapping[str, Record],
        rng: np.random.Generator,
    ) -> None:
        self.now_us = 0.0
        self._topology = topology
        self._arrivals = arrivals
        self._queues = {
            operator.name: SlotQueues(stations[operator.name], records[operator.name], arrivals.slot_us, rng)
            for operator in topology.operators
        }
        self._is_bounded = any(operator.queue_rows_max is not None for operator in topology.operators)
        self._ahead: dict[str, Ahead] = {}
        self._inflow_per_us: dict[str, FloatArray] = {}
        self.pieces_max = 1 if self._is_bounded else _LOOK_PIECES

    def served_us(self, operator: str) -> FloatArray:
        return self._queues[operator].served_us

    def look(self, ends_us: FloatArray) -> None:
        lengths_us = np.diff(ends_us, prepend=self.now_us)
        shares: dict[str, float] = {}
        if self._is_bounded:
            if len(ends_us) > 1:
                raise ValueError("with bounded queues only one piece can be looked ahead")
            shares = self._hold_back(float(lengths_us[0]))
        for operator in self._topology.operators:
            rows = self._from_outside(operator.name, lengths_us) * shares.get(operator.name, 1.0)
            for edge in self._topology.edges:
                if edge.downstream == operator.name:
                    rows = rows + _sent(edge, self._ahead[edge.upstream].completed, operator.shards)
            self._ahead[operator.name] = self._queues[operator.name].look(ends_us, rows)

    def counters(self, operator: str) -> Counters:
        queues, ahead = self._queues[operator], self._ahead[operator]
        return Counters(
            queues.arrived + np.cumsum(ahead.arrived, axis=0),
            queues.completed + np.cumsum(ahead.completed, axis=0),
            queues.waited_us + np.cumsum(ahead.waited_us, axis=0),
            queues.served_us + np.cumsum(ahead.served_us, axis=0),
        )

    def settle(self, pieces: int) -> None:
        for name, queues in self._queues.items():
            if self._is_bounded:
                length_us = float(self._ahead[name].ends_us[0]) - self.now_us
                self._inflow_per_us[name] = self._ahead[name].arrived[0] / length_us
            queues.settle(pieces)
            settled_us = queues.now_us
        self.now_us = settled_us

    def _from_outside(self, operator: str, lengths_us: FloatArray) -> FloatArray:
        """[pieces, shards]."""
        rows = self._arrivals.rows.get(operator)
        if rows is None:
            return np.zeros((len(lengths_us), self._topology.operator(operator).shards))
        first = int(self.now_us // self._arrivals.slot_us)
        share = lengths_us / self._arrivals.slot_us
        taken = rows[first : first + len(lengths_us)]
        return taken * share[:, None]

    def _hold_back(self, length_us: float) -> dict[str, float]:
        """Operator -> share of what it is offered from outside that it takes in the next piece; sets what
        operators upstream of full ones may work."""
        shares: dict[str, float] = {}
        throttle = dict.fromkeys(self._queues, 1.0)
        for operator in reversed(self._topology.operators):
            if operator.queue_rows_max is None:
                continue
            queues = self._queues[operator.name]
            outside = self._from_outside(operator.name, np.array([length_us]))[0]
            senders = [edge.upstream for edge in self._topology.edges if edge.downstream == operator.name]
            inside = np.zeros(operator.shards)
            if senders and operator.name in self._inflow_per_us:
                held = min(self._queues[sender].throttle for sender in senders)
                inside = self._inflow_per_us[operator.name] * length_us / max(held, 0.01)
            share = queues.room_share(
                outside + inside, length_us * throttle[operator.name], operator.queue_rows_max
            )
            if operator.name in self._arrivals.rows:
                shares[operator.name] = share
            for sender in senders:
                throttle[sender] = min(throttle[sender], share)
        for name, queues in self._queues.items():
            queues.throttle = throttle[name]
        return shares


def _sent(edge: Edge, completed: FloatArray, shards: int) -> FloatArray:
    """[pieces, downstream shards]."""
    if edge.routing is not None:
        return completed @ edge.routing * edge.selectivity
    if completed.shape[1] == shards:
        return completed * edge.selectivity
    even = completed.sum(axis=1, keepdims=True) * (edge.selectivity / shards)
    return np.broadcast_to(even, (len(completed), shards))
