"""`TopologyTest`: a whole topology in a user's own test, without Spark, JVM or Redis, in virtual time.

Neighbours: `one_node` runs it, `processor_test` does the same for one processor.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark.sql import SparkSession

from penstock.api.compile import compile_topology
from penstock.api.load import load_manifest
from penstock.api.topology import Topology
from penstock.dataflow.plan import Fanout, Plan, Processor, Stage
from penstock.dataflow.schema import Schema
from penstock.manifest.faults import InvalidManifest, joined, nearest
from penstock_worker.spark.batch_calls import BatchCalls, batch_users
from penstock_worker.stages.transform_stage import Run
from penstock_worker.testing.topologies.failures import Misuse
from penstock_worker.testing.topologies.given_rows import given_lines, given_rows
from penstock_worker.testing.topologies.kept_letters import DeadLetter, KeptLetters
from penstock_worker.testing.topologies.kept_state import KeptState, KeyOf
from penstock_worker.testing.topologies.observed_plan import late_rows_of, observed, rows_of
from penstock_worker.testing.topologies.one_node import OneNode
from penstock_worker.testing.topologies.shown_rows import ShownRows
from penstock_worker.testing.topologies.virtual_clock import instant, instant_us
from penstock_worker.user_code.inspect_code import topology_faults

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
"""When a test begins, unless it says otherwise: a Thursday."""


class TopologyTest:
    """One topology that a test feeds and reads. Made by `of`; used in a `with` block.

    What user code raises is raised by the call that led to it, as it was raised. Nothing outside is touched:
    sources give what the test feeds, and what sinks would be given is kept for the test.
    """

    def __init__(
        self,
        topology: Topology,
        base_dir: Path,
        *,
        start: datetime.datetime = START,
        partitions: Mapping[str, int] | None = None,
        initial: Mapping[str, Iterable[Any]] | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        """For who has a Topology in hand; `of` reads one. Raises InvalidManifest, Misuse, and what code
        raises as it is made."""
        plan = compile_topology(topology)
        _check_modules(topology, base_dir)
        if faults := topology_faults(topology, base_dir):
            raise InvalidManifest(faults)
        self._plan = plan
        self._schemas = _schemas(plan)
        self._sinks = {sink.name: schema for stage in plan.stages for sink, schema in stage.all_sinks()}
        self._sources = {
            stage.operator: stage.out.schema
            for stage in plan.stages
            if stage.is_source and not stage.initial_of
        }
        self._taken: dict[str, int] = {}
        _known("source", tuple(partitions or ()), tuple(self._sources))
        self._node = OneNode(
            observed(plan), base_dir, start, partitions or {}, _transforms(plan, base_dir, spark)
        )
        self._feed_initial(initial or {})
        self._node.settle()

    @classmethod
    def of(
        cls,
        manifest: str | Path,
        overrides: Sequence[str] = (),
        *,
        start: datetime.datetime = START,
        partitions: Mapping[str, int] | None = None,
        initial: Mapping[str, Iterable[Any]] | None = None,
        spark: SparkSession | None = None,
    ) -> Self:
        """The Topology in the file `manifest`, whose code is looked for beside it first.

        `overrides` are as `--set` of `penstock run` (`["count.shards=4"]`), `partitions` says how many a
        source has (1), `initial` the rows of `initialState` by operator, instead of its files. Time begins at
        `start`. `spark` works transforms out, where there are some. Raises InvalidManifest with all faults,
        as `penstock validate` lists them, and Misuse.
        """
        path = Path(manifest).absolute()
        topology = load_manifest(path, overrides, with_code=True).topology
        return cls(topology, path.parent, start=start, partitions=partitions, initial=initial, spark=spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, frames: TracebackType | None
    ) -> None:
        if raised is None:
            self.close()

    # --- what comes ---------------------------------------------------------------------------

    def feed(self, source: str, rows: Iterable[Any], *, partition: int = 0) -> None:
        """Rows come of a source, all at once, and all that follows from them happens.

        A row is a dict by column, a Row, a tuple in the order of the columns, or a bare value where there is
        one column. What `processor`, steps and windows make of them is put out when this returns.
        """
        __tracebackhide__ = True
        self._put(source, partition, given_rows(source, self._schema_of_source(source), rows))

    def feed_json(self, source: str, lines: Iterable[str], *, partition: int = 0) -> None:
        """The same for rows as JSON, a text each, as they stand in a file of JSON lines or in a topic."""
        __tracebackhide__ = True
        self._put(source, partition, given_lines(source, self._schema_of_source(source), lines))

    def end(self, *sources: str) -> None:
        """No more rows come of these sources (without a name: of any), as at the end of files."""
        __tracebackhide__ = True
        _known("source", sources, tuple(self._sources))
        for source in sources or self._sources:
            for shard in self._node.parts[source]:
                self._node.fed[source].end(shard)
        self._node.settle()

    def _put(self, source: str, partition: int, rows: Sequence[Any]) -> None:
        __tracebackhide__ = True
        shards = self._node.parts[source]
        if not 0 <= partition < len(shards):
            raise Misuse(
                f"source {source} has {len(shards)} partition{'s' if len(shards) > 1 else ''}, and no "
                f"partition {partition}; make the test with partitions={{{source!r}: {partition + 1}}}"
            )
        fed = self._node.fed[source]
        if fed.has_ended(shards[partition]):
            raise Misuse(f"source {source} has ended; feed it before end()")
        fed.put(shards[partition], rows, self._node.clock.now_us())
        self._node.settle()

    def _feed_initial(self, initial: Mapping[str, Iterable[Any]]) -> None:
        sources = {stage.initial_of: stage for stage in self._plan.stages if stage.initial_of}
        for name in initial:
            if name not in sources:
                raise Misuse(f"operator {name!r} has no initialState")
        for name, stage in sources.items():
            (shard,) = self._node.parts[stage.operator]
            fed = self._node.fed[stage.operator]
            rows = given_rows(stage.operator, stage.out.schema, initial.get(name, ()))
            fed.put(shard, rows, self._node.clock.now_us())
            fed.end(shard)

    def _schema_of_source(self, source: str) -> Schema:
        _known("source", (source,), tuple(self._sources))
        return self._sources[source]

    # --- time ---------------------------------------------------------------------------------

    @property
    def now(self) -> datetime.datetime:
        """The time that processors see, in UTC."""
        return instant(self._node.clock.now_us())

    def advance(
        self,
        duration: datetime.timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Let time pass. Timers fire at their time, one after the other; state expires."""
        __tracebackhide__ = True
        given = datetime.timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
        self.advance_to(self.now + given + (duration or datetime.timedelta()))

    def advance_to(self, at: datetime.datetime) -> None:
        """Let time pass until then."""
        __tracebackhide__ = True
        at_us = instant_us(at)
        if at_us < self._node.clock.now_us():
            raise Misuse(
                f"it is {self.now.isoformat()} already, and time never goes back to {at.isoformat()}"
            )
        self._node.advance(at_us)

    def advance_watermark(self, to: datetime.datetime, *, source: str | None = None) -> None:
        """Bring event time on, as a row would that processors do not see: no row before `to` is waited for
        any more. Of one source, or of all that have an event time; its watermark never goes back."""
        __tracebackhide__ = True
        begin = {
            name: delay
            for name in self._sources
            if (delay := _delay_ms(self._plan.stage(name).out)) is not None
        }
        if source is not None:
            _known("source", (source,), tuple(self._sources))
            if source not in begin:
                raise Misuse(f"source {source} has no eventTime, nor has a step behind it")
        if not begin:
            raise Misuse("no source of the topology has an eventTime")
        for name in begin if source is None else (source,):
            self._node.tasks[name].event_time_seen(instant_us(to) + begin[name] * 1000)
        self._node.settle()

    def watermark(self, operator: str) -> datetime.datetime | None:
        """How far event time is: of a source its own, of a processor, a window or a join that of its input.
        None before there is one."""
        stages = tuple(stage.operator for stage in self._plan.stages)
        _known("source, processor, window or join", (operator,), stages)
        found_ms = self._node.watermark_ms(operator)
        return None if found_ms is None else instant(found_ms * 1000)

    # --- what comes out -----------------------------------------------------------------------

    def rows(self, operator: str) -> list[dict[str, Any]]:
        """All rows so far that a sink was given, or that any other operator put out: a dict each.

        They stand in the order in which what they came of was fed; timers' behind, as they fired. In a run
        only rows of one key have an order.
        """
        if operator in self._node.batches:
            of_batches = self._node.batches[operator]
            shown = ShownRows(self._input_of(operator))
            return [shown.with_dicts(row) for number in sorted(of_batches) for row in of_batches[number]]
        _known("operator", (operator,), (*self._schemas, *self._sinks))
        schema = self._sinks.get(operator) or self._schemas[operator]
        name = operator if operator in self._sinks else rows_of(operator)
        return ShownRows(schema).rows(self._node.collected[name].rows)

    def take(self, operator: str) -> list[dict[str, Any]]:
        """Those of `rows` that came since the last call for this operator."""
        rows = self.rows(operator)
        new = rows[self._taken.get(operator, 0) :]
        self._taken[operator] = len(rows)
        return new

    def late_rows(self, operator: str) -> list[dict[str, Any]]:
        """Rows that came behind the watermark to a processor, window or join that goes by event time, also
        where there is no `lateTo`."""
        by_time = {s.operator: s.head for s in self._plan.stages if _by_event_time(s)}
        _known("operator that goes by event time", (operator,), tuple(by_time))
        collected = self._node.collected[late_rows_of(operator)]
        return ShownRows(self._input_of(operator)).rows(collected.rows)

    # --- what code failed on ------------------------------------------------------------------

    def dead_letters(self, operator: str) -> list[DeadLetter]:
        """What an operator whose `onError` says DeadLetter has kept apart: rows, key, what was raised.

        Those that go to the sink of `spec.deadLetters` are `rows("dead-letters")`."""
        letters = self._letters()
        _known("operator", (operator,), letters.operators)
        return letters.of(operator)

    def replay(self, operator: str) -> int:
        """Have all dead letters of an operator worked on again, as `penstock dead-letters replay` does; how
        many they were. Those that its code takes now are gone, with all that follows; others stay."""
        __tracebackhide__ = True
        letters = self._letters()
        _known("operator", (operator,), letters.operators)
        ordered = letters.order(operator)
        self._node.settle()
        return ordered

    def _letters(self) -> KeptLetters:
        shards = [shard for parts in self._node.parts.values() for shard in parts]
        return KeptLetters(self._plan, shards, self._node.store)

    # --- state --------------------------------------------------------------------------------

    def state(self, operator: str, key: Any) -> dict[str, Any]:
        """What a processor keeps of a key, by state variable: a value, a list, or a dict of a map.

        Of one column its value, of several a dict; None, [] and {} where nothing is kept. `key` is a value,
        of several columns a tuple or a dict. Read from the store, so it is what another task would find.
        """
        return self._kept(operator, key).values()

    def timers(self, operator: str, key: Any) -> list[datetime.datetime]:
        """When the timers of a key expire, in order."""
        return self._kept(operator, key).timers()

    def restart(self, *operators: str) -> None:
        """End the tasks of these operators (without a name: of all), and begin them anew, as after a kill, a
        move, or a new start: what their code kept in itself and not in state is gone."""
        __tracebackhide__ = True
        stages = tuple(stage.operator for stage in self._plan.stages)
        _known("source, processor, window or join", operators, stages)
        for operator in operators or stages:
            self._node.restart(operator)
        self._node.settle()

    def close(self) -> None:
        """Calls `close` of all processors. A `with` block does it at its end."""
        __tracebackhide__ = True
        self._node.close()

    def _kept(self, operator: str, key: Any) -> KeptState:
        heads = {
            stage.operator: stage.head
            for stage in self._plan.stages
            if isinstance(stage.head, Processor) and stage.head.target
        }
        _known("processor", (operator,), tuple(heads))
        head, task = heads[operator], self._node.tasks[operator]
        shard, kept_key = KeyOf(operator, head).find(key)
        place = (shard, self._node.generation, task.owned[shard])
        now_ms = self._node.clock.now_us() // 1000
        return KeptState(head, task.variables, self._node.store, place, kept_key, now_ms)

    def _input_of(self, operator: str) -> Schema:
        head = self._plan.stage(operator).head
        assert isinstance(head, Processor)
        return head.input


def _transforms(plan: Plan, base_dir: Path, spark: SparkSession | None) -> dict[str, Run]:
    """What works the plan's transforms out, by operator."""
    users = {name: user for name, user in batch_users(plan, base_dir) if not plan.stage(name).is_sink}
    if users and spark is None:
        raise Misuse(
            f"{joined(users)} {'is a transform' if len(users) == 1 else 'are transforms'}, which Spark works "
            "out; give the test a session of yours, spark=SparkSession..."
        )
    return {name: BatchCalls(spark, name, user).call for name, user in users.items()}


def _known(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            there = joined(known) if known else "none"
            raise Misuse(f"no {what} is called {name!r}{nearest(name, known)}; there is {there}")


def _schemas(plan: Plan) -> dict[str, Schema]:
    """Of all operators that put rows out, sinks left out."""
    found: dict[str, Schema] = {}
    for stage in plan.stages:
        if not stage.is_sink and not stage.initial_of:
            found[stage.operator] = stage.out.schema
            found |= _step_schemas(stage.out)
    return found


def _step_schemas(fanout: Fanout) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for step in fanout.steps:
        found |= {step.name: step.out.schema, **_step_schemas(step.out)}
    return found


def _by_event_time(stage: Stage) -> bool:
    return isinstance(stage.head, Processor) and stage.head.by_event_time


def _delay_ms(fanout: Fanout) -> int | None:
    """How far a watermark that begins there stays behind the latest event time; None where none begins."""
    if fanout.event_time is not None:
        return fanout.event_time.delay_ms
    delays = [delay for step in fanout.steps if (delay := _delay_ms(step.out)) is not None]
    return max(delays, default=None)


def _check_modules(topology: Topology, base_dir: Path) -> None:
    """Python has one module of a name: that of another folder must not be tested in this one's place."""
    module = topology.spec.code.module if topology.spec.code is not None else None
    if module is None:
        return
    top = module.partition(".")[0]
    beside = [path for path in (base_dir / f"{top}.py", base_dir / top / "__init__.py") if path.exists()]
    loaded = getattr(sys.modules.get(top), "__file__", None)
    if beside and loaded is not None and Path(loaded).resolve() != beside[0].resolve():
        raise Misuse(
            f"module {top!r} was imported from {loaded} before, and {beside[0]} has the same name: Python "
            "keeps one of a name. Give them two names, or test them by two calls of pytest"
        )
