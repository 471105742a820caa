"""A source stage over a data source of PySpark's: positions without rows are committed, and nothing is asked
while nothing is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import parse_manifest
from penstock.store.ownership import OwnedShard
from penstock.store.port import Answer, Bounds, Claimed, FetchedShard
from penstock_worker.kinds.sources import open_reader
from penstock_worker.sources.range_position import range_position
from penstock_worker.stages.source_stage import SourceStage
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.work import Rest, Work, WorkFailed
from scenes.task_scene import TurnedClock

SHARD = "numbers/0"
AT_START = FetchedShard(SHARD, 1, 0, ())
MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {{name: t}}
spec:
  operators:
  - name: numbers
    source: {{dataSource: {{class: "{source}", schema: "{schema}", options: {{upTo: "20", rows: "20"}}}}}}
  - name: out
    inputs: [numbers]
    sink: {{console: {{}}}}
"""


def stage_of(clock: TurnedClock, source: str, schema: str) -> tuple[SourceStage, OwnedShard]:
    manifest = parse_manifest(MANIFEST.format(source=source, schema=schema))
    stage = compile_topology(manifest.topology).stage("numbers")
    reader = open_reader("numbers", stage.head, Path.cwd())  # type: ignore[arg-type]
    made = SourceStage(stage, reader, FanoutRunner(stage.out, Path.cwd()), Bounds(), clock)
    owned = OwnedShard(SHARD, Claimed(1, 1, 0, 0, b"", 0, {}, False))
    made.adopt(owned)
    return made, owned


def worked(stage: SourceStage, owned: OwnedShard) -> Work:
    work = stage.work(owned, AT_START)
    assert isinstance(work, Work)
    owned.settle(work.commit, Answer.OK)
    stage.settled(owned, work)
    return work


def test_start_and_ranges_are_committed_without_rows_and_come_again_at_once() -> None:
    clock = TurnedClock()
    stage, owned = stage_of(clock, "scenes.users_sources:Counter", "number bigint, partition int")
    works = [worked(stage, owned) for _ in range(5)]
    assert [work.commit.consumed_rows for work in works] == [0, 0, 10, 0, 10]
    assert all(work.commit.again and not work.commit.finished for work in works)
    assert [len(work.commit.outputs) for work in works] == [0, 0, 1, 0, 1]
    ends = [range_position(work.commit.position or b"").end for work in works]
    assert ends == [None, '{"next":10}', None, '{"next":20}', None]
    rest = stage.work(owned, AT_START)
    assert isinstance(rest, Rest)
    assert rest.until_us > clock.now_us()


def test_a_bounded_reader_finishes_its_shard() -> None:
    stage, owned = stage_of(TurnedClock(), "scenes.users_sources:Table", "number bigint, square double")
    rows = 0
    while not owned.finished:
        rows += worked(stage, owned).commit.consumed_rows
    assert rows == 20
    assert not stage.grew(owned)


def test_rows_that_do_not_fit_fail_the_operator_in_words() -> None:
    stage, owned = stage_of(TurnedClock(), "scenes.users_sources:Counter", "number string, partition int")
    worked(stage, owned)
    worked(stage, owned)
    with pytest.raises(
        WorkFailed, match=r"(?s)operator numbers: CounterReader\.read, in what it gave:.*string"
    ):
        stage.work(owned, AT_START)
