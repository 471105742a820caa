"""What a worker's process has counted itself, out of totals that come and go: a shard's go with it when it
moves away. Counters of Prometheus must never fall.

Neighbours: `main_process` reads the totals, `prometheus` shows the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.dataflow.on_error import dead_letters_of, held_rows_of
from penstock.dataflow.plan import late_rows_of
from penstock.metrics.rows import TaskRow
from penstock.store.codec import decode_counts
from penstock.store.port import ShardCounters


@dataclass(frozen=True, slots=True)
class WorkerReading:
    """What the main process last read: the rows of its own tasks, and operator -> shard -> counters of its
    executors' shards."""

    tasks: tuple[TaskRow, ...]
    shards: Mapping[str, Mapping[str, ShardCounters]]


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows since the process started, by operator (`out` by operator, step or sink: rows that came out of it
    and were committed). `late` has the operators to which some came behind their watermark, `dead` those on
    whose rows code has failed."""

    arrived: Mapping[str, int]
    completed: Mapping[str, int]
    out: Mapping[str, int]
    late: Mapping[str, int]
    dead: Mapping[str, int]


class WorkerCounts:
    """Takes readings one after the other; belongs to one thread.

    A shard that had an owner before it came counts from its first reading on: what it had was counted by
    others, and what it got before that reading is counted by nobody.
    """

    def __init__(self) -> None:
        self._arrived: dict[str, int] = {}
        self._completed: dict[str, int] = {}
        self._out: dict[str, int] = {}
        self._shards: dict[str, ShardCounters] = {}

    def read(self, reading: WorkerReading) -> Counts:
        """The counts with what a reading adds to the ones before."""
        for operator, shards in reading.shards.items():
            grown = [_grown(self._shards.get(shard), now) for shard, now in shards.items()]
            _add(self._arrived, operator, sum(arrived for arrived, _ in grown))
            _add(self._completed, operator, sum(completed for _, completed in grown))
            for shard, now in shards.items():
                self._count_out(shard, now)
        self._shards = {shard: now for shards in reading.shards.values() for shard, now in shards.items()}
        out, late = dict(self._out), {}
        for operator in self._arrived:
            rows = out.pop(late_rows_of(operator), None)
            if rows is not None:
                late[operator] = rows
        dead = {name: out.pop(dead_letters_of(name)) for name in list(out) if dead_letters_of(name) in out}
        for name in list(out):
            out.pop(held_rows_of(name), None)
        return Counts(dict(self._arrived), dict(self._completed), out, late, dead)

    def _count_out(self, shard: str, now: ShardCounters) -> None:
        totals = decode_counts(now.counts)
        before = self._shards.get(shard)
        if before is None:
            known = {} if now.epoch <= 1 else totals
        elif before.generation == now.generation:
            known = decode_counts(before.counts)
        else:
            known = totals
        for name, rows in totals.items():
            _add(self._out, name, rows - known.get(name, 0))


def _grown(before: ShardCounters | None, now: ShardCounters) -> tuple[int, int]:
    """Rows (arrived, completed) since the reading before."""
    if before is None:
        return (now.arrived_rows, now.completed_rows) if now.epoch <= 1 else (0, 0)
    if before.generation != now.generation:
        return 0, 0
    return now.arrived_rows - before.arrived_rows, now.completed_rows - before.completed_rows


def _add(counts: dict[str, int], name: str, rows: int) -> None:
    counts[name] = counts.get(name, 0) + max(0, rows)
