"""Processors of our own put out the same in Penstock, in Spark itself, in rows and in pandas, and in
PySpark's TwsTester.

All cases of a group run in one query of Spark, whose micro-batches are the batches that Penstock works, each
under a new owner of the shards. Where they have timers and times to live, both go by a clock that the suite
sets for each batch. The cases stand in `conformance/groups.py`; every difference that stays is in
docs/conformance.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from backends.store_fixtures import RedisBackend
from conformance import timed_processors
from conformance.case import Case, Group, Told, differences, of_keys
from conformance.groups import CHANGED, GROUPS, TIMES_MS
from conformance.in_penstock import SHARDS, InPenstock, in_penstock
from conformance.in_spark import in_spark, run_clocked_query, transformed, write_parquet
from conformance.in_tester import in_tester
from conformance.timed_processors import Gathered, Totalled
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import PROCESSING_TIME
from penstock.store.port import Bounds
from penstock_worker.values.spark_types import struct_type
from scenes.store_scenario import Scene

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

CASES = [(group, case) for group in GROUPS for case in group.cases]
NAMES = [case.name for _, case in CASES]


Theirs = Callable[[Group, Case], Told]
"""What Spark puts out for a case; its group runs once."""


@pytest.fixture(scope="module")
def theirs(streaming: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    @cache
    def of_group(group: str) -> dict[str, Told]:
        (found,) = [one for one in GROUPS if one.name == group]
        return in_spark(streaming, found, tmp_path_factory.mktemp("spark"))

    return lambda group, case: of_group(group.name)[case.name][: len(case.batches)]


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisBackend]:
    backend = RedisBackend(tmp_path_factory.mktemp("stores"))
    yield backend
    backend.stop()


@pytest.mark.parametrize(("group", "case"), CASES, ids=NAMES)
def test_a_processor_puts_out_what_it_does_in_spark(
    group: Group, case: Case, theirs: Theirs, backend: RedisBackend
) -> None:
    backend.empty()
    bounds = Bounds(commit_bytes_max=64 << 20)  # a batch is one commit here
    scene = Scene(backend.open_store(bounds=bounds)).set_up(*SHARDS)
    assert differences(in_penstock(scene, group, case), theirs(group, case)) == []


@pytest.mark.parametrize(
    ("group", "case"),
    [(group, case) for group, case in CASES if case.in_tester],
    ids=[case.name for _, case in CASES if case.in_tester],
)
def test_a_processor_puts_out_what_it_does_in_pysparks_tester(
    group: Group, case: Case, theirs: Theirs
) -> None:
    assert differences(in_tester(group, case), theirs(group, case)) == []


def test_state_whose_schema_changes_is_read_as_spark_reads_it(
    streaming: SparkSession, backend: RedisBackend, tmp_path: Path
) -> None:
    """Spark takes a change with its Avro encoding only, and when the query starts again."""
    backend.empty()
    scene = Scene(backend.open_store(bounds=Bounds())).set_up(*SHARDS)
    streaming.conf.set("spark.sql.streaming.stateStore.encodingFormat", "avro")
    try:
        for number, group in enumerate(CHANGED):
            (case,) = group.cases
            theirs = in_spark(streaming, group, tmp_path, before=number)
            assert differences(in_penstock(scene, group, case), theirs[case.name]) == []
    finally:
        streaming.conf.unset("spark.sql.streaming.stateStore.encodingFormat")


def test_what_timers_put_out_goes_on_into_an_operator_with_timers_of_its_own(
    streaming: SparkSession, backend: RedisBackend, tmp_path: Path
) -> None:
    """Spark chains operators in its mode Append only."""
    backend.empty()
    given, between, output = map(
        parse_schema, ("word string, n bigint", "word string, n bigint", "text string")
    )
    batches = of_keys("ash", "sea", rows=lambda key, number: (key, number), counts=(2, 1, 3, 1, 1))
    times_ms = TIMES_MS[: len(batches)]

    first, second = (
        InPenstock(
            Scene(backend.open_store(topology=topology, bounds=Bounds())).set_up(*SHARDS),
            processor,
            of,
            ("word",),
            to,
            time_mode=PROCESSING_TIME,
        )
        for topology, processor, of, to in (
            ("t1", Totalled, given, between),
            ("t2", Gathered, between, output),
        )
    )
    ours = [
        sorted(text for (text,) in second.timed_batch(first.timed_batch(list(rows), now_ms), now_ms))
        for rows, now_ms in zip(batches, times_ms, strict=True)
    ]

    cloudpickle.register_pickle_by_value(timed_processors)
    (tmp_path / "input").mkdir()
    stream = streaming.readStream.schema(struct_type(given)).parquet(str(tmp_path / "input"))
    for processor, to in ((Totalled(), between), (Gathered(), output)):
        stream = transformed(
            stream, ("word",), processor, to, output_mode="Append", time_mode=PROCESSING_TIME
        )
    theirs = run_clocked_query(
        stream,
        tmp_path,
        times_ms,
        lambda number: write_parquet(tmp_path / "input", number, list(batches[number]), struct_type(given)),
        output_mode="Append",
    )
    assert ours == [sorted(json.loads(line)["text"] for line in lines) for lines in theirs]
    assert sum(map(len, ours)) > 15


def test_the_processors_are_told_apart_by_their_names() -> None:
    assert len(set(NAMES)) == len(NAMES)
