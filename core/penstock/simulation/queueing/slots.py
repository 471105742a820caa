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
from itertools import pairwise

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
    """One look: [pieces, shards] of what each piece adds, and [pieces, servers] the position at its end."""

    ends_us: FloatArray
    arrived: FloatArray
    completed: FloatArray
    waited_us: FloatArray
    served_us: FloatArray
    positions: FloatArray


class _Servers:
    """Who works what, as arrays, until the station changes."""

    def __init__(self, station: Station, means_us: FloatArray, moments_us2: FloatArray) -> None:
        order = np.argsort(station.shard_server, kind="stable")
        on = station.shard_server[order]
        under_way = int(np.searchsorted(on, NOWHERE, side="right"))
        self.order: Indices = order[under_way:]
        """Shards that have a server, those of one server side by side."""
        on = on[under_way:]
        is_first = np.ones(len(on), dtype=bool)
        np.not_equal(on[1:], on[:-1], out=is_first[1:])
        self.starts = np.flatnonzero(is_first)
        self.keys: list[int] = on[self.starts].tolist()
        self.column: Indices = np.cumsum(is_first) - 1
        """[placed shards in order] -> column."""
        self.shards = len(station.shard_server)
        servers = [station.servers[key] for key in self.keys]
        self.width = np.array([server.width for server in servers], dtype=np.float64)
        shares = station.remote_shares()
        speed = np.array(
            [server.speed * shares.get(key, 1.0) for key, server in zip(self.keys, servers, strict=True)]
        )
        self.speed = speed
        self.capacity = np.array([0.0 if station.is_idle(key) else 1.0 for key in self.keys]) * self.width
        self.shard_speed = shard_speed = speed[self.column]
        self.row_us = means_us[self.order] / shard_speed
        self.row_us2 = moments_us2[self.order] / shard_speed**2
        spreads_us = moments_us2 / means_us
        self.spread_us = spreads_us[0] / speed if (spreads_us == spreads_us[0]).all() else None
        """[servers], E[S^2] / E[S], where that is the same for all shards."""
        bounds = [*self.starts.tolist(), len(self.order)]
        self.slices = [slice(a, b) for a, b in pairwise(bounds)]
        self.self_us = self.row_us2 / self.row_us / 2 / self.width[self.column]
        remote: npt.NDArray[np.bool_] = np.array([server.is_remote for server in servers], dtype=bool)
        self.is_remote = np.zeros(self.shards, dtype=bool)
        if remote.any():
            self.is_remote[self.order] = remote[self.column]

    def spread(self, values: FloatArray) -> FloatArray:
        """[pieces, placed shards in order] -> [pieces, shards]; shards under way have zeros."""
        out = np.zeros((len(values), self.shards))
        out[:, self.order] = values
        return out

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
        if self._is_random:
            self._shape = self._means_us**2 / self._variances_us2
            self._scale_us = self._variances_us2 / self._means_us
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
        order = servers.order
        drawn_us = self._drawn(rows)
        past = len(self._rows)
        edges = np.concatenate((self._edges, ends_us))
        # Of the past, what is not complete anywhere, and what loads are measured over.
        oldest = min(int(self._position.min()), past)
        recent = self._recent()
        begin = min(oldest, recent)
        placed = np.concatenate((self._rows[begin:], rows))[:, order]
        work = servers.sums(placed * servers.row_us)
        hidden_us = self._hidden_us(servers, edges[begin:], placed, work, past - begin)
        # From here on everything is counted from `oldest`.
        edges, placed, work = edges[oldest:], placed[oldest - begin :], work[oldest - begin :]
        old = past - oldest
        position = self._position[order] - oldest
        placed_us: FloatArray | None = None
        if self._is_random:
            placed_us = np.concatenate((self._work_us[oldest:], drawn_us))[:, order] / servers.shard_speed
        if old or placed_us is not None:
            left = placed * servers.row_us if placed_us is None else placed_us
            if old:
                left = left.copy()
                left[:old] *= np.clip(np.arange(1, old + 1)[:, None] - position, 0.0, 1.0)
            work = servers.sums(left)
        completed, waited_us, served_us, positions = self._work_off(
            servers, edges, placed, placed_us, work, position, old
        )
        waited_us += completed * hidden_us[:, servers.column]
        self._ahead_rows, self._ahead_work_us = rows, drawn_us
        self._ahead = Ahead(
            ends_us,
            rows,
            servers.spread(completed),
            servers.spread(waited_us),
            servers.spread(served_us),
            positions + oldest,
        )
        return self._ahead

    def _work_off(
        self,
        servers: _Servers,
        edges: FloatArray,
        rows: FloatArray,
        rows_us: FloatArray | None,
        work: FloatArray,
        position: FloatArray,
        old: int,
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Rows completed, their waiting and their work, [pieces, placed shards in order], and the servers'
        positions at the end of each piece.

        `rows` and `work` begin with `old` pieces of the past, `work` without what is complete; `rows_us` is
        the work of `rows` where that is drawn; `position` is the shards' in them. A piece is busy up to a
        moment, and idle after it: rows that are complete by then have waited, the others have not.
        """
        level = np.zeros((len(work) + 1, work.shape[1]))
        np.cumsum(work, axis=0, out=level[1:])
        lengths = (edges[old + 1 :] - edges[old:-1])[:, None]
        capacity = servers.capacity * self.throttle
        coming = work[old:]
        slack = lengths * capacity - coming
        unfinished = level[old] - np.cumsum(slack, axis=0)
        unfinished -= np.minimum(np.minimum.accumulate(unfinished, axis=0), 0.0)
        unfinished[unfinished < _NOTHING_US] = 0.0
        before = np.concatenate((level[old : old + 1], unfinished[:-1]))
        before[before < _NOTHING_US] = 0.0
        pieces = len(before)
        first = np.arange(old, old + pieces, dtype=np.float64)[:, None]
        if not before.any() and not unfinished.any():
            # Without a queue rows are complete in the piece in which they come.
            served_us = rows[old:] * servers.row_us if rows_us is None else rows_us[old:]
            return rows[old:], np.zeros_like(rows[old:]), served_us, first + np.ones_like(coming)

        is_drained = unfinished == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            until = np.where(before > 0, before / slack, 0.0)
        busy = np.where(is_drained, np.clip(until, 0.0, 1.0), 1.0)
        reached = first + busy
        done = level[old + 1 :] - unfinished
        steps = np.arange(len(level), dtype=np.float64)
        for server in np.flatnonzero(~is_drained.all(axis=0)).tolist():
            # The oldest row stands in the middle of a piece: what is before it there holds no work.
            oldest = float(position[servers.slices[server]].min())
            start = int(oldest)
            points = steps[start:]
            if oldest > start:
                points = points.copy()
                points[0] = oldest
            behind = ~is_drained[:, server]
            reached[behind, server] = np.interp(done[behind, server], level[start:, server], points)
        positions = np.where(is_drained, first + 1, reached)

        shards = rows.shape[1]
        count = np.zeros((len(rows) + 1, shards))
        np.cumsum(rows, axis=0, out=count[1:])
        # Times of arrival, summed: relative to the first edge, so that nothing is lost to rounding.
        starts = edges[:-1] - edges[0]
        widths = edges[1:] - edges[:-1]
        times = np.zeros_like(count)
        np.cumsum(rows * (starts + widths / 2)[:, None], axis=0, out=times[1:])
        columns = np.arange(shards)
        until = np.maximum(reached[:, servers.column], position)
        # Where a shard is ahead of its server (it came from one that was faster), it stays where it is.
        at = np.concatenate((position[None, :], until))
        piece = np.minimum(at.astype(np.int64), len(rows) - 1)
        part = at - piece
        flat = piece * shards + columns
        here = rows.take(flat) * part
        upto_rows = count.take(flat) + here
        upto_times = times.take(flat) + here * (starts.take(piece) + widths.take(piece) * part / 2)
        drained = is_drained[:, servers.column]
        completed, previous_rows = _steps(upto_rows, count[old + 1 :], drained)
        _, previous_times = _steps(upto_times, times[old + 1 :], drained)
        late = np.maximum(upto_rows[1:] - previous_rows, 0.0)
        shard_busy = busy[:, servers.column]
        middle = starts[old:, None] + widths[old:, None] * shard_busy / 2
        # Water waits for itself: spread over its slot, half of a row is there before the other half.
        itself = servers.self_us * shard_busy
        waited_us = np.maximum(late * (middle - itself) - (upto_times[1:] - previous_times), 0.0)
        if rows_us is None:
            return completed, waited_us, completed * servers.row_us, positions
        spent = np.zeros((len(rows_us) + 1, shards))
        np.cumsum(rows_us, axis=0, out=spent[1:])
        served_us, _ = _steps(spent.take(flat) + rows_us.take(flat) * part, spent[old + 1 :], drained)
        return completed, waited_us, served_us, positions

    def _recent(self) -> int:
        """The first piece of the past that loads are measured over."""
        return int(np.searchsorted(self._edges, self.now_us - RATE_US * (1 + 1e-9)))

    def _hidden_us(
        self, servers: _Servers, edges: FloatArray, placed: FloatArray, work: FloatArray, past: int
    ) -> FloatArray:
        """[pieces, servers], what a row waits within pieces; from the load over about the last second."""
        ends = np.arange(past + 1, len(edges))
        since = np.minimum(np.searchsorted(edges, edges[past + 1 :] - RATE_US * (1 + 1e-9)), ends - 1)
        spans_us = (edges[past + 1 :] - edges[since])[:, None]

        def rates(values: FloatArray) -> FloatArray:
            sums = np.zeros((len(values) + 1, values.shape[1]))
            np.cumsum(values, axis=0, out=sums[1:])
            return (sums[past + 1 :] - sums[since]) / spans_us

        load = rates(work)
        if servers.spread_us is not None:
            spread_us = load * servers.spread_us
        else:
            spread_us = rates(servers.sums(placed * servers.row_us2))
        width = np.where(servers.capacity > 0, servers.capacity * self.throttle, servers.width)
        return hidden_waiting_us(
            load / np.maximum(width, 1e-3), spread_us, float(self._slot_us), servers.width
        )

    def _drawn(self, rows: FloatArray) -> FloatArray:
        """[pieces, shards], work of `rows` together on a core of speed 1: sums of single rows' work are all
        but gamma distributed, and exactly so where it is exponential."""
        if not self._is_random:
            return rows
        return self._rng.standard_gamma(rows * self._shape) * self._scale_us

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
        kept = min(int(self._position.min()), self._recent(), past + pieces)
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


def _steps(
    upto: FloatArray, all_of: FloatArray, drained: npt.NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """(what each piece adds, what was before it) of a sum over rows in the order of arrival: `upto` [1 +
    pieces] has it at the beginning and up to where each piece's busy part gets, `all_of` with all that has
    come by its end, which is what counts where it is `drained`."""
    ends = np.where(drained, all_of, upto[1:])
    before = np.concatenate((upto[:1], ends[:-1]))
    return np.maximum(ends - before, 0.0), before
