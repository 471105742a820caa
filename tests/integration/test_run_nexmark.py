"""NEXMark's queries end to end: `penstock run`, killed while it reads, gives what Spark's batch gives over
the same events."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pyspark.sql import DataFrame, SparkSession

from clocks.eventually import eventually
from house import ROOT
from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.connectors.nexmark import SCHEMAS, NexmarkSource, Stream
from penstock.dataflow.json_rows import JsonRows
from penstock_worker.kinds.sources import open_reader
from penstock_worker.values.spark_types import struct_type
from processes.run_harness import Run, tasks_held

EXAMPLE = ROOT / "examples" / "nexmark"
VIEWS: dict[Stream, str] = {"Persons": "person", "Auctions": "auction", "Bids": "bid"}
EVENTS = 20_000
BIDS = 18_400
EVENTS_PER_SECOND = 500
"""Of event time, so that there are several windows."""

LAST = "2015-07-15 00:00:39.9"
"""Event times end there."""
BY_WINDOWS = {
    "q5": ("starttime timestamp, endtime timestamp, auction long, num long", "endtime"),
    "q7": (
        "auction long, bidder long, price long, dateTime timestamp, extra string",
        "timestamp_seconds(floor(unix_timestamp(dateTime) / 10) * 10 + 10)",
    ),
    "q8": ("id long, name string, starttime timestamp", "starttime + interval 10 seconds"),
    "q11": ("bidder long, bid_count long, windowStart timestamp, windowEnd timestamp", "endtime"),
}
"""Query -> the columns of its rows as written, in the batch's order, and when a row's window is over."""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def batch_queries() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("spark_queries", EXAMPLE / "spark_queries.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.QUERIES)


@pytest.fixture(scope="module")
def source() -> NexmarkSource:
    """The example's generator, with fewer events and more of their time between them."""
    head = compile_topology(load_topology(EXAMPLE / "stateless.yaml")).stage("bids").head
    assert isinstance(head, NexmarkSource)
    return replace(head, events=EVENTS, events_per_s=EVENTS_PER_SECOND)


@pytest.fixture(scope="module")
def answers(
    spark: SparkSession, source: NexmarkSource, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, DataFrame]:
    """What Spark's batch says to each query, over all events of that generator, read in one go."""
    folder = tmp_path_factory.mktemp("events")
    for stream in get_args(Stream):
        whole = replace(source, stream=stream, partitions=1, rate_per_s=None)
        reader = open_reader("gen", whole, folder)
        reader.open("gen/0", b"", 0)
        rows = reader.read("gen/0", b"", EVENTS, 1 << 40, 0).rows
        (folder / f"{stream}.jsonl").write_bytes(JsonRows(SCHEMAS[stream]).lines(rows))
        frame = spark.read.schema(struct_type(SCHEMAS[stream])).json(str(folder / f"{stream}.jsonl"))
        frame.createOrReplaceTempView(VIEWS[stream])
    return {name: spark.sql(text) for name, text in batch_queries().items()}


@pytest.mark.slow(held_by="test_windows_and_windows_of_windows_are_whole_whatever_is_killed")
def test_queries_1_and_2_give_what_sparks_batch_gives_while_tasks_are_killed(
    tmp_path: Path, runs: list[Run], spark: SparkSession, answers: dict[str, DataFrame]
) -> None:
    for name in ("nexmark.py", "stateless.yaml"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    settings = {"eventsTotal": EVENTS, "eventsPerSecond": EVENTS_PER_SECOND, "ratePerSecond": 5_000}
    changes = [
        part for name, value in settings.items() for part in ("--set", f"bids.source.nexmark.{name}={value}")
    ]
    run = Run(tmp_path / "stateless.yaml", tmp_path / "state", ("--workers", "1", *changes))
    runs.append(run)
    run.start()
    eventually(lambda: written(tmp_path / "out" / "q1") > 0, "bids in euros")
    with tasks_held(run, "bids"):
        reading = run.tasks("bids")
        assert reading, "the input ended before the kill"
        for task in reading:
            os.kill(task.pid, signal.SIGKILL)
    assert 0 < written(tmp_path / "out" / "q1") < BIDS
    assert run.finish() == 0, run.output
    for query in ("q1", "q2"):
        expected = answers[query]
        found = spark.read.schema(expected.schema).json(str(tmp_path / "out" / query))
        assert told(found) == told(expected)
    assert answers["q1"].count() == BIDS


@pytest.mark.slow(held_by="test_windows_and_windows_of_windows_are_whole_whatever_is_killed")
def test_queries_by_event_time_give_what_sparks_batch_gives_while_tasks_are_killed(
    tmp_path: Path, runs: list[Run], spark: SparkSession, answers: dict[str, DataFrame]
) -> None:
    """Windows that are open when the input ends stay so: of those nothing is wanted."""
    for name in ("nexmark.py", "queries.yaml"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    settings = {"eventsTotal": EVENTS, "eventsPerSecond": EVENTS_PER_SECOND, "ratePerSecond": 4_000}
    changes = [
        part
        for source in ("persons", "auctions", "bids")
        for name, value in settings.items()
        for part in ("--set", f"{source}.source.nexmark.{name}={value}")
    ]
    run = Run(tmp_path / "queries.yaml", tmp_path / "state", ("--workers", "1", *changes))
    runs.append(run)
    run.start()
    for victim in ("bids-on-auctions", "q5", "highest"):
        eventually(lambda: written(tmp_path / "out" / "q8") > 0, "windows that are over")
        with tasks_held(run, victim):
            for task in run.tasks(victim):
                os.kill(task.pid, signal.SIGKILL)
    assert run.finish() == 0, run.output

    for query, (columns, over) in BY_WINDOWS.items():
        # Made first: Spark would push what is asked of a session's end down to its rows.
        wanted = spark.createDataFrame(answers[query].collect(), answers[query].schema)
        found = spark.read.schema(columns).json(str(tmp_path / "out" / query)).toDF(*wanted.columns)
        ended = wanted.where(f"{over} <= timestamp '{LAST}' - interval 1 second")
        assert ended.count() > 1, query
        assert told(ended) - told(found) == Counter(), query
        assert told(found) - told(wanted) == Counter(), query

    last: dict[int, float] = {}
    for path in (tmp_path / "out" / "q4").glob("*.jsonl"):
        last |= {row["category"]: row["final"] for row in map(json.loads, path.read_text().splitlines())}
    assert last == pytest.approx({row.category: row.final for row in answers["q4"].collect()})


@pytest.mark.parametrize("query", sorted(batch_queries()))
def test_each_query_has_an_answer_in_sparks_batch(query: str, answers: dict[str, DataFrame]) -> None:
    assert answers[query].count() > 0


def written(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.jsonl"))


def told(frame: DataFrame) -> Counter[Any]:
    """How often each row comes."""
    return Counter(map(tuple, frame.collect()))
