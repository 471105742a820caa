"""Processors of our own put out the same in Penstock, in Spark itself, in rows and in pandas, and in
PySpark's TwsTester.

All cases of a group run in one query of Spark, whose micro-batches are the batches that Penstock works, each
under a new owner of the shards. The cases stand in `conformance/groups.py`; every difference that stays is in
docs/conformance.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backends.store_fixtures import RedisBackend
from conformance.case import Case, Group, Told, differences
from conformance.groups import CHANGED, GROUPS
from conformance.in_penstock import SHARDS, in_penstock
from conformance.in_spark import in_spark
from conformance.in_tester import in_tester
from penstock.store.port import Bounds
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


def test_the_processors_are_told_apart_by_their_names() -> None:
    assert len(set(NAMES)) == len(NAMES)
