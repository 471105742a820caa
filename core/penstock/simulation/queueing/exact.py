"""A topology row by row: every arrival, start and completion is an event. What `slots` is checked against.

Rows of a shard are worked in the order of arrival; a task takes the oldest row that waits in any of its
shards. A row that is being worked when its shard goes elsewhere is finished where it is, before the next one
of the shard begins. Queues have no bound here. Neighbours: `station` says who works what, `replay` drives.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from penstock.simulation.queueing.model import (
    Arrivals,
    Edge,
    FloatArray,
    Service,
    Sharing,
    SimulatedOperator,
    SimulatedTopology,
)
from penstock.simulation.queueing.network import Counters
from penstock.simulation.queueing.record import Record
from penstock.simulation.queueing.station import NOWHERE, Station

_DRAWS = 4_096


class ExactNetwork:
    """ValueError for bounded queues."""

    pieces_max = 1

    def __init__(
        self,
        topology: SimulatedTopology,
        arrivals: Arrivals,
        stations: Mapping[str, Station],
        records: Mapping[str, Record],
        rng: np.random.Generator,
    ) -> None:
        if any(operator.queue_rows_max is not None for operator in topology.operators):
            raise ValueError("bounded queues are simulated by slots only")
        self.now_us = 0.0
        self._arrivals = arrivals
        self._rng = rng
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = 0
        self._next_slot = 0
        self._queues = {
            operator.name: _RowQueues(
                operator, stations[operator.name], records[operator.name], rng, self._at
            )
            for operator in topology.operators
        }
        for edge in topology.edges:
            downstream = self._queues[edge.downstream]
            upstream = self._queues[edge.upstream]
            upstream.sends.append(_Sender(edge, len(upstream.arrived), downstream, rng))

    def served_us(self, operator: str) -> FloatArray:
        return np.array(self._queues[operator].served_us)

    def look(self, ends_us: FloatArray) -> None:
        """One piece only, and it cannot be taken back."""
        if len(ends_us) != 1:
            raise ValueError("rows are worked off one piece at a time")
        end_us = float(ends_us[0])
        for queues in self._queues.values():
            queues.refresh(self.now_us)
        slot_us = self._arrivals.slot_us
        while self._next_slot * slot_us < end_us:
            self._draw_slot(self._next_slot)
            self._next_slot += 1
        events = self._events
        while events and events[0][0] < end_us:
            at_us, _, what = heapq.heappop(events)
            what(at_us)
        slot = int(self.now_us // slot_us)
        for queues in self._queues.values():
            queues.write_down(slot)
        self.now_us = end_us

    def counters(self, operator: str) -> Counters:
        queues = self._queues[operator]
        return Counters(
            *(
                np.array([values], dtype=np.float64)
                for values in (queues.arrived, queues.completed, queues.waited_us, queues.served_us)
            )
        )

    def settle(self, pieces: int) -> None:
        """It has come true already."""

    def _at(self, at_us: float, what: Callable[[float], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (at_us, self._numbers, what))

    def _draw_slot(self, slot: int) -> None:
        """Rows of a slot come at random times within it."""
        slot_us = self._arrivals.slot_us
        for name, rows in self._arrivals.rows.items():
            queues = self._queues[name]
            counts = rows[slot]
            shards = np.repeat(np.arange(len(counts)), counts)
            times = (slot + self._rng.random(len(shards))) * slot_us
            for at_us, shard in zip(times.tolist(), shards.tolist(), strict=True):
                self._at(at_us, lambda now_us, k=shard, q=queues: q.arrive(k, now_us))  # type: ignore[misc]


class _RowQueues:
    """One operator. Counters are cumulative, by shard."""

    def __init__(
        self,
        operator: SimulatedOperator,
        station: Station,
        record: Record,
        rng: np.random.Generator,
        at: Callable[[float, Callable[[float], None]], None],
    ) -> None:
        self.station = station
        self.sends: list[_Sender] = []
        self.arrived = [0] * operator.shards
        self.completed = [0] * operator.shards
        self.waited_us = [0.0] * operator.shards
        self.served_us = [0.0] * operator.shards
        self._record = record
        self._at = at
        self._draw = _Draws(operator, rng)
        self._is_by_shard = operator.sharing is Sharing.BY_SHARD
        self._means_us = operator.service_means_us
        self._waiting: list[deque[tuple[float, int]]] = [deque() for _ in range(operator.shards)]
        self._heads: dict[int, list[tuple[float, int, int]]] = {}
        self._busy: dict[int, int] = {}
        self._shard_is_busy = [False] * operator.shards
        self._server = [NOWHERE] * operator.shards
        self._speed: dict[int, float] = {}
        self._version = -1
        self._rows = 0
        self._noted = (list(self.arrived), list(self.completed), [0.0] * operator.shards)
        station.backlog_us = self._backlog_us

    def refresh(self, now_us: float) -> None:
        """Who works what has changed, perhaps."""
        station = self.station
        if self._version == station.version:
            return
        self._version = station.version
        shares = station.remote_shares()
        self._speed = {key: server.speed * shares.get(key, 1.0) for key, server in station.servers.items()}
        self._heads = {key: self._heads.get(key, []) for key in station.servers}
        server = station.shard_server.tolist()
        for shard, (old, new) in enumerate(zip(self._server, server, strict=True)):
            if old != new and new != NOWHERE and self._waiting[shard]:
                heapq.heappush(self._heads[new], (*self._waiting[shard][0], shard))
        self._server = server
        for key in station.servers:
            self._start(key, now_us)

    def arrive(self, shard: int, now_us: float) -> None:
        self.arrived[shard] += 1
        self._rows += 1
        self._waiting[shard].append((now_us, self._rows))
        server = self._server[shard]
        if server != NOWHERE and len(self._waiting[shard]) == 1:
            heapq.heappush(self._heads[server], (now_us, self._rows, shard))
            self._start(server, now_us)

    def _start(self, key: int, now_us: float) -> None:
        """The server takes what it can."""
        if self.station.is_idle(key):
            return
        heads, width = self._heads[key], self.station.servers[key].width
        while heads and self._busy.get(key, 0) < width:
            came_us, number, shard = heads[0]
            waiting = self._waiting[shard]
            if self._server[shard] != key or not waiting or waiting[0][1] != number:
                heapq.heappop(heads)  # the shard went, and may have come back since
                continue
            if self._is_by_shard and self._shard_is_busy[shard]:
                heapq.heappop(heads)  # its last row is still worked where it was; comes back then
                continue
            heapq.heappop(heads)
            waiting.popleft()
            if waiting:
                heapq.heappush(heads, (*waiting[0], shard))
            self._busy[key] = self._busy.get(key, 0) + 1
            self._shard_is_busy[shard] = True
            takes_us = self._draw.next(shard) / self._speed[key]
            self._at(
                now_us + takes_us,
                lambda end_us, k=shard, s=key, c=came_us, b=now_us: self._complete(k, s, c, b, end_us),  # type: ignore[misc]
            )

    def _complete(self, shard: int, key: int, came_us: float, began_us: float, now_us: float) -> None:
        self.completed[shard] += 1
        self.waited_us[shard] += began_us - came_us
        self.served_us[shard] += now_us - began_us
        self._record.count_row(now_us - came_us)
        self._busy[key] -= 1
        self._shard_is_busy[shard] = False
        for send in self.sends:
            send.send(shard, now_us)
        server = self._server[shard]
        if server not in (key, NOWHERE) and self._waiting[shard]:
            heapq.heappush(self._heads[server], (*self._waiting[shard][0], shard))
            self._start(server, now_us)
        if key in self._heads:
            if (known := self.station.servers.get(key)) is not None and known.is_remote:
                self._record.remote_rows += 1
            self._start(key, now_us)

    def write_down(self, slot: int) -> None:
        """What the piece that ends now has added."""
        latency = [waited + served for waited, served in zip(self.waited_us, self.served_us, strict=True)]
        now = (list(self.arrived), list(self.completed), latency)
        arrived, completed, latency_us = (
            np.array([new], dtype=np.float64) - np.array([old], dtype=np.float64)
            for new, old in zip(now, self._noted, strict=True)
        )
        self._noted = now
        self._record.add(slot, arrived, completed, latency_us, counts_latencies=False)

    def _backlog_us(self, executor: int) -> float:
        work_us: dict[int, float] = {}
        for shard, server in enumerate(self._server):
            known = self.station.servers.get(server)
            if known is not None and known.executor == executor:
                rows_us = len(self._waiting[shard]) * float(self._means_us[shard])
                work_us[server] = work_us.get(server, 0.0) + rows_us / known.speed / known.width
        return max(work_us.values(), default=0.0)


class _Draws:
    """Service times of single rows on a core of speed 1, drawn ahead."""

    def __init__(self, operator: SimulatedOperator, rng: np.random.Generator) -> None:
        self._service = operator.service
        self._rng = rng
        self._centres_us = np.broadcast_to(operator.service_us, (operator.shards,)).astype(float).tolist()
        self._sd_us = operator.service_sds_us.tolist()
        self._drawn: list[float] = []

    def next(self, shard: int) -> float:
        if self._service is Service.DETERMINISTIC:
            return float(self._centres_us[shard])
        if not self._drawn:
            is_normal = self._service is Service.NORMAL
            draws = self._rng.standard_normal(_DRAWS) if is_normal else self._rng.standard_exponential(_DRAWS)
            self._drawn = draws.tolist()
        drawn = self._drawn.pop()
        if self._service is Service.NORMAL:
            return max(0.0, float(self._centres_us[shard]) + float(self._sd_us[shard]) * drawn)
        return float(self._centres_us[shard]) * drawn


class _Sender:
    """Rows of a completed one for an operator downstream; they are there at once."""

    def __init__(self, edge: Edge, shards: int, to: _RowQueues, rng: np.random.Generator) -> None:
        self._whole, self._part = int(edge.selectivity), edge.selectivity % 1
        self._to = to
        self._rng = rng
        self._is_same = shards == len(to.arrived)
        self._cumulative = None if edge.routing is None else np.cumsum(edge.routing, axis=1).tolist()

    def send(self, shard: int, now_us: float) -> None:
        count = self._whole + (self._part > 0 and self._rng.random() < self._part)
        shards = len(self._to.arrived)
        for _ in range(count):
            if self._cumulative is not None:
                target = min(bisect_right(self._cumulative[shard], self._rng.random()), shards - 1)
            elif self._is_same:
                target = shard
            else:
                target = int(self._rng.integers(shards))
            self._to.arrive(target, now_us)
