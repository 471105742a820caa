"""An operator's queues by slots: rows come and are worked like water, one server's queue after another as
arrays.

Time is cut into *pieces* in which rows arrive at an even rate: slots, or parts of them where something
happens within. A server's unfinished work over the ends of pieces follows Lindley's recursion; with
cumulative sums its solution is one running minimum. Rows are worked in the order of arrival, so a level of
completed work is a moment of arrival: up to there all rows of all shards of the server are complete. That
moment (`position`, in pieces) is all the state of a shard, and what is left of its rows goes with it where it
goes. What pieces hide is added by `subslot`. Work is done in two steps: `look` computes far ahead, `settle`
takes as much of it as came true before somebody acted.

Left out, against `exact`: a row counts as complete when its own work begins, and latencies within a shard and
slot are not told apart. Neighbours: `station` says which server works what, `replay` drives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.simulation.queueing.model import FloatArray, Service
from penstock.simulation.queueing.record import Record
from penstock.simulation.queueing.station import NOWHERE, Station
from penstock.simulation.queueing.subslot import hidden_waiting_us

Indices = npt.NDArray[np.int64]

RATE_US = 1_000_000
"""Over how long a server's load is measured for what pieces hide."""

_NOTHING_US = 1e-6
"""Unfinished work that rounding leaves behind."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """One look: [pieces, shards] of what each piece adds, and for shards with a server the position at its
    end, [pieces, servers]."""

    ends_us: FloatArray
    arrived: FloatArray
    completed: FloatArray
    waited_us: FloatArray
    served_us: FloatArray
    positions: FloatArray
    server_of: Indices
    """[shards] -> column of `positions`, NOWHERE for shards under way."""


class _Servers:
    """Who works what, as arrays, until the station changes."""

    def __init__(self, station: Station, means_us: FloatArray, moments_us2: FloatArray) -> None:
        placed = np.flatnonzero(station.shard_server != NOWHERE)
        order = np.argsort(station.shard_server[placed], kind="stable")
        self.order: Indices = placed[order]
        """Shards that have a server, those of one server side by side."""
        keys, self.starts, counts = np.unique(
            station.shard_server[self.order], return_index=True, return_counts=True
        )
        self.keys: list[int] = keys.tolist()
        self.column: Indices = np.repeat(np.arange(len(keys)), counts)
        """[placed shards in order] -> column."""
        self.server_of = np.full(len(station.shard_server), NOWHERE, dtype=np.int64)
        self.server_of[self.order] = self.column
        servers = [station.servers[key] for key in self.keys]
        self.width = np.array([server.width for server in servers], dtype=np.float64)
        shares = station.remote_shares()
        speed = np.array(
            [server.speed * shares.get(key, 1.0) for key, server in zip(self.keys, servers, strict=True)]
        )
        self.speed = speed
        self.capacity = np.array([0.0 if station.is_idle(key) else 1.0 for key in self.keys]) * self.width
        shard_speed = speed[self.column] if len(keys) else np.ones(0)
        self.row_us = means_us[self.order] / shard_speed
        self.row_us2 = moments_us2[self.order] / shard_speed**2
        self.self_us = self.row_us2 / self.row_us / 2 / self.width[self.column]
        remote = np.array([server.is_remote for server in servers], dtype=bool)
        self.is_remote = np.zeros(len(station.shard_server), dtype=bool)
        if len(keys):
            self.is_remote[self.order] = remote[self.column]

    def sums(self, values: FloatArray) -> FloatArray:
        """[pieces, placed shards in order] -> [pieces, servers]."""
        return np.add.reduceat(values, self.starts, axis=1) if self.keys else np.zeros((len(values), 0))


class SlotQueues:
    """The queues of one operator. Counters are cumulative, [shards], as of `now_us`."""

    def __init__(self, station: Station, record: Record, slot_us: int, rng: np.random.Generator) -> None:
        operator = station.operator
        self.station = station
        self.now_us = 0.0
        self.arrived = np.zeros(operator.shards)
        self.completed = np.zeros(operator.shards)
        self.waited_us = np.zeros(operator.shards)
        self.served_us = np.zeros(operator.shards)
        self.throttle = 1.0
        """The share of their time that servers work: less where somebody downstream cannot take more."""
        self._record = record
        self._slot_us = slot_us
        self._rng = rng
        self._means_us = operator.service_means_us
        self._variances_us2 = operator.service_variances_us2
        self._is_random = operator.service is not Service.DETERMINISTIC
        self._servers: _Servers | None = None
        self._version = -1
        self._position = np.zeros(operator.shards)
        self._edges = np.zeros(1)
        self._rows = np.zeros((0, operator.shards))
        self._work_us = self._rows
        self._ahead: Ahead | None = None
        self._ahead_rows = self._rows
        self._ahead_work_us = self._rows
        station.backlog_us = self.backlog_us

    # --- ahead --------------------------------------------------------------------------------------

    def look(self, ends_us: FloatArray, rows: FloatArray) -> Ahead:
        """What happens until the last of `ends_us` [pieces] if nobody acts; `rows` [pieces, shards] arrive,
        evenly within a piece. Nothing is changed."""
        servers = self._current()
        work_us = self._drawn(rows)
        pieces, past = len(rows), len(self._rows)
        edges = np.concatenate((self._edges, ends_us))
        all_rows = np.concatenate((self._rows, rows)) if past else rows
        all_work_us = np.concatenate((self._work_us, work_us)) if past and self._is_random else work_us
        if not self._is_random:
            all_work_us = all_rows
        # Of the past only what is not complete is left to do.
        left = all_rows
        share: FloatArray | None = None
        if past:
            share = np.clip(np.arange(1, past + 1)[:, None] - self._position, 0.0, 1.0)
            left = all_rows.copy()
            left[:past] *= share
        placed = left[:, servers.order]
        if self._is_random:
            shard_work = all_work_us if share is None else all_work_us.copy()
            if share is not None:
                shard_work[:past] *= share
            work = servers.sums(shard_work[:, servers.order] / servers.speed[servers.column])
        else:
            work = servers.sums(placed * servers.row_us)
        level = np.zeros((len(work) + 1, work.shape[1]))
        np.cumsum(work, axis=0, out=level[1:])
        at_ends = level[past:]
        lengths = np.diff(edges[past:])
        capacity = servers.capacity * self.throttle
        coming = np.diff(at_ends, axis=0)
        unfinished = at_ends[:1] + np.cumsum(coming - lengths[:, None] * capacity, axis=0)
        unfinished -= np.minimum(np.minimum.accumulate(unfinished, axis=0), 0.0)
        unfinished[unfinished < _NOTHING_US] = 0.0
        before = np.concatenate((at_ends[:1], unfinished[:-1]))
        before[before < _NOTHING_US] = 0.0
        hidden_us = self._hidden_us(servers, edges, all_rows, past, capacity)

        arrived = rows
        completed = np.zeros_like(rows)
        waited_us = np.zeros_like(rows)
        positions = np.broadcast_to(
            np.arange(past + 1, past + pieces + 1.0)[:, None], unfinished.shape
        ).copy()
        is_hot = (before > 0).any(axis=0) | (unfinished > 0).any(axis=0) | (capacity == 0)
        cold = servers.order[~is_hot[servers.column]] if len(is_hot) else servers.order
        # Without a queue rows are complete in the piece in which they come, and what was left is nothing.
        completed[:, cold] = rows[:, cold]
        hot = np.flatnonzero(is_hot)
        if hot.size:
            self._work_off(
                servers, hot, edges, past, all_rows, level, before, unfinished, capacity, positions,
                completed, waited_us,
            )  # fmt: skip
        waited_us[:, servers.order] += completed[:, servers.order] * hidden_us[:, servers.column]
        served_us = np.zeros_like(rows)
        served_us[:, servers.order] = completed[:, servers.order] * servers.row_us
        if self._is_random:
            self._serve_drawn(servers, served_us, completed, all_rows, all_work_us, past)
        self._ahead_rows, self._ahead_work_us = rows, work_us
        self._ahead = Ahead(ends_us, arrived, completed, waited_us, served_us, positions, servers.server_of)
        return self._ahead

    def _work_off(
        self,
        servers: _Servers,
        hot: Indices,
        edges: FloatArray,
        past: int,
        rows: FloatArray,
        level: FloatArray,
        before: FloatArray,
        unfinished: FloatArray,
        capacity: FloatArray,
        positions: FloatArray,
        completed: FloatArray,
        waited_us: FloatArray,
    ) -> None:
        """Servers that have a queue at some time. Each piece is busy up to a moment, and may be idle after
        it: rows that are complete by the busy part waited, the others did not."""
        pieces = len(before)
        lengths = np.diff(edges[past:])[:, None]
        left, ends = before[:, hot], unfinished[:, hot]
        coming = np.diff(level[past:], axis=0)[:, hot]
        is_drained = ends == 0
        slack = capacity[hot] * lengths - coming
        with np.errstate(divide="ignore", invalid="ignore"):
            until = np.where(left > 0, left / slack, 0.0)
        # Share of the piece that is busy.
        busy = np.where(is_drained, np.clip(until, 0.0, 1.0), 1.0)
        position = np.arange(past, past + pieces, dtype=np.float64)[:, None] + busy
        done = level[past + 1 :][:, hot] - ends
        steps = np.arange(len(level), dtype=np.float64)
        placed_position = self._position[servers.order]
        for column, server in enumerate(hot.tolist()):
            behind = ~is_drained[:, column]
            if not behind.any():
                continue
            # The oldest row stands in the middle of a piece: what is before it there holds no work.
            first = float(placed_position[servers.column == server].min())
            piece = int(first)
            points, levels = steps[piece:], level[piece:, server]
            if first > piece:
                points = points.copy()
                points[0] = first
            position[behind, column] = np.interp(done[behind, column], levels, points)
        positions[:, hot] = np.where(is_drained, positions[:, hot], position)

        column_of = np.full(len(servers.keys), NOWHERE)
        column_of[hot] = np.arange(len(hot))
        chosen = column_of[servers.column] != NOWHERE
        shards = servers.order[chosen]
        columns = column_of[servers.column[chosen]]
        mine = rows[:, shards]
        count = np.zeros((len(mine) + 1, len(shards)))
        np.cumsum(mine, axis=0, out=count[1:])
        # Times of arrival, summed: relative to the first edge, so that nothing is lost to rounding.
        widths = np.diff(edges)[:, None]
        starts = (edges[:-1] - edges[0])[:, None]
        times = np.zeros_like(count)
        np.cumsum(mine * (starts + widths / 2), axis=0, out=times[1:])

        def upto(at: FloatArray) -> tuple[FloatArray, FloatArray]:
            """(rows, summed times of arrival) up to positions `at`, [any, shards]."""
            piece = np.minimum(at.astype(np.int64), len(mine) - 1)
            part = at - piece
            here = np.take_along_axis(mine, piece, axis=0) * part
            return (
                np.take_along_axis(count, piece, axis=0) + here,
                np.take_along_axis(times, piece, axis=0)
                + here * (starts[piece, 0] + widths[piece, 0] * part / 2),
            )

        begun_rows, begun_times = upto(self._position[shards][None, :])
        # Where a shard is ahead of its server (it came from one that was faster), it stays where it is.
        busy_rows, busy_times = upto(np.maximum(position[:, columns], self._position[shards]))
        drained = is_drained[:, columns]
        end_rows = np.where(drained, count[past + 1 :], busy_rows)
        end_times = np.where(drained, times[past + 1 :], busy_times)
        previous_rows = np.concatenate((begun_rows, end_rows[:-1]))
        previous_times = np.concatenate((begun_times, end_times[:-1]))
        late = np.maximum(busy_rows - previous_rows, 0.0)
        middle = starts[past:] + widths[past:] * busy[:, columns] / 2
        completed[:, shards] = np.maximum(end_rows - previous_rows, 0.0)
        # Water waits for itself: spread over its slot, half of a row is there before the other half.
        itself = servers.self_us[chosen] * busy[:, columns]
        waited_us[:, shards] = np.maximum(late * (middle - itself) - (busy_times - previous_times), 0.0)

    def _hidden_us(
        self, servers: _Servers, edges: FloatArray, rows: FloatArray, past: int, capacity: FloatArray
    ) -> FloatArray:
        """[pieces, servers], what a row waits within pieces; from the load over about the last second."""
        placed = rows[:, servers.order]
        ends = np.arange(past + 1, len(edges))
        since = np.minimum(np.searchsorted(edges, edges[ends] - RATE_US * (1 + 1e-9)), ends - 1)
        spans_us = (edges[ends] - edges[since])[:, None]

        def rates(values: FloatArray) -> FloatArray:
            sums = np.zeros((len(values) + 1, len(servers.keys)))
            np.cumsum(servers.sums(values), axis=0, out=sums[1:])
            return (sums[ends] - sums[since]) / spans_us

        work = rates(placed * servers.row_us)
        spread_us = rates(placed * servers.row_us2)
        width = np.where(capacity > 0, capacity, servers.width)
        return hidden_waiting_us(work / width, spread_us, float(self._slot_us), servers.width)

    def _drawn(self, rows: FloatArray) -> FloatArray:
        """[pieces, shards], work of `rows` together on a core of speed 1: sums of single rows' work are all
        but gamma distributed, and exactly so where it is exponential."""
        if not self._is_random:
            return rows
        shape = self._means_us**2 / self._variances_us2
        scale_us = self._variances_us2 / self._means_us
        return self._rng.standard_gamma(rows * shape) * scale_us

    def _serve_drawn(
        self,
        servers: _Servers,
        served_us: FloatArray,
        completed: FloatArray,
        rows: FloatArray,
        work_us: FloatArray,
        past: int,
    ) -> None:
        """Work as drawn, in place of its mean: a shard's mean over what is waiting and comes, so that sums
        are right while single pieces are smoothed."""
        total_rows = rows.sum(axis=0)
        means_us = np.divide(work_us.sum(axis=0), total_rows, out=self._means_us.copy(), where=total_rows > 0)
        shard_speed = np.ones(len(means_us))
        shard_speed[servers.order] = servers.speed[servers.column]
        np.multiply(completed, means_us / shard_speed, out=served_us)

    # --- settled ------------------------------------------------------------------------------------

    def settle(self, pieces: int) -> None:
        """The first `pieces` of the last look have come true."""
        ahead, servers = self._ahead, self._servers
        if ahead is None or servers is None:
            raise ValueError("nothing was looked at")
        self._ahead = None
        begin_us = self.now_us
        past = len(self._rows)
        arrived, completed = ahead.arrived[:pieces], ahead.completed[:pieces]
        waited_us, served_us = ahead.waited_us[:pieces], ahead.served_us[:pieces]
        latency_us = waited_us + served_us
        self._record.add(int(begin_us // self._slot_us), arrived, completed, latency_us)
        if servers.is_remote.any():
            self._record.remote_rows += float(completed[:, servers.is_remote].sum())
        self.arrived += arrived.sum(axis=0)
        self.completed += completed.sum(axis=0)
        self.waited_us += waited_us.sum(axis=0)
        self.served_us += served_us.sum(axis=0)
        self.now_us = float(ahead.ends_us[pieces - 1])
        placed = servers.order
        self._position[placed] = np.maximum(
            self._position[placed], ahead.positions[pieces - 1][servers.column]
        )
        self._rows = np.concatenate((self._rows, self._ahead_rows[:pieces]))
        self._work_us = (
            np.concatenate((self._work_us, self._ahead_work_us[:pieces])) if self._is_random else self._rows
        )
        self._edges = np.concatenate((self._edges, ahead.ends_us[:pieces]))
        # Forget what nobody waits for any more, but for what loads are measured over.
        recent = int(np.searchsorted(self._edges, self.now_us - RATE_US))
        kept = min(int(self._position.min()), recent, past + pieces)
        if kept > 0:
            self._rows, self._work_us = self._rows[kept:], self._work_us[kept:]
            self._edges = self._edges[kept:]
            self._position -= kept

    def queued(self) -> FloatArray:
        """[shards], rows that wait."""
        return np.maximum(self.arrived - self.completed, 0.0)

    def backlog_us(self, executor: int) -> float:
        """How long `executor` takes for what it has queued: its slowest task, with nothing new."""
        servers = self._current()
        waiting_us = self.queued()[servers.order] * servers.row_us
        longest = 0.0
        for column, key in enumerate(servers.keys):
            if self.station.servers[key].executor == executor:
                mine = waiting_us[servers.column == column].sum() / servers.width[column]
                longest = max(longest, float(mine))
        return longest

    def room_share(self, coming: FloatArray, length_us: float, rows_max: float) -> float:
        """The share of `coming` [shards] that leaves no executor with more than `rows_max` rows after
        `length_us`, 0 to 1. A task that lags behind others of its executor shows up in the next one."""
        executors = self.station.shard_executor
        size = int(executors.max()) + 1
        queued = np.bincount(executors, weights=self.queued(), minlength=size)
        comes = np.bincount(executors, weights=coming, minlength=size)
        work_us = np.bincount(executors, weights=(self.queued() + coming) * self._means_us, minlength=size)
        servers = self._current()
        speed = np.zeros(size)
        owner = [self.station.servers[key].executor for key in servers.keys]
        np.add.at(speed, owner, servers.speed * servers.capacity)
        some = comes > 0
        mean_us = np.divide(work_us, queued + comes, out=np.ones(size), where=some)
        room = rows_max - queued + speed * length_us / mean_us
        return float(np.clip(np.min(room[some] / comes[some], initial=1.0), 0.0, 1.0))

    def _current(self) -> _Servers:
        if self._servers is None or self._version != self.station.version:
            means_us = self._means_us
            self._servers = _Servers(self.station, means_us, means_us**2 + self._variances_us2)
            self._version = self.station.version
        return self._servers
