"""Windows and joins put out what Spark's own `window`, `session_window` and join do, over the same events.

The processors run in PySpark's TwsTester, batch by batch, against Spark in batch; and in Spark itself, by
`transformWithState`, against that. Events are seeded, out of order within the delay, so that none is late.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own pages have it

from conformance.in_spark import write_parquet
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.interval_join import INNER, LEFT_OUTER, IntervalJoin, JoinSide
from penstock.dataflow.window import Aggregate, Session, Sliding, Tumbling, Window, WindowAggregation
from penstock_worker.values.spark_types import struct_type
from penstock_worker.windows.processors import join_processor, window_processor
from scenes.window_scene import WindowScene, at, ms_of

pytestmark = pytest.mark.integration

GIVEN = parse_schema("word string, at timestamp, n int, x double, d decimal(5,2)")
DELAY_MS = 3_000
DISTANCE_MS = 60_000_000
"""The first event is so long after 1970: Spark's watermark begins there."""
TIMES = {
    "tumbling": (Tumbling(10_000), "window(at, '10 seconds')"),
    "tumbling from an offset": (
        Tumbling(10_000, -2_500),
        "window(at, '10 seconds', '10 seconds', '-2500 milliseconds')",
    ),
    "sliding": (Sliding(10_000, 4_000, 1_000), "window(at, '10 seconds', '4 seconds', '1 second')"),
    "sessions": (Session(1_200), "session_window(at, '1200 milliseconds')"),
}
"""Each with Spark's words for it,"""
AGGREGATES = {
    Aggregate("rows", "count"): "count(*)",
    Aggregate("numbers", "count", "n"): "count(n)",
    Aggregate("n_sum", "sum", "n"): "sum(n)",
    Aggregate("x_sum", "sum", "x"): "sum(x)",
    Aggregate("d_sum", "sum", "d"): "sum(d)",
    Aggregate("n_mean", "mean", "n"): "mean(n)",
    Aggregate("d_mean", "mean", "d"): "mean(d)",
    Aggregate("x_min", "min", "x"): "min(x)",
    Aggregate("x_max", "max", "x"): "max(x)",
    Aggregate("d_min", "min", "d"): "min(d)",
    Aggregate("at_max", "max", "at"): "max(at)",
    Aggregate("distinct", "approxCountDistinct", "n"): "cast(size(collect_set(n)) as bigint)",
    Aggregate("tails", "approxQuantiles", "n", (0.1, 0.5, 1.0)): (
        "transform(percentile_approx(n, array(0.1, 0.5, 1.0), 100000), value -> cast(value as double))"
    ),
}
"""and so has each of these. With so few values the approximate ones are exact."""
Events = list[tuple[Any, ...]]


def events(seed: int, count: int = 600) -> Events:
    """Within DELAY_MS of the order of their times."""
    random_ = random.Random(seed)
    found = []
    for number in range(count):
        ms = DISTANCE_MS + number * 100 + random_.randrange(DELAY_MS * 1000) / 1000
        n = random_.choice([None, -7, 0, 5, 40, number])
        x = random_.choice([None, 0.25, -1.5, math.nan, float(number)])
        d = random_.choice([None, Decimal("1.15"), Decimal("-3.10"), Decimal("999.99")])
        found.append((random_.choice("abcde"), at(ms if number % 3 else ms // 100 * 100), n, x, d))
    return found


def aggregation(window: Window) -> WindowAggregation:
    return WindowAggregation(window, "at", tuple(AGGREGATES))


def in_tester(window: Window, given: Events, batch_rows: int) -> list[str]:
    processor = window_processor(aggregation(window), GIVEN, (0,))
    scene = WindowScene(processor, GIVEN.names, lambda row: ms_of(row.at))
    made = scene.play(given, batch_rows, DELAY_MS + 1)
    assert scene.holds_nothing()
    return shown(made)


def in_spark_batch(spark: SparkSession, window: str, given: Events) -> list[str]:
    frame = spark.createDataFrame(given, struct_type(GIVEN)).where("at is not null")
    computed = [F.expr(column).alias(one.output) for one, column in AGGREGATES.items()]
    grouped = frame.groupBy("word", F.expr(window).alias("bounds")).agg(*computed)
    names = ["word", "bounds.start", "bounds.end", *(one.output for one in AGGREGATES)]
    return shown(map(tuple, utc(grouped.select(*names)).collect()))


def utc(frame: DataFrame) -> DataFrame:
    """Times as microseconds: what the driver makes of a timestamp depends on its own zone."""
    for name, type_ in frame.dtypes:
        if type_ == "timestamp":
            frame = frame.withColumn(name, F.unix_micros(name))
    return frame


def shown(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """In an order of their own; sums of doubles depend on theirs in the last digits."""

    def told(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(told, value))
        if isinstance(value, float):
            return f"{value:.9g}"
        return round(ms_of(value) * 1000) if hasattr(value, "tzinfo") else value

    return sorted(str(tuple(map(told, row))) for row in rows)


@pytest.mark.parametrize("name", TIMES)
def test_windows_are_sparks_in_batch(streaming: SparkSession, name: str) -> None:
    window, column = TIMES[name]
    given = events(seed=len(name))
    wanted = in_spark_batch(streaming, column, given)
    assert len(wanted) > 30
    for batch_rows in (1, 97):
        assert in_tester(window, given, batch_rows) == wanted


@pytest.mark.parametrize(
    "name",
    [
        "sliding",
        pytest.param("sessions", marks=pytest.mark.slow(held_by="test_the_processors_run_in_spark_itself")),
    ],
)
def test_the_processors_run_in_spark_itself(streaming: SparkSession, name: str, tmp_path: Path) -> None:
    window, column = TIMES[name]
    given = events(seed=7, count=300)
    processor = window_processor(aggregation(window), GIVEN, (0,))
    output = struct_type(aggregation(window).output(GIVEN, (0,)))
    late = [("z", at(DISTANCE_MS * 2), None, None, None)]
    for number, batch in enumerate([given[:150], given[150:], late]):
        write_parquet(tmp_path / "input", number, batch, struct_type(GIVEN))
    found: list[str] = []
    stream = streaming.readStream.schema(struct_type(GIVEN)).option("maxFilesPerTrigger", 1)
    query = (
        stream.parquet(str(tmp_path / "input"))
        .withWatermark("at", f"{DELAY_MS + 1} milliseconds")
        .groupBy("word")
        .transformWithState(processor, output, "Append", "EventTime")
        .writeStream.outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(lambda frame, _: found.extend(shown(map(tuple, utc(frame).collect()))))
        .start()
    )
    query.awaitTermination()
    assert sorted(found) == in_spark_batch(streaming, column, given)


JOINED = parse_schema("k string, left struct<at:timestamp,ad:int>, right struct<at:timestamp,price:double>")
JOIN_OF: Callable[[str], IntervalJoin] = lambda how: IntervalJoin(  # noqa: E731 - one value for each `how`
    JoinSide("at", (("ad", "ad"), ("at", "shown"))),
    JoinSide("at", (("price", "price"), ("at", "clicked"))),
    -700,
    1_500,
    how,
)


@pytest.mark.parametrize("how", [INNER, LEFT_OUTER])
def test_joins_are_sparks_in_batch(streaming: SparkSession, how: str) -> None:
    random_ = random.Random(11)
    given: Events = []
    for number, (key, time, *_) in enumerate(events(seed=3, count=300)):
        if random_.random() < 0.5:
            given.append((key, {"at": time, "ad": number}, None))
        else:
            given.append((key, None, {"at": time, "price": number / 4}))
    scene = WindowScene(
        join_processor(JOIN_OF(how), JOINED), JOINED.names, lambda row: ms_of((row.left or row.right)["at"])
    )
    found = scene.play(given, 40, DELAY_MS + 1)
    assert scene.holds_nothing()
    frame = streaming.createDataFrame(given, struct_type(JOINED))
    left = frame.where("left is not null").select("k", "left.*").withColumnRenamed("at", "shown")
    right = frame.where("right is not null").select(F.col("k").alias("r"), "right.*")
    right = right.withColumnRenamed("at", "clicked")
    near = (
        "k = r and clicked between shown - interval 700 milliseconds and shown + interval 1500 milliseconds"
    )
    both = left.join(right, F.expr(near), "inner" if how == INNER else "left_outer")
    wanted = shown(map(tuple, utc(both.select("ad", "shown", "price", "clicked")).collect()))
    assert len(wanted) > 100
    assert shown(found) == wanted
