"""The plans of simulated topologies, and the user code of their keyed stages.

By the clock and by event time `src`, `mid` and `end` stand in a row; `mid` may begin with initial rows, which
a source of its own reads. In the third one `mid` joins `src` and `side`. Neighbours: the workloads say what
they compute, `stages` makes the product's stages of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from penstock.connectors.console import ConsoleSink
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.interval_join import joined_schema
from penstock.dataflow.plan import (
    EVENT_TIME,
    PROCESSING_TIME,
    ROWS,
    EventTime,
    Fanout,
    InitialState,
    KeyedEdge,
    Plan,
    Processor,
    Projection,
    Stage,
    Tasks,
)
from penstock.dataflow.schema import Column, Schema
from penstock_simulation.protocol import event_code, join_workload, user_code
from penstock_simulation.protocol.event_workload import AT, DELAY_MS, IDLE_MS
from penstock_simulation.protocol.workload import SHARDS, SINK
from penstock_worker.windows.interval_join import IntervalJoinProcessor

NEVER_MS = 1_000_000
"""No partition is idle before it ends."""
_TASKS = Tasks(1, 1, 1)
_NO_SOURCE = ZipfSource(1, 1.0, 1, 0, None, None, 0.0, len(SHARDS.src), 0)
"""Only says that it is one: `PartitionReader` reads."""


def _schema(*names: str) -> Schema:
    return Schema(tuple(Column(name, "int") for name in names))


_ROWS = _schema("key", "part", "number")
_TIMED_ROWS = _schema("key", "part", "number", "at_us", "of_window", "of_next_window")
_JOINED_ROWS = Schema((*_schema("key", "number").columns, Column("at", "timestamp")))


@dataclass(frozen=True)
class Topology:
    """A plan, and the user code of its keyed stages: what makes a processor."""

    plan: Plan
    processors: Mapping[str, Callable[[], Any]]


def _fanout(
    schema: Schema, *, sinks: tuple[ConsoleSink, ...] = (), edges: tuple[KeyedEdge, ...] = ()
) -> Fanout:
    return Fanout(schema, (), sinks, edges)


def _plan(*stages: Stage) -> Plan:
    return Plan("simulated", "", "Process", workers_initial=4, memory_bytes=0, stages=stages)


def _to_mid(projection: Projection | None = None) -> tuple[KeyedEdge, ...]:
    return (KeyedEdge("mid", (0,), len(SHARDS.mid), projection),)


_OUTSIDE = (ConsoleSink(SINK),)
_IN_A_ROW = _plan(
    Stage("src", _NO_SOURCE, _TASKS, _fanout(_ROWS, edges=_to_mid())),
    Stage(
        "mid",
        Processor("Mid", _ROWS, (0,), len(SHARDS.mid), time_mode=PROCESSING_TIME),
        _TASKS,
        _fanout(_ROWS, edges=(KeyedEdge("end", (0,), len(SHARDS.end)),)),
    ),
    Stage(
        "end",
        Processor("End", _ROWS, (0,), len(SHARDS.end), time_mode=PROCESSING_TIME),
        _TASKS,
        _fanout(_ROWS, sinks=_OUTSIDE),
    ),
)


def _by_event_time(plan: Plan, idle_ms: int) -> Plan:
    """The same stages over rows with event times, which both keyed stages go by."""
    src, mid, end = (replace(stage, out=replace(stage.out, schema=_TIMED_ROWS)) for stage in plan.stages)
    heads = [
        replace(
            stage.head,
            input=_TIMED_ROWS,
            time_mode=EVENT_TIME,
            event_column=AT,
            producers=(producer,),
            keyed_producers=keyed,
        )
        for stage, producer, keyed in ((mid, "src", ()), (end, "mid", ("mid",)))
        if isinstance(stage.head, Processor)
    ]
    time = EventTime(AT, DELAY_MS, idle_ms)
    return _plan(
        replace(src, out=replace(src.out, event_time=time), tells_watermark=True),
        replace(mid, head=heads[0], tells_watermark=True),
        replace(end, head=heads[1]),
    )


def _with_initial(plan: Plan) -> Plan:
    """The same, where `mid` begins with rows that a source of its own reads."""
    src, mid, end = plan.stages
    initial = InitialState("mid-initial", _ROWS, (0,))
    head = cast("Processor", mid.head)
    reading = Stage(initial.source, _NO_SOURCE, _TASKS, _fanout(_ROWS, edges=_to_mid()), initial_of="mid")
    return _plan(
        reading,
        replace(src, waits_for=(initial.source,)),
        replace(mid, head=replace(head, initial=initial)),
        end,
    )


@cache
def by_the_clock(*, initial: bool) -> Topology:
    if initial:
        return Topology(_with_initial(_IN_A_ROW), {"mid": user_code.MidWithInitial, "end": user_code.End})
    return Topology(_IN_A_ROW, {"mid": user_code.Mid, "end": user_code.End})


@cache
def by_tables() -> Topology:
    """By the clock, where both keyed stages may have routing tables; for itself, since edges keep routes."""
    src, mid, end = _IN_A_ROW.stages
    plan = _plan(_with_tables(src), _with_tables(mid), _with_tables(end))
    return Topology(plan, {"mid": user_code.Mid, "end": user_code.End})


def _with_tables(stage: Stage) -> Stage:
    edges = tuple(replace(edge, locality=True) for edge in stage.out.edges)
    head = replace(stage.head, locality=True) if isinstance(stage.head, Processor) else stage.head
    return replace(stage, head=head, out=replace(stage.out, edges=edges))


@cache
def by_event_time(*, initial: bool, resting: bool) -> Topology:
    """`resting`: a partition that gives no rows for a while is idle."""
    plan = _by_event_time(_IN_A_ROW, IDLE_MS if resting else NEVER_MS)
    if initial:
        return Topology(_with_initial(plan), {"mid": event_code.MidWithInitial, "end": event_code.End})
    return Topology(plan, {"mid": event_code.Mid, "end": event_code.End})


@cache
def joined(processor: Callable[..., IntervalJoinProcessor], *, resting: bool) -> Topology:
    """Two sources, and a join of them that `processor` does."""
    join = join_workload.JOIN
    given = joined_schema(join, _JOINED_ROWS, (0,), _JOINED_ROWS)
    time = EventTime(join_workload.AT, DELAY_MS, IDLE_MS if resting else NEVER_MS)
    sources = [
        Stage(
            name,
            _NO_SOURCE,
            _TASKS,
            replace(
                _fanout(_JOINED_ROWS, edges=_to_mid(Projection((0,), join_workload.AT, side))),
                event_time=time,
            ),
            tells_watermark=True,
        )
        for side, name in enumerate(("src", "side"))
    ]
    head = Processor(
        "",
        given,
        (0,),
        len(SHARDS.mid),
        ROWS,
        time_mode=EVENT_TIME,
        event_column=join_workload.AT_BEHIND,
        producers=("src", "side"),
        join=join,
    )
    mid = Stage("mid", head, _TASKS, _fanout(join.output(given), sinks=_OUTSIDE))

    def made() -> IntervalJoinProcessor:
        return processor(join, given)

    return Topology(_plan(*sources, mid), {"mid": made})
