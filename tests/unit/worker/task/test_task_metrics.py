"""What a task tells of its shards: how long rows waited, were served, and how much of that was work."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.dataflow.plan import Fanout, Processor, Stage, Tasks
from penstock.dataflow.schema import Column, Schema
from penstock.metrics.rows import ShardRow, TaskRow, shard_row_name, task_row_name, unpack
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Claimed, Owner, PutMetrics
from penstock.store.stamps import Stamps
from penstock_worker.stages.work import Work
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.metrics import INTERVAL_US, TaskMetrics

SCHEMA = Schema((Column("k", "string"),))
STAGE = Stage("count", Processor("m:P", SCHEMA, (0,), 4), Tasks(1, 4, 1), Fanout(SCHEMA, (), (), ()))
SHARD = "count/0"


def metrics() -> TaskMetrics:
    launch = TaskLaunch(
        topology_uid="t",
        store_url="unix:///nowhere",
        worker="w0",
        owner=Owner("count-w0", "uid/0/0", "ready"),
        task=0,
        stage=STAGE,
        base_dir=".",
        durable=False,
        bounds=Bounds(),
        template="",
    )
    return TaskMetrics(launch, pid=1)


def owned() -> OwnedShard:
    return OwnedShard(SHARD, Claimed(3, 1, 0, 0, b"", 0, {}, finished=False))


def shard_row(told: PutMetrics) -> ShardRow:
    row = unpack("shard:", dict(told.rows)[shard_row_name(SHARD)])
    assert isinstance(row, ShardRow)
    return row


def test_rows_are_served_from_the_start_of_work_until_their_commit_is_applied() -> None:
    counted, shard = metrics(), owned()
    counted.adopted(shard, 0)
    work = Work(shard.commit(1_000, rows=3), [0, 0, 0], {}, busy_us=400, waited_us=900)
    counted.settled(shard, work, "count", 1_500)
    row = shard_row(counted.rows(1_600))
    assert (row.epoch, row.rows, row.busy_us, row.waited_us) == (3, 3, 400, 900)
    assert row.served_us == 3 * 500


def test_an_idle_task_has_nothing_to_wait_for() -> None:
    counted, shard = metrics(), owned()
    assert counted.wait_us(0) is None
    counted.adopted(shard, 0)
    assert counted.wait_us(0) == 0
    counted.rows(10)
    assert counted.wait_us(20) is None


def test_what_nobody_has_seen_yet_is_told_an_interval_after_the_last_row() -> None:
    counted, shard = metrics(), owned()
    counted.adopted(shard, 0)
    counted.rows(0)
    counted.settled(shard, Work(shard.commit(1_000, rows=1), [0], {}, 1, 1), "count", 2_000)
    assert counted.wait_us(2_000) == INTERVAL_US - 2_000
    assert counted.due(INTERVAL_US - 1) is None
    assert counted.due(INTERVAL_US) is not None


@pytest.mark.parametrize("stamps_us", [[7] * 300, list(range(0, 3_000_000, 10_007)), [5], []])
def test_ages_of_an_array_are_counted_as_those_of_a_list(stamps_us: list[int]) -> None:
    found = []
    for given in (stamps_us, Stamps(np.array(stamps_us, np.int64))):
        counted = metrics()
        counted.written("sink", given, 3_000_000)
        name = task_row_name("w0", "count-w0", 0)
        row = unpack(name, dict(counted.rows(0).rows)[name])
        assert isinstance(row, TaskRow)
        found.append(row.latency.get("sink", {}))
    assert found[0] == found[1]
    assert sum(found[0].values()) == len(stamps_us)
