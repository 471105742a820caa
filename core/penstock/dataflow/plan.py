"""What a topology means, as frozen values: stages, their fused steps, and the edges between them.

`api` parses a manifest, `compile` turns it into a `Plan`; worker, fleet and simulation read only the plan.
Sources and sinks are of kinds (`source` and `sink` say what all have; `penstock.connectors` has the kinds).
A *stage* is what has shards: a source or a keyed processor, together with everything that
needs no key behind it. Those steps and sinks run inside the stage's task and cost no hop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.dataflow.expression_tree import ColumnStep
from penstock.dataflow.interval_join import IntervalJoin
from penstock.dataflow.letter_columns import LETTER_SCHEMA
from penstock.dataflow.on_error import FAILS, OnError
from penstock.dataflow.schema import Schema
from penstock.dataflow.sink import Sink
from penstock.dataflow.source import Source
from penstock.dataflow.window import WindowAggregation

ROWS = "Rows"
PANDAS = "Pandas"
"""How a processor takes its rows: as `transformWithState`, or as `transformWithStateInPandas` of PySpark. A
step takes a row, or an iterator of DataFrames as `mapInPandas`,"""
ARROW = "Arrow"
"""or of record batches as `mapInArrow`."""
NO_TIME = "None"
PROCESSING_TIME = "ProcessingTime"
EVENT_TIME = "EventTime"
"""What timers of a processor go by, in Spark's words for TimeMode."""
_PAUSE_DOUBLINGS_MAX = 10


def late_rows_of(operator: str) -> str:
    """The name under which an operator's late rows are counted, which no operator can have."""
    return f"{operator}/late"


@dataclass(frozen=True, slots=True)
class EventTime:
    """Rows have an event time, and a watermark begins with them: no earlier one is waited for.

    `column` is its position; the watermark is `delay_ms` behind the latest event time seen. A partition that
    gives no rows for `idle_ms` holds nobody back.
    """

    column: int
    delay_ms: int
    idle_ms: int


@dataclass(frozen=True, slots=True)
class Projection:
    """A row of one input of a join becomes one of the join's: its key, its event time, and the row itself in
    the first (`side` 0, left) or second of two columns, of which the other is null."""

    key_columns: tuple[int, ...]
    event_column: int
    side: int


@dataclass(frozen=True, slots=True)
class KeyedEdge:
    """Rows go to a keyed stage: the columns that make the key, by position, in keyBy's order. Without any
    there is one shard."""

    operator: str
    key_columns: tuple[int, ...]
    shards: int
    projection: Projection | None = None
    """Where the stage is a join."""
    locality: bool = False
    """Whether a routing table may say where keys of it go."""


@dataclass(frozen=True, slots=True)
class Fanout:
    """Where a schema's rows go. The same row goes to every member."""

    schema: Schema
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    edges: tuple[KeyedEdge, ...]
    event_time: EventTime | None = None
    """Where a watermark begins: at a source, or at a step behind one."""

    @property
    def fused(self) -> frozenset[str]:
        """The names of all steps and sinks in it."""
        steps = {name for step in self.steps for name in (step.name, *step.out.fused)}
        return frozenset(steps | {sink.name for sink in self.sinks})

    def all_steps(self) -> Iterator[Step]:
        """Every step in it."""
        for step in self.steps:
            yield step
            yield from step.out.all_steps()

    def all_sinks(self) -> Iterator[tuple[Sink, Schema]]:
        """Every sink in it, each with the schema of its rows."""
        for sink in self.sinks:
            yield sink, self.schema
        for step in self.steps:
            yield from step.out.all_sinks()


@dataclass(frozen=True, slots=True)
class Calls:
    """How async code is called: for so many rows, or keys, at once, each for so long, and how often again."""

    concurrent: int = 16
    timeout_ms: int = 30_000
    retries: int = 0
    retry_after_ms: int = 100
    """Before the first retry; twice as long before each further one."""

    def pause_ms(self, failed: int) -> int:
        """How long to wait after the call that failed as the `failed`th in a row (from 1)."""
        return self.retry_after_ms << min(failed - 1, _PAUSE_DOUBLINGS_MAX)

    @property
    def longest_ms(self) -> int:
        """What one may take with all its retries and pauses."""
        pauses_ms = sum(self.pause_ms(failed) for failed in range(1, self.retries + 1))
        return (self.retries + 1) * self.timeout_ms + pauses_ms


@dataclass(frozen=True, slots=True)
class Step:
    """A stateless step fused behind a stage: row -> rows, or batches -> batches."""

    name: str
    function: str
    """"module:attribute"."""
    out: Fanout
    arguments: str = ""
    """What it is called with beside rows, by name: an object as JSON, "" for none."""
    form: str = ROWS
    """ROWS, PANDAS or ARROW."""
    columns: ColumnStep | None = None
    """Instead of a function, which is "" then: `filter` and `select`."""
    calls: Calls | None = None
    """Where the manifest says how its async code is called."""
    on_error: OnError = FAILS


@dataclass(frozen=True, slots=True)
class Tasks:
    """Bounds and start value of the number of tasks, over all workers."""

    min: int
    max: int
    initial: int


@dataclass(frozen=True, slots=True)
class InitialState:
    """Rows of `schema` are handed to a processor before all others; `source` is the operator that reads them,
    which stands in no manifest."""

    source: str
    schema: Schema
    key_columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transform:
    """`target` is "module:function", of a DataFrame, which gives one; a Spark job works it out. A micro-batch
    has at most `rows_max` rows, and gathers for `every_ms`."""

    target: str
    arguments: str = ""
    rows_max: int = 50_000
    every_ms: int = 0


@dataclass(frozen=True, slots=True)
class Processor:
    """A keyed stage's head: "module:Class", a pyspark StatefulProcessor, or what needs no class: a window, a
    join, a sink that is a stage of its own."""

    target: str
    input: Schema
    key_columns: tuple[int, ...]
    shards: int
    form: str = ""
    """ROWS or PANDAS; "" where the class says it."""
    time_mode: str = NO_TIME
    event_column: int | None = None
    """With EVENT_TIME the column of its input that says when a row happened,"""
    producers: tuple[str, ...] = ()
    """the operators of the stages whose rows reach it: the least of their watermarks is its own,"""
    keyed_producers: tuple[str, ...] = ()
    """those of them that are keyed,"""
    late_sinks: tuple[Sink, ...] = ()
    """and where rows go that came behind it. Their schema is `input`."""
    window: WindowAggregation | None = None
    """Instead of a target, which is "" then,"""
    join: IntervalJoin | None = None
    """and so is a join."""
    initial: InitialState | None = None
    """Rows that its keys begin with."""
    batches_to: Sink | None = None
    """Instead of all these, what its input is written to in numbered batches: it has no key then, and puts
    nothing out."""
    arguments: str = ""
    """What the target is called with, by name: an object as JSON, "" for none."""
    transform: Transform | None = None
    """Instead of a target: it has no key then, and its input comes in micro-batches."""
    calls: Calls | None = None
    """Where the manifest says how its async code is called."""
    locality: bool = False
    """Whether a routing table may say which shard its keys are on; its edges say the same."""

    def __post_init__(self) -> None:
        """Raises ValueError where a key cannot go from one shard to another with all that it has."""
        if self.locality and (self.by_event_time or self.initial is not None or not self.key_columns):
            raise ValueError(
                "a stage by event time, with initial state or without a key has no routing tables: a shard "
                "tells its watermark, and begins with its rows, for the keys that it has"
            )

    @property
    def key_types(self) -> tuple[str, ...]:
        """The types of its key's columns, in their order."""
        return tuple(self.input.columns[column].type for column in self.key_columns)

    @property
    def by_event_time(self) -> bool:
        return self.time_mode == EVENT_TIME

    @property
    def has_timers(self) -> bool:
        """Whether its state may have timers."""
        return self.time_mode != NO_TIME

    @property
    def fixed_parts(self) -> tuple[str, ...]:
        """The parts that its shards are named by: numbers."""
        return tuple(str(number) for number in range(self.shards))


@dataclass(frozen=True, slots=True)
class Stage:
    """One operator with shards, and what is fused behind it."""

    operator: str
    head: Source | Processor
    tasks: Tasks
    out: Fanout
    """`out.schema` is the operator's own output schema."""
    tells_watermark: bool = False
    """Whether a stage behind it goes by event time."""
    initial_of: str = ""
    """Of a source that reads a processor's initial state, the processor's operator: its partitions are those
    that its first schedule names, and each is read once."""
    on_error: OnError = FAILS
    """Of its head: a source's input, a processor's code."""
    processor_timeout_us: int = 0
    """How long a call of its processor may take; 0 for any time."""
    waits_for: tuple[str, ...] = ()
    """Of a source, those that read the initial state of operators behind it: it begins when they are done."""
    dead_letters: Sink | None = None
    """The topology's sink of dead letters. Every stage that may have some delivers to it, whatever its
    `onError` says now: that may change, and what is on its way is delivered all the same."""

    @property
    def is_source(self) -> bool:
        return not isinstance(self.head, Processor)

    @property
    def is_sink(self) -> bool:
        """Whether it is a sink of the manifest's."""
        return isinstance(self.head, Processor) and self.head.batches_to is not None

    @property
    def takes_batches(self) -> bool:
        """Whether it works on all that waits at once, by a call of the worker's main process."""
        is_transform = isinstance(self.head, Processor) and self.head.transform is not None
        return is_transform or self.is_sink

    @property
    def policies(self) -> dict[str, OnError]:
        """Operator -> its policy, of the head and of all steps behind it."""
        return {self.operator: self.on_error, **{step.name: step.on_error for step in self.out.all_steps()}}

    def all_sinks(self) -> Iterator[tuple[Sink, Schema]]:
        """Every sink that its tasks deliver to, each with the schema of its rows: those fused behind it, and
        those that its late rows and dead letters go to."""
        yield from self.out.all_sinks()
        if self.dead_letters is not None and not self.dead_letters.is_stage:
            yield self.dead_letters, LETTER_SCHEMA
        if isinstance(self.head, Processor):
            for sink in self.head.late_sinks:
                yield sink, self.head.input


@dataclass(frozen=True, slots=True)
class WorkerRange:
    """`least` to `most` workers hold executors, and `warm` ones beside them hold none, as long as another one
    may come. The cores of a worker are worth `tasks_each` tasks."""

    least: int = 1
    most: int = 1
    warm: int = 0
    tasks_each: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """A topology, compiled: stages in topological order. Independent of runtime and schedule."""

    topology: str
    module: str
    durability: str
    """Process or Disk."""
    workers_initial: int
    memory_bytes: int
    stages: tuple[Stage, ...]
    workers: WorkerRange = WorkerRange()
    remote_tasks: bool = False
    """Whether tasks may run on other nodes than their worker's."""
    locality_dry_run: bool = False
    """Pairs of keys are counted and tables decided on, and none is made."""

    def stage(self, operator: str) -> Stage:
        """The stage of `operator`. KeyError when there is none."""
        for stage in self.stages:
            if stage.operator == operator:
                return stage
        raise KeyError(operator)
