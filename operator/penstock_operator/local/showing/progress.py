"""Reads what workers and store have counted, and turns readings into one frozen `Progress`.

Rows are counted where they are committed, with the shards: totals are right to the row, whatever was killed.
Latencies are told by tasks. Rates and latencies are differences over the last `WINDOW_S` seconds. What is not
known is None, never zero (promise 7): no difference reaches across a store generation, and a task's row
counts only from its own writer's start. Neighbours: `local_run` takes the readings, `live_view`, `log_lines`
and `run_summary` show them, `console_delivery` adds what it printed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from penstock.metrics.heard_rows import HeardRows
from penstock.metrics.latency import LatencyHistogram, merged
from penstock.metrics.rows import TaskRow, WorkerRow, histogram_of, is_same_writer, unpack
from penstock.store.codec import decode_counts
from penstock.store.port import ShardCounters
from penstock_operator.local.showing.plan_outline import OutlinedOperator

WINDOW_S = 5.0
TREND_INTERVAL_S = 1.0
TREND_POINTS = 24
ROW_AGE_US_MAX = 3_000_000
"""A task writes its row at least once a second; an older one tells nothing about now."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the store. `shards` maps a stage to its shards' counters, in the order of their names
    (None for a shard that the store does not know); `rows` are the metric rows by name."""

    at_s: float
    now_us: int
    shards: Mapping[str, Sequence[ShardCounters | None]]
    rows: Mapping[str, TaskRow | WorkerRow]


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """One line of the table. Rates per second, latencies in milliseconds from the source to here.

    `records` are rows committed since the start of this run: worked by a stage, put out by a step, given to a
    sink. What only a stage has is None for a fused operator.
    """

    name: str
    kind: str
    stage: str
    rate_per_s: float | None
    p50_ms: float | None
    p99_ms: float | None
    records: int | None
    inbox_entries: int | None
    inbox_rows: int | None
    workers: int | None
    executors: int | None
    tasks: int | None
    shards: int | None
    trend: tuple[float | None, ...]


def unknown(line: OperatorProgress) -> OperatorProgress:
    """A line of which nothing can be seen now, but what the schedule says."""
    return replace(
        line,
        rate_per_s=None,
        p50_ms=None,
        p99_ms=None,
        records=None,
        inbox_entries=None,
        inbox_rows=None,
        tasks=None,
    )


@dataclass(frozen=True, slots=True)
class OperatorTotal:
    """One operator over the whole run."""

    name: str
    kind: str
    records: int | None
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@dataclass(frozen=True, slots=True)
class Placement:
    """What the schedule says of one stage: executors by worker, and the number of its shards."""

    executors: Mapping[str, str]
    shards: int


def task_and_worker_rows(
    packed: Mapping[str, bytes], heard: HeardRows, now_us: int, since_us: int
) -> dict[str, TaskRow | WorkerRow]:
    """The rows that were heard in this run, which began at `since_us`, stamped with when; those of an earlier
    one are still in the store."""
    rows: dict[str, TaskRow | WorkerRow] = {}
    for name, data in packed.items():
        if name.startswith(("task:", "worker:")):
            row = unpack(name, data)
            if isinstance(row, TaskRow | WorkerRow):
                at_us = heard.at_us(name, data, row.at_us, now_us)
                if at_us >= since_us:
                    rows[name] = structs.replace(row, at_us=at_us)
    heard.looked(packed)
    return rows


@dataclass(slots=True)
class _Sample:
    """What one reading adds up to: totals of the store (`fused` None: a shard is not known), and `latency`
    over all writers of this run."""

    at_s: float
    completed: dict[str, int | None]
    fused: dict[str, int] | None
    delivered: dict[str, int]
    latency: dict[str, LatencyHistogram]


@dataclass(slots=True)
class _Writers:
    """Latencies over all writers of task rows: those that write now, and those that were replaced."""

    now: dict[str, TaskRow] = field(default_factory=dict)
    past_latency: dict[str, LatencyHistogram] = field(default_factory=dict)

    def take(self, rows: Mapping[str, TaskRow]) -> None:
        for name, row in rows.items():
            before = self.now.get(name)
            if before is not None and not is_same_writer(before, row):
                for operator, counts in before.latency.items():
                    self.past_latency.setdefault(operator, LatencyHistogram()).add(counts)
            self.now[name] = row

    def latency(self) -> dict[str, LatencyHistogram]:
        names = {*self.past_latency, *(name for row in self.now.values() for name in row.latency)}
        return {
            name: merged(
                [
                    self.past_latency.get(name, LatencyHistogram()),
                    *(histogram_of(row, name) for row in self.now.values()),
                ]
            )
            for name in names
        }


class ProgressReader:
    """Keeps the readings of the window. `delivered` are operators whose rows the command itself writes
    (console sinks): their counts come by `deliver`, not from task rows."""

    def __init__(self, operators: Sequence[OutlinedOperator], delivered: Sequence[str] = ()) -> None:
        self._operators = tuple(operators)
        self._delivered_rows = dict.fromkeys(delivered, 0)
        self._delivered_latency = {name: LatencyHistogram() for name in delivered}
        self._writers = _Writers()
        self._samples: deque[_Sample] = deque()
        self._generation: int | None = None
        self._first: dict[str, int] = {}
        self._first_fused: dict[str, int] | None = None
        self._latest: Reading | None = None
        self._trends: dict[str, deque[float | None]] = {
            operator.name: deque(maxlen=TREND_POINTS) for operator in operators
        }
        self._trend_due_s: float | None = None

    def deliver(self, sink: str, ages_us: Sequence[int]) -> None:
        """The command wrote rows of `sink`, so old (now - source timestamp)."""
        self._delivered_rows[sink] += len(ages_us)
        for age_us in ages_us:
            self._delivered_latency[sink].record(age_us)

    def take(self, reading: Reading) -> None:
        """Add a reading; they come in the order of time."""
        self._latest = reading
        self._writers.take({name: row for name, row in reading.rows.items() if isinstance(row, TaskRow)})
        generations = {
            c.generation for counters in reading.shards.values() for c in counters if c is not None
        }
        generation = max(generations, default=None)
        if generation != self._generation:
            self._samples.clear()
            self._generation = generation
        completed = {stage: _completed(counters) for stage, counters in reading.shards.items()}
        for stage, count in completed.items():
            if count is not None:
                self._first.setdefault(stage, count)
        fused = _fused(reading.shards)
        if self._first_fused is None:
            self._first_fused = fused
        self._samples.append(
            _Sample(
                reading.at_s,
                completed,
                fused,
                dict(self._delivered_rows),
                {
                    **self._writers.latency(),
                    **{n: LatencyHistogram(dict(h.counts)) for n, h in self._delivered_latency.items()},
                },
            )
        )
        while len(self._samples) > 2 and self._samples[1].at_s <= reading.at_s - WINDOW_S:
            self._samples.popleft()
        if self._trend_due_s is None or reading.at_s >= self._trend_due_s:
            self._trend_due_s = reading.at_s + TREND_INTERVAL_S
            for operator in self._operators:
                self._trends[operator.name].append(self._rate_per_s(operator))

    def progress(self, placements: Mapping[str, Placement]) -> tuple[OperatorProgress, ...]:
        """The table as it stands, in the plan's order."""
        return tuple(self._line(operator, placements.get(operator.name)) for operator in self._operators)

    def totals(self) -> tuple[OperatorTotal, ...]:
        """Every operator over the whole run."""
        latency = self._samples[-1].latency if self._samples else {}
        return tuple(
            OperatorTotal(
                operator.name,
                operator.kind,
                self._records(operator),
                _ms(latency.get(operator.name, LatencyHistogram()).quantile_us(0.5)),
                _ms(latency.get(operator.name, LatencyHistogram()).quantile_us(0.99)),
                _ms(latency.get(operator.name, LatencyHistogram()).max_us()),
            )
            for operator in self._operators
        )

    def _line(self, operator: OutlinedOperator, placement: Placement | None) -> OperatorProgress:
        latency = self._latency(operator)
        waiting = self._waiting(operator)
        return OperatorProgress(
            name=operator.name,
            kind=operator.kind,
            stage=operator.stage,
            rate_per_s=self._rate_per_s(operator),
            p50_ms=_ms(latency.quantile_us(0.5)) if latency else None,
            p99_ms=_ms(latency.quantile_us(0.99)) if latency else None,
            records=self._records(operator),
            inbox_entries=waiting[0] if waiting else None,
            inbox_rows=waiting[1] if waiting else None,
            workers=len(set(placement.executors.values())) if placement else None,
            executors=len(placement.executors) if placement else None,
            tasks=self._tasks(placement) if placement else None,
            shards=placement.shards if placement else None,
            trend=tuple(self._trends[operator.name]),
        )

    def _count(self, sample: _Sample, operator: OutlinedOperator) -> int | None:
        if operator.is_stage:
            return sample.completed.get(operator.name)
        if operator.name in sample.delivered:
            return sample.delivered[operator.name]
        return None if sample.fused is None else sample.fused.get(operator.name, 0)

    def _records(self, operator: OutlinedOperator) -> int | None:
        if not self._samples:
            return None
        count = self._count(self._samples[-1], operator)
        if count is None or operator.name in self._delivered_rows:
            return count
        first = self._first if operator.is_stage else self._first_fused or {}
        return count - first.get(operator.name, 0)

    def _rate_per_s(self, operator: OutlinedOperator) -> float | None:
        if len(self._samples) < 2:
            return None
        first, last = self._samples[0], self._samples[-1]
        count, before = self._count(last, operator), self._count(first, operator)
        if count is None or before is None or last.at_s <= first.at_s:
            return None
        return (count - before) / (last.at_s - first.at_s)

    def _latency(self, operator: OutlinedOperator) -> LatencyHistogram | None:
        if len(self._samples) < 2 or not self._is_told(operator):
            return None
        now = self._samples[-1].latency.get(operator.name)
        before = self._samples[0].latency.get(operator.name)
        if now is None:
            return None
        return now.since(before) if before is not None else now

    def _is_told(self, operator: OutlinedOperator) -> bool:
        """Whether some task that runs the operator has spoken lately, or the command counts it itself."""
        if operator.name in self._delivered_rows:
            return True
        latest = self._latest
        return latest is not None and any(
            isinstance(row, TaskRow)
            and latest.now_us - row.at_us <= ROW_AGE_US_MAX
            and (operator.name in row.rows or operator.name in row.latency)
            for row in latest.rows.values()
        )

    def _waiting(self, operator: OutlinedOperator) -> tuple[int, int] | None:
        """(entries, rows) in a keyed stage's inboxes."""
        if operator.kind != "keyed" or self._latest is None:
            return None
        counters = self._latest.shards.get(operator.name)
        if counters is None:
            return None
        known = [c for c in counters if c is not None]
        if len(known) != len(counters):
            return None
        return sum(c.inbox_entries for c in known), sum(c.arrived_rows - c.completed_rows for c in known)

    def _tasks(self, placement: Placement) -> int | None:
        """Resident tasks that run now, as the main processes of this stage's workers tell."""
        if self._latest is None:
            return None
        told = [
            row.tasks.get(executor)
            for executor, worker in placement.executors.items()
            for row in self._latest.rows.values()
            if isinstance(row, WorkerRow)
            and row.worker == worker
            and self._latest.now_us - row.at_us <= ROW_AGE_US_MAX
        ]
        return sum(count or 0 for count in told) if told else None


def _completed(counters: Sequence[ShardCounters | None]) -> int | None:
    known = [c.completed_rows for c in counters if c is not None]
    return sum(known) if len(known) == len(counters) else None


def _fused(shards: Mapping[str, Sequence[ShardCounters | None]]) -> dict[str, int] | None:
    """Totals of what came out by name, over all shards; None where one is not known."""
    totals: dict[str, int] = {}
    for counters in shards.values():
        for known in counters:
            if known is None:
                return None
            for name, rows in decode_counts(known.counts).items():
                totals[name] = totals.get(name, 0) + rows
    return totals


def _ms(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds / 1000
