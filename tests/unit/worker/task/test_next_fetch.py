"""What a task asks of its ready list next: timers, once all initial state is in inboxes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.connectors.console import ConsoleSink
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import Fanout, InitialState, Processor, Stage, Tasks
from penstock.store.port import Bounds, Entry, Fetched, FetchedShard, Owner, ReadWatermark, Watermark
from penstock_worker.stages.initial_gate import END_MS, LOOK_US
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.next_fetch import NextFetch
from penstock_worker.task.store_pressure import StorePressure
from scenes.task_scene import TurnedClock

SCHEMA = parse_schema("word string")
INITIAL = InitialState("count-initial", SCHEMA, (0,))
LONG_US = 10_000_000


def launch(mode: str, initial: InitialState | None = INITIAL) -> TaskLaunch:
    producers = ("words",) if mode == "EventTime" else ()
    head = Processor("m:Count", SCHEMA, (0,), 8, time_mode=mode, producers=producers, initial=initial)
    stage = Stage("count", head, Tasks(1, 1, 1), Fanout(SCHEMA, (), (), ()))
    owner = Owner("w0", "count-w0", "count-w0@1")
    return TaskLaunch("t", "redis://", "w0", owner, 0, stage, "", False, Bounds())


class Stores:
    """What they know of the operator that reads the initial state."""

    def __init__(self) -> None:
        self.told = Watermark(None)
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, call: ReadWatermark) -> Watermark:
        self.asked.append(call.producers)
        return self.told


def next_fetch(given: TaskLaunch, clock: TurnedClock, stores: Any) -> NextFetch:
    return NextFetch(given, clock, StorePressure("count-w0.0", source=False), stores)


def test_timers_are_asked_for_when_all_initial_state_is_in_inboxes() -> None:
    clock, stores = TurnedClock(), Stores()
    fetching = next_fetch(launch("ProcessingTime"), clock, stores)
    assert fetching.call(clock.monotonic_us()).timers_max == 0
    fetching.answered(None, Fetched((), control=False))
    assert fetching.wait_us(LONG_US, clock.monotonic_us()) <= LOOK_US
    stores.told = Watermark(END_MS)
    clock.sleep_us(LOOK_US)
    assert fetching.call(clock.monotonic_us()).timers_max > 0
    assert fetching.wait_us(LONG_US, clock.monotonic_us()) == LONG_US
    asked = len(stores.asked)
    clock.sleep_us(LOOK_US)
    fetching.call(clock.monotonic_us())
    assert stores.asked == [("count-initial",)] * asked


@pytest.mark.parametrize(("mode", "initial"), [("EventTime", INITIAL), ("ProcessingTime", None)])
def test_without_it_and_by_event_time_nothing_is_asked(mode: str, initial: InitialState | None) -> None:
    clock, stores = TurnedClock(), Stores()
    fetch = next_fetch(launch(mode, initial), clock, stores).call(clock.monotonic_us())
    assert fetch.timers_max > 0
    assert stores.asked == []


def test_without_timers_nothing_is_asked() -> None:
    clock, stores = TurnedClock(), Stores()
    given = launch("None")
    assert next_fetch(replace(given), clock, stores).call(clock.monotonic_us()).timers_max == 0
    assert stores.asked == []


def test_a_fetch_of_a_sinks_stage_asks_for_as_much_however_long_a_batch_took() -> None:
    given = launch("None")
    sink = replace(given.stage, head=Processor("", SCHEMA, (), 1, batches_to=ConsoleSink("out")))
    clock, work = TurnedClock(), [FetchedShard("out/0", 1, 0, (Entry(1, 0, b"x" * 900),))]
    keyed, of_sink = (next_fetch(each, clock, Stores()) for each in (given, replace(given, stage=sink)))
    first = of_sink.call(clock.monotonic_us())
    before = keyed.call(clock.monotonic_us())
    for fetching in (keyed, of_sink):
        fetching.worked(work, 60_000_000)
    assert keyed.call(clock.monotonic_us()).bytes_max < before.bytes_max
    assert of_sink.call(clock.monotonic_us()) == first
