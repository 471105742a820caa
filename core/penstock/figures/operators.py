"""All figures of one operator at one moment: the model that everything reads which shows operators.

One for `penstock run` and for a Topology's status. What is not known is None, never zero (promise 7). Pure.
Neighbours: `samples` and `rates` make rates and latencies, each runtime says what it saw (`Look`); the live
view, log lines and `status` show what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.dataflow.outline import OutlinedOperator
from penstock.dataflow.plan import late_rows_of
from penstock.figures.lag import Lag
from penstock.figures.rates import (
    Figures,
    figures_of_delivered,
    figures_of_fused,
    figures_of_stage,
    rows_put_out,
)
from penstock.figures.samples import Samples
from penstock.figures.watermarks import told_by_all
from penstock.metrics.rows import WorkerRow, tells_of_now
from penstock.schedule.record import OperatorSchedule, WorkerPlace
from penstock.store.port import ShardCounters, Watermark

Running = Callable[[WorkerPlace], Mapping[str, int] | None]
"""A start of a worker -> executor -> tasks that it said lately run there; None where it cannot be heard."""


def nobody_is_heard(_: WorkerPlace) -> None:
    return None


def tasks_told(row: WorkerRow | None, place: WorkerPlace, now_us: int) -> Mapping[str, int]:
    """What a worker's row tells of the tasks of this start: nothing where it is another start's, or old."""
    if row is None or row.uid != place.uid or not tells_of_now(row, now_us):
        return {}
    return row.tasks


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """One operator. `kind` is source, step, keyed or sink, `stage` the one it is fused behind, or itself.

    Rates per second, latencies in milliseconds from the source to here. `records` are rows since the start of
    whoever counts; `inbox_entries`, with `inbox_rows` in them, wait for a keyed stage. `tasks_remote` are
    among `tasks_wanted`. What only a stage has is None for a fused operator.

    Only what `has_event_time` has a watermark: a source the one that its shards told, a processor that of its
    input, by which its rows are late or not. Rows that wait in its inboxes may still be earlier. It is
    `watermark_lag_ms` behind the clock, None where all of its input is idle: that lag says nothing. Only
    processors have `late_rows`, since the start of whoever counts.

    Only sources that can tell what is there to be read have `lag_records`, and `lag_ms` (`figures.lag`).
    """

    name: str
    kind: str
    stage: str
    rate_per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    records: int | None = None
    inbox_entries: int | None = None
    inbox_rows: int | None = None
    workers: int | None = None
    executors: int | None = None
    tasks_wanted: int | None = None
    tasks_ready: int | None = None
    tasks_remote: int | None = None
    shards: int | None = None
    trend: tuple[float | None, ...] = ()
    has_event_time: bool = False
    watermark_ms: int | None = None
    watermark_lag_ms: int | None = None
    late_rows: int | None = None
    lag_records: int | None = None
    lag_ms: int | None = None

    @property
    def is_stage(self) -> bool:
        return self.name == self.stage

    @property
    def has_inbox(self) -> bool:
        """Whether rows wait for it: a keyed stage, and a sink that is one."""
        return self.is_stage and self.kind != "source"

    def unseen(self) -> OperatorFigures:
        """The same where nothing can be seen now: what the schedule says, and how it was."""
        return replace(
            self,
            rate_per_s=None,
            p50_ms=None,
            p99_ms=None,
            records=None,
            inbox_entries=None,
            inbox_rows=None,
            tasks_ready=None,
            watermark_ms=None,
            watermark_lag_ms=None,
            late_rows=None,
            lag_records=None,
            lag_ms=None,
        )


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw. `shards` is stage -> its shards, by the names that `samples` have; `counters` is
    stage -> theirs, None for one that was not seen. `schedules` have their remote tasks. `now_ms` is the
    time, where lags of event time are asked for; `lags` are those of sources."""

    samples: Samples = ()
    shards: Mapping[str, Sequence[str]] = field(default_factory=dict)
    counters: Mapping[str, Sequence[ShardCounters | None]] = field(default_factory=dict)
    schedules: Mapping[str, OperatorSchedule] = field(default_factory=dict)
    running: Running = nobody_is_heard
    now_ms: int | None = None
    lags: Mapping[str, Lag] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Of one stage, in all its inboxes."""

    entries: int
    rows: int


def operator_figures(operator: OutlinedOperator, look: Look) -> OperatorFigures:
    """All that `look` says of it, but for records and trend, which are of many looks."""
    rates = rates_of(operator, look.samples, look.shards)
    if not operator.is_stage:
        return OperatorFigures(
            operator.name, operator.kind, operator.stage, rates.rate_per_s, rates.p50_ms, rates.p99_ms
        )
    schedule = look.schedules.get(operator.name)
    watermark = told_by_all(operator.timed_by, operator.timed_by_keyed, look.counters)
    lag = look.lags.get(operator.name)
    waiting = waiting_in(look.counters.get(operator.name)) if operator.kind != "source" else None
    return OperatorFigures(
        operator.name,
        operator.kind,
        operator.stage,
        rates.rate_per_s,
        rates.p50_ms,
        rates.p99_ms,
        inbox_entries=waiting.entries if waiting else None,
        inbox_rows=waiting.rows if waiting else None,
        workers=len({executor.worker for executor in schedule.executors}) if schedule else None,
        executors=len(schedule.executors) if schedule else None,
        tasks_wanted=schedule.tasks if schedule else None,
        tasks_ready=tasks_running(schedule, look.running) if schedule else None,
        tasks_remote=sum(e.tasks - e.tasks_at_home for e in schedule.executors) if schedule else None,
        shards=len(look.shards[operator.name]) if schedule and operator.name in look.shards else None,
        has_event_time=bool(operator.timed_by),
        watermark_ms=watermark.ms,
        watermark_lag_ms=_lag_ms(watermark, look.now_ms),
        late_rows=late_rows(operator, look.samples, look.shards),
        lag_records=lag.records if lag is not None else None,
        lag_ms=lag.behind_ms if lag is not None else None,
    )


def late_rows(
    operator: OutlinedOperator, samples: Samples, shards: Mapping[str, Sequence[str]]
) -> int | None:
    """Rows that came behind its watermark, by its shards' counts; None where a shard was not seen, and where
    no rows can be late."""
    if operator.kind != "keyed" or not operator.timed_by or not samples or operator.name not in shards:
        return None
    return rows_put_out(samples[-1], late_rows_of(operator.name), shards[operator.name])


def rates_of(operator: OutlinedOperator, samples: Samples, shards: Mapping[str, Sequence[str]]) -> Figures:
    """`shards` is stage -> names; nothing is known where those of a stage that runs it are missing."""
    if samples and operator.name in samples[-1].delivered:
        return figures_of_delivered(samples, operator.name)
    if any(stage not in shards for stage in operator.stages):
        return Figures()
    if operator.is_stage:
        return figures_of_stage(samples, operator.name, shards[operator.name])
    return figures_of_fused(samples, operator.name, shards_behind(operator, shards))


def shards_behind(operator: OutlinedOperator, shards: Mapping[str, Sequence[str]]) -> list[str]:
    """The shards of all stages that run it."""
    return [name for stage in operator.stages for name in shards.get(stage, ())]


def _lag_ms(watermark: Watermark, now_ms: int | None) -> int | None:
    if watermark.ms is None or watermark.is_idle or now_ms is None:
        return None
    return now_ms - watermark.ms


def waiting_in(counters: Iterable[ShardCounters | None] | None) -> Waiting | None:
    """None where a shard was not seen."""
    if counters is None:
        return None
    entries = rows = 0
    for seen in counters:
        if seen is None:
            return None
        entries += seen.inbox_entries
        rows += seen.arrived_rows - seen.completed_rows
    return Waiting(entries, rows)


def tasks_running(schedule: OperatorSchedule, running: Running) -> int | None:
    """Resident tasks that run now, of those scheduled; None when no worker can be heard."""
    told = {place.name: running(place) for place in schedule.workers}
    heard = {worker: tasks for worker, tasks in told.items() if tasks is not None}
    if not any(executor.worker in heard for executor in schedule.executors):
        return None
    return sum(
        min(heard.get(executor.worker, {}).get(executor.name, 0), executor.tasks)
        for executor in schedule.executors
    )
