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
from penstock_worker.user_code.running import ProcessorRunner
from penstock_worker.values.rows import OutputShape
from penstock_worker.windows import open_slices
from penstock_worker.windows.processors import join_processor, window_processor
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
    make: Callable[[], StatefulProcessor], given: Schema, output: Schema, rows: Rows
) -> list[tuple[Any, ...]]:
    """What comes out, as wire rows: all rows in batches, and then all timers."""
    runner = ProcessorRunner(make, given, (0,), output, "it", ROWS, time_mode=EVENT_TIME)  # type: ignore[arg-type]
    scene = OwnedState(lambda handle: None).scene
    cache = StateCache(runner.variables, runner.key_types, scene.store.call)
    state = cache.shard(OwnedShard(SHARD, scene.claims[SHARD]))
    made = []
    for begin in range(0, len(rows), BATCH_ROWS):
        groups: dict[Any, Rows] = defaultdict(list)
        for row in OutputShape(given).wire_rows(rows[begin : begin + BATCH_ROWS]):
            groups[row[:1]].append(row)
        for key, group in groups.items():
            made += runner.run(state, key, group, 0)
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
