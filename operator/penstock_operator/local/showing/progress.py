"""Reads what workers and store have counted, and turns readings into one frozen `Progress`.

Rates and latencies are those of `penstock.figures`, over the last `WINDOW_S` seconds; here come the totals
since the start of the run, what waits, and the trend. What is not known is None, never zero (promise 7).
Neighbours: `local_run` takes the readings, `live_view`, `log_lines` and `run_summary` show them,
`console_delivery` adds what it printed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from penstock.figures.rates import (
    Figures,
    figures_of_delivered,
    figures_of_fused,
    figures_of_stage,
    milliseconds,
    rows_put_out,
    rows_worked,
)
from penstock.figures.samples import Sample, Samples, next_sample, operators_told, sampled, within_window
from penstock.metrics.heard_rows import HeardRows
from penstock.metrics.latency import LatencyHistogram
from penstock.metrics.rows import TaskRow, WorkerRow, unpack
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


class ProgressReader:
    """Keeps the samples of the window. `delivered` are operators whose rows the command itself writes
    (console sinks): their counts come by `deliver`, not from task rows."""

    def __init__(self, operators: Sequence[OutlinedOperator], delivered: Sequence[str] = ()) -> None:
        self._operators = tuple(operators)
        self._delivered_rows = dict.fromkeys(delivered, 0)
        self._delivered_latency = {name: LatencyHistogram() for name in delivered}
        self._samples: Samples = ()
        self._generation: int | None = None
        self._shards: dict[str, list[str]] = {}
        self._first: dict[str, int] = {}
        """Operator -> its total when it was first known."""
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
        self._shards = {
            stage: [f"{stage}/{number}" for number in range(len(counters))]
            for stage, counters in reading.shards.items()
        }
        sample = self._sample(reading)
        generation = max((shard.generation for shard in sample.shards.values()), default=None)
        earlier = self._samples if generation == self._generation else ()
        self._generation = generation
        self._samples = within_window((*earlier, sample), WINDOW_S)
        for operator in self._operators:
            if operator.name in self._first:
                continue
            count = self._count(sample, operator)
            if count is not None:
                self._first[operator.name] = count
        if self._trend_due_s is None or reading.at_s >= self._trend_due_s:
            self._trend_due_s = reading.at_s + TREND_INTERVAL_S
            for operator in self._operators:
                self._trends[operator.name].append(self._figures(operator).rate_per_s)

    def _sample(self, reading: Reading) -> Sample:
        shards = {
            name: sampled("", counters)
            for stage, names in self._shards.items()
            for name, counters in zip(names, reading.shards[stage], strict=True)
            if counters is not None
        }
        rows = {("", name): row for name, row in reading.rows.items() if isinstance(row, TaskRow)}
        heard = operators_told(row for row in rows.values() if reading.now_us - row.at_us <= ROW_AGE_US_MAX)
        before = self._samples[-1] if self._samples else None
        sample = next_sample(before, reading.at_s, shards, rows, heard)
        delivered = {n: LatencyHistogram(dict(h.counts)) for n, h in self._delivered_latency.items()}
        return replace(
            sample,
            latency={**sample.latency, **delivered},
            heard=sample.heard | delivered.keys(),
            delivered=dict(self._delivered_rows),
        )

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
                milliseconds(latency.get(operator.name, LatencyHistogram()).quantile_us(0.5)),
                milliseconds(latency.get(operator.name, LatencyHistogram()).quantile_us(0.99)),
                milliseconds(latency.get(operator.name, LatencyHistogram()).max_us()),
            )
            for operator in self._operators
        )

    def _line(self, operator: OutlinedOperator, placement: Placement | None) -> OperatorProgress:
        figures = self._figures(operator)
        waiting = self._waiting(operator)
        return OperatorProgress(
            name=operator.name,
            kind=operator.kind,
            stage=operator.stage,
            rate_per_s=figures.rate_per_s,
            p50_ms=figures.p50_ms,
            p99_ms=figures.p99_ms,
            records=self._records(operator),
            inbox_entries=waiting[0] if waiting else None,
            inbox_rows=waiting[1] if waiting else None,
            workers=len(set(placement.executors.values())) if placement else None,
            executors=len(placement.executors) if placement else None,
            tasks=self._tasks(placement) if placement else None,
            shards=placement.shards if placement else None,
            trend=tuple(self._trends[operator.name]),
        )

    def _figures(self, operator: OutlinedOperator) -> Figures:
        if operator.is_stage:
            return figures_of_stage(self._samples, operator.name, self._shards.get(operator.name, ()))
        if operator.name in self._delivered_rows:
            return figures_of_delivered(self._samples, operator.name)
        return figures_of_fused(self._samples, operator.name, self._all_shards())

    def _all_shards(self) -> list[str]:
        return [name for names in self._shards.values() for name in names]

    def _count(self, sample: Sample, operator: OutlinedOperator) -> int | None:
        if operator.is_stage:
            names = self._shards.get(operator.name)
            return rows_worked(sample, names) if names is not None else None
        if operator.name in sample.delivered:
            return sample.delivered[operator.name]
        return rows_put_out(sample, operator.name, self._all_shards())

    def _records(self, operator: OutlinedOperator) -> int | None:
        """Since the start of the run; all that the command has delivered is of this run."""
        count = self._count(self._samples[-1], operator) if self._samples else None
        if count is None or operator.name in self._delivered_rows:
            return count
        return count - self._first[operator.name]

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
