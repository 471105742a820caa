"""Reads what workers and store have counted since the start of a run, and keeps the samples of its window.

An operator's figures are those of `penstock.figures`, over the last `WINDOW_S` seconds; here come the totals
since the start of the run, and the trend. What is not known is None, never zero (promise 7).
Neighbours: `local_run` takes the readings, `live_view`, `log_lines` and `run_summary` show them,
`console_delivery` adds what it printed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from penstock.dataflow.outline import OutlinedOperator
from penstock.figures.lag import Lag, lags_of
from penstock.figures.operators import (
    Look,
    OperatorFigures,
    late_rows,
    operator_figures,
    rates_of,
    shards_behind,
    tasks_told,
)
from penstock.figures.rates import milliseconds, rows_put_out, rows_worked
from penstock.figures.samples import Sample, Samples, next_sample, operators_told, sampled, within_window
from penstock.metrics.heard_rows import HeardRows
from penstock.metrics.latency import LatencyHistogram
from penstock.metrics.rows import TaskRow, WorkerRow, tells_of_now, unpack, worker_row_name
from penstock.schedule.record import OperatorSchedule, WorkerPlace
from penstock.store.port import ShardCounters

WINDOW_S = 5.0
TREND_INTERVAL_S = 1.0
TREND_POINTS = 24


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the store. `shards` maps a stage to its shards' counters, in the order of their names
    (None for a shard that the store does not know); `rows` are the metric rows by name."""

    at_s: float
    now_us: int
    shards: Mapping[str, Sequence[ShardCounters | None]]
    rows: Mapping[str, TaskRow | WorkerRow]


@dataclass(frozen=True, slots=True)
class OperatorTotal:
    """One operator over the whole run."""

    name: str
    kind: str
    records: int | None
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    late_rows: int | None = None
    """Of a processor that goes by event time."""


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
        """Operator -> its total when it was first known,"""
        self._first_late: dict[str, int] = {}
        """and its late rows."""
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
            if operator.name not in self._first:
                count = self._count(sample, operator)
                if count is not None:
                    self._first[operator.name] = count
            if operator.name not in self._first_late:
                late = late_rows(operator, self._samples, self._shards)
                if late is not None:
                    self._first_late[operator.name] = late
        if self._trend_due_s is None or reading.at_s >= self._trend_due_s:
            self._trend_due_s = reading.at_s + TREND_INTERVAL_S
            for operator in self._operators:
                rates = rates_of(operator, self._samples, self._shards)
                self._trends[operator.name].append(rates.rate_per_s)

    def _sample(self, reading: Reading) -> Sample:
        shards = {
            name: sampled("", counters)
            for stage, names in self._shards.items()
            for name, counters in zip(names, reading.shards[stage], strict=True)
            if counters is not None
        }
        rows = {("", name): row for name, row in reading.rows.items() if isinstance(row, TaskRow)}
        heard = operators_told(row for row in rows.values() if tells_of_now(row, reading.now_us))
        before = self._samples[-1] if self._samples else None
        sample = next_sample(before, reading.at_s, shards, rows, heard)
        delivered = {n: LatencyHistogram(dict(h.counts)) for n, h in self._delivered_latency.items()}
        return replace(
            sample,
            latency={**sample.latency, **delivered},
            heard=sample.heard | delivered.keys(),
            delivered=dict(self._delivered_rows),
        )

    def progress(self, schedules: Mapping[str, OperatorSchedule]) -> tuple[OperatorFigures, ...]:
        """The table as it stands, in the plan's order. `schedules` have their remote tasks."""
        latest = self._latest
        look = Look(
            self._samples,
            self._shards,
            latest.shards if latest is not None else {},
            schedules,
            self._running,
            latest.now_us // 1000 if latest is not None else None,
            self._lags(),
        )
        return tuple(
            replace(
                operator_figures(operator, look),
                records=self._records(operator),
                late_rows=self._late(operator),
                trend=tuple(self._trends[operator.name]),
            )
            for operator in self._operators
        )

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
                self._late(operator),
            )
            for operator in self._operators
        )

    def _count(self, sample: Sample, operator: OutlinedOperator) -> int | None:
        if operator.is_stage:
            names = self._shards.get(operator.name)
            return rows_worked(sample, names) if names is not None else None
        if operator.name in sample.delivered:
            return sample.delivered[operator.name]
        return rows_put_out(sample, operator.name, shards_behind(operator, self._shards))

    def _records(self, operator: OutlinedOperator) -> int | None:
        """Since the start of the run; all that the command has delivered is of this run."""
        count = self._count(self._samples[-1], operator) if self._samples else None
        if count is None or operator.name in self._delivered_rows:
            return count
        return count - self._first[operator.name]

    def _late(self, operator: OutlinedOperator) -> int | None:
        """Since the start of the run."""
        count = late_rows(operator, self._samples, self._shards)
        return None if count is None else count - self._first_late[operator.name]

    def _lags(self) -> dict[str, Lag]:
        if self._latest is None:
            return {}
        now_us = self._latest.now_us
        rows = [row for row in self._latest.rows.values() if isinstance(row, TaskRow)]
        return lags_of(
            (row for row in rows if tells_of_now(row, now_us)),
            {operator: len(names) for operator, names in self._shards.items()},
        )

    def _running(self, place: WorkerPlace) -> Mapping[str, int] | None:
        """What a worker's main process tells of its tasks."""
        if self._latest is None:
            return None
        row = self._latest.rows.get(worker_row_name(place.name))
        return tasks_told(row if isinstance(row, WorkerRow) else None, place, self._latest.now_us)
