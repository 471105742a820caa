"""One operator of a Topology, as a user writes it: a source, a step, what is keyed, or a sink.

Neighbours: `topology` has them in its spec; what holds between them is `graph`'s.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StringConstraints

from penstock.api.specs.calls_spec import CallsSpec
from penstock.api.specs.join_spec import JoinSpec
from penstock.api.specs.on_error_spec import OnErrorSpec
from penstock.api.specs.sizes_spec import TasksSpec
from penstock.api.specs.window_spec import AGGREGATES_MAX, AggregateSpec, WindowSpec
from penstock.connectors.registry import InitialStateSpec, SinkSpec, SourceSpec
from penstock.dataflow.plan import ARROW, EVENT_TIME, PANDAS, ROWS
from penstock.manifest.document import (
    EXPECTED,
    NAME_LENGTH_MAX,
    SHARDS_MAX,
    Arguments,
    ColumnName,
    Ddl,
    Document,
    Duration,
    Name,
    PositiveDuration,
    Target,
    atomic_list,
    cel,
    duration_us,
    fixed,
    keyed_list,
)

SHARDS_DEFAULT = 64
LATE = "-late"
"""What the name of a processor's sink of late rows has more than its own,"""
INITIAL = "-initial"
"""and that of the source that reads its initial state."""
ALLOWED_DELAY_DEFAULT = "0s"
IDLE_AFTER_DEFAULT = "1m"
IDLE_AFTER_LEAST = "100ms"
STEPS = {"map": ROWS, "mapInPandas": PANDAS, "mapInArrow": ARROW}
"""Fields of an operator that name the code of a step -> how that takes its rows."""
COLUMN_STEPS = ("filter", "select")
"""Fields that say in expressions what a step does; one may have both."""
STAGE_SINK = "foreachBatch"
"""The kind of sink that is a stage of its own, as rules in CEL name it."""


def _not_too_short(text: str) -> str:
    if duration_us(text) < duration_us(IDLE_AFTER_LEAST):
        raise ValueError(f"must be at least {IDLE_AFTER_LEAST}: partitions pause that long now and then")
    return text


SELECTED_MAX = 256
SqlText = Annotated[
    str,
    StringConstraints(min_length=1, max_length=4096),
    Field(json_schema_extra={EXPECTED: "a Spark SQL expression, such as \"amount > 10 AND country = 'AT'\""}),
]

IdleDuration = Annotated[
    Duration,
    AfterValidator(_not_too_short),
    Field(
        json_schema_extra={
            EXPECTED: f"a duration of at least {IDLE_AFTER_LEAST} such as 250ms or 1m",
            **cel(
                (f"duration(self) >= duration('{IDLE_AFTER_LEAST}')", f"must be at least {IDLE_AFTER_LEAST}")
            ),
        }
    ),
]


def _off_for_false(given: object) -> object:
    """YAML reads an Off without quotes as false."""
    return "Off" if given is False else given


Placing = Annotated[Literal["Auto", "Off"], BeforeValidator(_off_for_false)]


class EventTimeSpec(Document):
    """When the rows of an operator happened, by a column of theirs. At a source, or a map before the first
    processors, a watermark begins: so far event time has come. A processor hands on its input's."""

    model_config = ConfigDict(
        json_schema_extra=cel(("self.column == oldSelf.column", "eventTime.column is fixed for life"))
    )

    column: ColumnName
    """Of the rows that come out, of type timestamp or timestamp_ntz; fixed for life."""
    allowed_delay: Duration | None = None
    """How far the watermark stays behind the latest event time: rows may be out of order by so much. Without
    it 0s."""
    idle_after: IdleDuration | None = None
    """A partition without rows for so long holds the watermark back no more. Without it 1m."""


_KEYED = "(has(self.processor) || has(self.window) || has(self.join))"
_CODELESS = "(has(self.window) || has(self.join))"
_TRANSFORM_ROWS_LEAST = 256
_CODE_STEP = "(has(self.map) || has(self.mapInPandas) || has(self.mapInArrow))"
_STEP = f"({_CODE_STEP} || has(self.filter) || has(self.select))"
_STEP_BEFORE = _STEP.replace("self", "oldSelf")


class OperatorSpec(Document):
    """A node of the topology's graph. Exactly one of source, map, mapInPandas, mapInArrow, filter with
    select, transform, processor, window, join and sink says what it does."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "[has(self.source), has(self.map), has(self.mapInPandas), has(self.mapInArrow), "
                "has(self.filter) || has(self.select), has(self.transform), has(self.processor), "
                "has(self.window), has(self.join), has(self.sink)]"
                ".filter(given, given).size() == 1",
                "exactly one of source, map, mapInPandas, mapInArrow, filter with select, transform, "
                "processor, window, join and sink",
            ),
            (
                "has(self.source) != has(self.inputs)",
                "a source has no inputs, every other operator has at least one",
            ),
            ("!has(self.inputs) || !(self.name in self.inputs)", "an operator cannot be its own input"),
            (
                "(has(self.processor) || has(self.window)) == has(self.keyBy)",
                "a processor and a window have keyBy, and nothing else has",
            ),
            ("has(self.window) == has(self.aggregate)", "a window has aggregate, and nothing else has"),
            (
                f"has(self.outputSchema) == ({_CODE_STEP} || has(self.transform) || has(self.processor))",
                "the code of a step, a transform and a processor need outputSchema; all others follow",
            ),
            ("!has(self.join) || self.inputs.size() == 2", "a join has two inputs, left and right"),
            (f"!has(self.shards) || {_KEYED}", "only a processor, a window and a join have shards"),
            ("!has(self.form) || has(self.processor)", "only a processor has a form"),
            (
                f"!has(self.args) || {_CODE_STEP} || has(self.transform) || has(self.processor)",
                "only code has args",
            ),
            ("!has(self.every) || has(self.transform)", "only a transform has every"),
            ("!has(self.maxRows) || has(self.transform)", "only a transform has maxRows"),
            (
                "!has(self.eventTime) || !has(self.transform)",
                "a transform has no eventTime: no watermark goes through a Spark job",
            ),
            (
                "!has(self.calls) || has(self.map) || has(self.processor)",
                "only a map and a processor have calls",
            ),
            ("!has(self.timeMode) || has(self.processor)", "only a processor has a timeMode"),
            (
                "!has(self.processorTimeout) || has(self.processor) || has(self.window)",
                "only a processor and a window have a processorTimeout",
            ),
            (
                f"!has(self.onError) || {_STEP} || has(self.source) || has(self.processor) || "
                "has(self.transform) || has(self.window)",
                "only a source, a step, a transform, a processor and a window have an onError",
            ),
            (
                f"!has(self.onError) || self.onError.policy != 'Retry' || {_STEP} || "
                "has(self.transform) || has(self.processor) || has(self.window)",
                "only a step, a transform, a processor and a window retry",
            ),
            (
                f"!({_CODELESS} || (has(self.timeMode) && self.timeMode != 'None')) || "
                "!has(self.tasks) || !has(self.tasks.min) || self.tasks.min > 0",
                "timers need a task that fires them: with a timeMode, a window or a join tasks.min is at "
                "least 1",
            ),
            (
                "!has(self.onError) || self.onError.policy != 'Retry' || !has(self.processor) || "
                "!has(self.tasks) || !has(self.tasks.min) || self.tasks.min > 0",
                "rows that wait need a task that tries again: with onError Retry tasks.min is at least 1",
            ),
            ("!has(self.eventTime) || !has(self.sink)", "a sink has no eventTime: nothing comes behind it"),
            (
                "!has(self.eventTime) || !has(self.window)",
                "a window has no eventTime: that of its rows is windowEnd",
            ),
            (
                "!has(self.eventTime) || !has(self.join)",
                "a join has no eventTime: its rows have those of both sides",
            ),
            (
                "!has(self.eventTime) || !has(self.processor) || "
                "(has(self.timeMode) && self.timeMode == 'EventTime')",
                "a processor has an eventTime with timeMode EventTime only",
            ),
            (
                "!has(self.eventTime) || !has(self.processor) || "
                "!(has(self.eventTime.allowedDelay) || has(self.eventTime.idleAfter))",
                "a processor hands a watermark on: allowedDelay and idleAfter stand where it begins",
            ),
            (
                f"!has(self.lateTo) || {_CODELESS} || (has(self.timeMode) && self.timeMode == 'EventTime')",
                "only a window, a join and a processor with timeMode EventTime have a lateTo: rows are late "
                "by event time",
            ),
            (
                f"!has(self.lateTo) || self.name.size() <= {NAME_LENGTH_MAX - len(LATE)}",
                f"the sink of lateTo is called by the operator and '{LATE}': that name has at most "
                f"{NAME_LENGTH_MAX - len(LATE)} characters",
            ),
            (
                f"!has(self.lateTo) || !has(self.lateTo.{STAGE_SINK})",
                f"{STAGE_SINK} is no place for late rows: it is a stage, and they do not leave theirs; give "
                "foreach or files",
            ),
            ("!has(self.initialState) || has(self.processor)", "only a processor has an initialState"),
            (
                f"!has(self.initialState) || self.name.size() <= {NAME_LENGTH_MAX - len(INITIAL)}",
                f"the source of initialState is called by the operator and '{INITIAL}': that name has at "
                f"most {NAME_LENGTH_MAX - len(INITIAL)} characters",
            ),
            ("has(self.initialState) == has(oldSelf.initialState)", "initialState is fixed for life"),
            ("!has(self.locality) || has(self.processor)", "only a processor has a locality"),
            (
                "!has(self.locality) || self.locality != 'Auto' || !(has(self.initialState) || "
                "(has(self.timeMode) && self.timeMode == 'EventTime'))",
                "locality Auto needs a processor without event time and without an initialState: a shard "
                "tells its watermark, and begins with its rows, for the keys that it has",
            ),
            (
                f"!has(self.tasks) || has(self.source) || {_KEYED}",
                "a step and a sink run in the tasks of their input",
            ),
            (
                "!has(self.keyBy) || !has(oldSelf.keyBy) || (has(self.shards) ? self.shards : "
                f"{SHARDS_DEFAULT}) == (has(oldSelf.shards) ? oldSelf.shards : {SHARDS_DEFAULT})",
                "shards are fixed for life",
            ),
            (
                "!has(self.keyBy) || !has(oldSelf.keyBy) || self.keyBy == oldSelf.keyBy",
                "keyBy is fixed for life",
            ),
            (
                "(has(self.timeMode) ? self.timeMode : 'None') == "
                "(has(oldSelf.timeMode) ? oldSelf.timeMode : 'None')",
                "timeMode is fixed for life",
            ),
            ("has(self.eventTime) == has(oldSelf.eventTime)", "eventTime.column is fixed for life"),
            (fixed("lateTo"), "lateTo is fixed for life"),
            (
                f"has(self.source) == has(oldSelf.source) && {_STEP} == {_STEP_BEFORE} && "
                "has(self.transform) == has(oldSelf.transform) && "
                "has(self.processor) == has(oldSelf.processor) && has(self.window) == has(oldSelf.window) && "
                "has(self.join) == has(oldSelf.join) && has(self.sink) == has(oldSelf.sink)",
                "what an operator is (source, step, transform, processor, window, join, sink) is fixed "
                "for life",
            ),
            (
                f"(has(self.sink) && has(self.sink.{STAGE_SINK})) == "
                f"(has(oldSelf.sink) && has(oldSelf.sink.{STAGE_SINK}))",
                f"whether a sink is {STAGE_SINK} is fixed for life: it is a stage, with an inbox of its own",
            ),
            (fixed("window"), "window is fixed for life"),
            (fixed("join"), "join is fixed for life"),
            (
                "!has(self.aggregate) || !has(oldSelf.aggregate) || "
                "self.aggregate.map(a, a.__as__) == oldSelf.aggregate.map(a, a.__as__)",
                "the columns of aggregate and their order are fixed for life",
            ),
            (fixed("inputs"), "inputs are fixed for life"),
            (fixed("outputSchema"), "outputSchema is fixed for life: rows of it wait in inboxes"),
        )
    )

    name: Name
    inputs: Annotated[tuple[Name, ...], atomic_list(16, minimum=1)] | None = None
    """The operators whose rows it takes; they stand above it in the list. Their schemas are equal, but those
    of a join."""
    source: SourceSpec | None = None
    map: Target | None = None
    """A stateless function, row -> rows. It runs in the tasks of its inputs, without a hop. One that takes no
    row is called once in each task, and gives the function."""
    map_in_pandas: Target | None = None
    """The same as PySpark's mapInPandas: a function of an iterator of DataFrames, which returns one."""
    map_in_arrow: Target | None = None
    """The same as PySpark's mapInArrow: of an iterator of pyarrow.RecordBatch."""
    filter: SqlText | None = None
    """A Spark SQL expression; rows for which it is true go on. Without a Spark job."""
    select: Annotated[tuple[SqlText, ...], atomic_list(SELECTED_MAX, minimum=1)] | None = None
    """Spark SQL expressions: what comes out, such as 'user' or 'amount * 2 AS twice'; '*' is all columns."""
    key_by: Annotated[tuple[ColumnName, ...], atomic_list(16, minimum=1)] | None = None
    """Columns of the input that make the key of a processor or a window; fixed for life."""
    processor: Target | None = None
    """A pyspark.sql.streaming.StatefulProcessor, an object of one, or a function that makes one."""
    args: Arguments | None = None
    """What the code of a step or a processor is called with by name, beside rows; checked against its
    signature. They may change."""
    transform: Target | None = None
    """A function of a DataFrame, which returns one. A Spark job works it out, in micro-batches."""
    every: Duration | None = None
    """Of a transform: how long rows gather for a micro-batch. Without it as long as the one before takes."""
    max_rows: Annotated[int, Field(ge=_TRANSFORM_ROWS_LEAST, le=1_000_000)] | None = None
    """Of a transform: rows of a micro-batch at most; bytes bound it too. Without it 50000."""
    calls: CallsSpec | None = None
    """Of a map, or a processor's handleInputRows, that is `async def`: how many at once, how long, how often
    again. They may change."""
    window: WindowSpec | None = None
    """Rows of a key are put together by windows of event time, and `aggregate` says what is computed of
    each, without code. Fixed for life."""
    aggregate: Annotated[tuple[AggregateSpec, ...], keyed_list(AGGREGATES_MAX, "as", minimum=1)] | None = None
    """The columns that come out of a window, behind those of the key, windowStart and windowEnd."""
    join: JoinSpec | None = None
    """Rows of two inputs, whose schemas may differ, meet by key and by event time, without code. The first of
    `inputs` is the left one. Fixed for life."""
    form: Literal["Rows", "Pandas"] | None = None
    """How the processor takes what comes for a key: Rows, as in transformWithState, or Pandas, DataFrames as
    in transformWithStateInPandas. Without it what the class's hints say."""
    time_mode: Literal["None", "ProcessingTime", "EventTime"] | None = None
    """What the processor's timers go by, as in transformWithState; fixed for life. Without it None: it has
    none. Times to live need ProcessingTime, EventTime an eventTime on every path to the processor."""
    event_time: EventTimeSpec | None = None
    """Which column says when a row happened. Of a source or a step, and of a processor with timeMode
    EventTime where another one stands behind it."""
    late_to: SinkSpec | None = None
    """Of a window, or with timeMode EventTime: where rows go that came too late. The sink is called as the
    operator, with '-late' behind; its rows are those of the input. Without it they are dropped."""
    initial_state: InitialStateSpec | None = None
    """Of a processor: rows that its handleInitialState is called for, before all others. The source that
    reads them is called as the operator, with '-initial' behind. Fixed for life."""
    sink: SinkSpec | None = None
    output_schema: Ddl | None = None
    """The columns that come out of a step or a processor: Spark's argument schema of mapInPandas."""
    on_error: OnErrorSpec | None = None
    """What becomes of rows on which its code raises, and of what a source cannot read as a row. Without it
    the topology fails. It may change."""
    processor_timeout: PositiveDuration | None = None
    """How long a call of the processor may take. A task whose call takes longer is killed and begins anew;
    where that comes again and again for a key, `onError` says what becomes of its rows. Without it it may
    take any time."""
    locality: Placing | None = None
    """Of a processor, Auto: which of its keys follow which of another such processor is counted while rows
    flow, and where that pays a table puts keys that meet on one node. It may change. Without it Off, which
    YAML takes for false: kubectl needs it in quotes."""
    shards: Annotated[int, Field(ge=1, le=SHARDS_MAX)] | None = None
    """Parts of its keys, the units that move; fixed for life. Without it 64."""
    tasks: TasksSpec | None = None

    @property
    def step(self) -> tuple[str, Target] | None:
        """Of a step, the field that names its code and what that is; None of another operator."""
        named = (("map", self.map), ("mapInPandas", self.map_in_pandas), ("mapInArrow", self.map_in_arrow))
        return next(((field, target) for field, target in named if target is not None), None)

    @property
    def is_step(self) -> bool:
        """Whether it has no key and runs in the tasks of its inputs, and is no sink."""
        return self.step is not None or self.filter is not None or self.select is not None

    @property
    def is_keyed(self) -> bool:
        """Whether it has keys, and so shards, tasks and an inbox of its own."""
        return self.processor is not None or self.window is not None or self.join is not None

    @property
    def has_shards(self) -> bool:
        """Whether it is a stage: a source, what is keyed, a sink that is one by itself."""
        is_stage = self.sink is not None and self.sink.given.planned.is_stage
        return self.source is not None or self.is_keyed or self.transform is not None or is_stage

    @property
    def by_event_time(self) -> bool:
        """Whether it goes by a watermark."""
        return self.window is not None or self.join is not None or self.time_mode == EVENT_TIME
