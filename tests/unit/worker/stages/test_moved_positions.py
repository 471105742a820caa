"""A source's position that moved without a row is committed; what it tells of its lag stands beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.connectors.files import FilesSource
from penstock.dataflow.source import ADDED
from penstock.store.ownership import OwnedShard
from penstock.store.port import Answer, Bounds, Claimed, FetchedShard
from penstock_worker.sources.reader import SourceBatch
from penstock_worker.stages.source_stage import SourceStage
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.work import Rest, Work
from scenes.task_scene import TurnedClock

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: t}
spec:
  operators:
  - {name: in, source: {files: {glob: "*.txt"}}}
  - {name: out, inputs: [in], sink: {console: {}}}
"""
SHARD = "in/t/0"
NOTHING = FetchedShard(SHARD, 1, 0, ())


class Told:
    """Gives one batch after the other."""

    def __init__(self, *batches: SourceBatch) -> None:
        self._batches: Iterator[SourceBatch] = iter(batches)
        self.asked: list[bytes] = []

    @property
    def paced(self) -> bool:
        return False

    def open(self, shard: str, position: bytes, now_us: int) -> None: ...

    def release(self, shard: str) -> None: ...

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        self.asked.append(position)
        return next(self._batches)

    def grew(self, shard: str, position: bytes) -> bool:
        return False

    def close(self) -> None: ...


def test_a_place_to_begin_is_committed_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    stage = compile_topology(load_topology(tmp_path / "topology.yaml")).stage("in")
    reader = Told(
        SourceBatch([], [], b"place", finished=False, next_due_us=5),
        SourceBatch([], [], b"place", finished=False, next_due_us=7, lag=(3, 20)),
        SourceBatch([("x",)], [1], b"behind", finished=False, next_due_us=None, lag=(2, 10)),
    )
    source = SourceStage(stage, reader, FanoutRunner(stage.out, tmp_path), Bounds(), TurnedClock())
    owned = OwnedShard(SHARD, Claimed(1, 1, 0, 0, b"", 0, {}, False))
    source.adopt(owned)
    worked = source.work(owned, NOTHING)
    assert isinstance(worked, Work)
    assert (worked.commit.position, worked.commit.consumed_rows, worked.commit.outputs) == (b"place", 0, ())
    assert worked.commit.again
    owned.settle(worked.commit, Answer.OK)
    assert source.lags == {}
    assert isinstance(source.work(owned, NOTHING), Rest)
    assert source.lags == {SHARD: (3, 20)}
    last = source.work(owned, NOTHING)
    assert isinstance(last, Work)
    assert (last.commit.position, last.commit.consumed_rows) == (b"behind", 1)
    assert reader.asked == [b"", b"place", b"place"]
    source.release(SHARD)
    assert source.lags == {}


@dataclass(frozen=True, slots=True)
class Growing(FilesSource):
    @property
    def late_position(self) -> bytes:
        return b"first"


def test_a_partition_that_was_added_begins_where_its_kind_says_and_has_that_committed_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    stage = compile_topology(load_topology(tmp_path / "topology.yaml")).stage("in")
    stage = replace(stage, head=Growing("*.txt", "text", None))
    nothing = SourceBatch([], [], b"first", finished=False, next_due_us=5)
    reader = Told(nothing, nothing)
    source = SourceStage(stage, reader, FanoutRunner(stage.out, tmp_path), Bounds(), TurnedClock())
    owned = OwnedShard(SHARD, Claimed(1, 1, 0, 0, ADDED, 0, {}, False))
    source.adopt(owned)
    worked = source.work(owned, NOTHING)
    assert isinstance(worked, Work)
    assert worked.commit.position == b"first"
    owned.settle(worked.commit, Answer.OK)
    assert isinstance(source.work(owned, NOTHING), Rest)
    assert reader.asked == [b"first", b"first"]
