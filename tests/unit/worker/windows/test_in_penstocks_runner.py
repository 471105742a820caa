"""Windows and joins over Penstock's own rows, state and timers put out what they do in TwsTester."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.streaming import StatefulProcessor

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.interval_join import LEFT_OUTER, IntervalJoin, JoinSide
from penstock.dataflow.plan import EVENT_TIME, ROWS
from penstock.dataflow.schema import Schema
from penstock.dataflow.window import Aggregate, Session, Sliding, Tumbling, Window, WindowAggregation
from penstock.store.ownership import OwnedShard
from penstock_worker.state.cache import StateCache
from penstock_worker.user_code.forms import WIRE
from penstock_worker.user_code.running import ProcessorRunner
from penstock_worker.values.rows import OutputShape
from penstock_worker.windows import open_slices
from penstock_worker.windows.processors import join_processor, takes_wire_rows, window_processor
from scenes.owned_state import SHARD, OwnedState
from scenes.window_scene import END_MS, WindowScene, at, ms_of

GIVEN = parse_schema("word string, at timestamp, n int, d decimal(5,2)")
JOINED = parse_schema(
    "k string, left struct<at:timestamp,tags:array<string>>, right struct<at:timestamp,n:int>"
)
AGGREGATES = (
    Aggregate("rows", "count"),
    Aggregate("total", "sum", "n"),
    Aggregate("most", "max", "d"),
    Aggregate("last", "max", "at"),
    Aggregate("distinct", "approxCountDistinct", "n"),
)
BATCH_ROWS = 20
Rows = list[tuple[Any, ...]]


def in_penstock(
    make: Callable[[], StatefulProcessor],
    given: Schema,
    output: Schema,
    rows: Rows,
    *others: tuple[str, Callable[[], StatefulProcessor]],
    form: str = ROWS,
) -> list[tuple[Any, ...]]:
    """What comes out, as wire rows: all rows in batches, and then all timers. `others`, of other forms, work
    on the same state: batches in turns, and the last of them all timers."""
    runners = [
        ProcessorRunner(made, given, (0,), output, "it", form, time_mode=EVENT_TIME)  # type: ignore[arg-type]
        for form, made in ((form, make), *others)
    ]
    runner = runners[-1]
    assert {one.variables for one in runners} == {runner.variables}
    scene = OwnedState(lambda handle: None).scene
    cache = StateCache(runner.variables, runner.key_types, scene.store.call)
    state = cache.shard(OwnedShard(SHARD, scene.claims[SHARD]))
    made = []
    for begin in range(0, len(rows), BATCH_ROWS):
        groups: dict[Any, Rows] = defaultdict(list)
        for row in OutputShape(given).wire_rows(rows[begin : begin + BATCH_ROWS]):
            groups[row[:1]].append(row)
        turn = runners[begin // BATCH_ROWS % len(runners)]
        for key, group in groups.items():
            made += turn.run(state, key, group, 0)
    runner.watermark_ms = END_MS
    assert runner._timers is not None
    for key in sorted({row[:1] for row in rows}):
        runner._cursor.at(state, state.begin(key))
        due = runner._timers.listed()
        assert due
        for expiry_ms in due:
            made += runner.expire(state, key, expiry_ms, 0)
        runner._cursor.at(state, state.begin(key))
        assert runner._timers.listed() == []
    return made


def in_tester(
    processor: StatefulProcessor, given: Schema, output: Schema, rows: Rows, time_of: Callable[[Any], float]
) -> Sequence[tuple[Any, ...]]:
    scene = WindowScene(processor, given.names, time_of)
    return OutputShape(output).wire_rows(scene.play(rows, BATCH_ROWS, END_MS))


@pytest.mark.parametrize("window", [Tumbling(100), Sliding(100, 30), Session(15)])
def test_windows(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_slices, "TOGETHER_BYTES_MAX", 200)
    random_ = random.Random(2)
    rows = [
        (random_.choice("abc"), at(random_.randrange(1, 1000)), random_.randrange(9), Decimal("0.25"))
        for _ in range(200)
    ]
    aggregation = WindowAggregation(window, "at", AGGREGATES)
    output = aggregation.output(GIVEN, (0,))

    def make() -> StatefulProcessor:
        return window_processor(aggregation, GIVEN, (0,))

    found = in_penstock(make, GIVEN, output, rows)
    assert sorted(found) == sorted(in_tester(make(), GIVEN, output, rows, lambda row: ms_of(row.at)))


PLAIN = (
    Aggregate("rows", "count"),
    Aggregate("numbers", "count", "n"),
    Aggregate("total", "sum", "n"),
    Aggregate("mean", "mean", "x"),
    Aggregate("least", "min", "x"),
    Aggregate("last", "max", "text"),
    Aggregate("distinct", "approxCountDistinct", "n"),
    Aggregate("tails", "approxQuantiles", "x", quantiles=(0.1, 0.9)),
)


@pytest.mark.parametrize("window", [Tumbling(100), Tumbling(100, 7), Sliding(100, 30)])
@pytest.mark.parametrize("wire_rows", ["in turns with rows", "alone"])
def test_windows_of_wire_rows_are_those_of_rows(
    window: Tumbling | Sliding, wire_rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_slices, "TOGETHER_BYTES_MAX", 500)
    given = parse_schema("word string, at timestamp, n int, x double, text string")
    random_ = random.Random(4)
    rows = [
        (
            random_.choice("abc"),
            at(random_.randrange(1, 1000)) if random_.random() < 0.9 else None,
            random_.choice([None, *range(9)]),
            random_.choice([None, 0.5, -0.0, float("inf")]),
            random_.choice([None, "x", "yy" * 50]),
        )
        for _ in range(200)
    ]
    aggregation = WindowAggregation(window, "at", PLAIN)
    assert takes_wire_rows(aggregation, given)
    output = aggregation.output(given, (0,))

    def make() -> StatefulProcessor:
        return window_processor(aggregation, given, (0,))

    def make_wire() -> StatefulProcessor:
        return window_processor(aggregation, given, (0,), wire=True)

    wanted = in_penstock(make, given, output, rows)
    if wire_rows == "alone":
        found = in_penstock(make_wire, given, output, rows, form=WIRE)
    else:
        found = in_penstock(make, given, output, rows, (WIRE, make_wire))
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert found


@pytest.mark.parametrize(
    ("aggregate", "takes"),
    [
        (Aggregate("it", "count"), True),
        (Aggregate("it", "sum", "n"), True),
        (Aggregate("it", "max", "at"), False),
        (Aggregate("it", "sum", "d"), False),
        (Aggregate("it", "somewhere:Volume", type="int"), False),
    ],
)
def test_wire_rows_are_taken_where_no_value_is_another_one_in_rows(aggregate: Aggregate, takes: bool) -> None:
    assert takes_wire_rows(WindowAggregation(Tumbling(100), "at", (aggregate,)), GIVEN) is takes
    assert not takes_wire_rows(WindowAggregation(Session(100), "at", (aggregate,)), GIVEN)


def test_an_interval_join() -> None:
    random_ = random.Random(3)
    rows: Rows = []
    for number in range(200):
        time = at(random_.randrange(1, 20_000))
        left = {"at": time, "tags": ["a", None, str(number)]}
        rows.append(
            (random_.choice("ab"), left, None) if number % 2 else ("a", None, {"at": time, "n": number})
        )
    join = IntervalJoin(
        JoinSide("at", (("tags", "tags"), ("at", "shown"))),
        JoinSide("at", (("n", "n"),)),
        -500,
        700,
        LEFT_OUTER,
    )
    output = join.output(JOINED)

    def make() -> StatefulProcessor:
        return join_processor(join, JOINED)

    found = in_penstock(make, JOINED, output, rows)
    wanted = in_tester(make(), JOINED, output, rows, lambda row: ms_of((row.left or row.right)["at"]))
    assert len(found) > 100
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
