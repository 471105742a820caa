"""Sources begin when the initial state of the operators behind them is in inboxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.dataflow.plan import Plan, Source
from penstock.store.codec import decode_batch
from penstock.store.ownership import OwnedShard
from penstock.store.port import Answer, Bounds, Claimed, FetchedShard, ReadWatermark, Watermark
from penstock_worker.kinds.sources import open_reader
from penstock_worker.stages.initial_gate import END_MS, LOOK_US, InitialGate
from penstock_worker.stages.source_stage import SourceStage
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.work import Rest, Work
from scenes.task_scene import TurnedClock

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: begun}
spec:
  code: {module: unused}
  operators:
  - name: words
    source: {zipf: {keys: 10, ratePerSecond: 1000}}
  - name: count
    inputs: [words]
    keyBy: [key]
    processor: unused:Count
    outputSchema: "key bigint"
    initialState: {files: {glob: "opening/*", format: jsonl, schema: "n bigint, key bigint"}}
  - name: out
    inputs: [count]
    sink: {files: {path: out/, format: jsonl}}
"""


class Told:
    """What the stores know of the sources of initial state."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.asked = 0

    def __call__(self, call: ReadWatermark) -> Watermark:
        self.asked += 1
        return Watermark(END_MS if set(call.producers) <= self.known else None)


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "opening").mkdir()
    (tmp_path / "opening" / "a").write_text('{"n": 1, "key": 4}\n')
    return compile_topology(load_topology(tmp_path / "topology.yaml"))


def stage_of(
    plan: Plan, operator: str, folder: Path, clock: TurnedClock, gate: InitialGate | None = None
) -> SourceStage:
    stage = plan.stage(operator)
    assert isinstance(stage.head, Source)
    reader = open_reader(operator, stage.head, folder)
    return SourceStage(stage, reader, FanoutRunner(stage.out, folder), Bounds(), clock, gate)


def owned(shard: str, position: bytes = b"") -> OwnedShard:
    return OwnedShard(shard, Claimed(1, 1, 0, 0, position, 0, {}, False))


def handed_out(shard: str) -> FetchedShard:
    return FetchedShard(shard, 1, 0, ())


def test_a_gate_is_open_when_all_have_told_and_then_asks_no_more(told: Told, clock: TurnedClock) -> None:
    gate = InitialGate(["a-initial", "b-initial"], told, clock)
    assert not gate.is_open()
    told.known = {"a-initial"}
    assert not gate.is_open(), "it has just asked"
    assert told.asked == 1
    clock.sleep_us(LOOK_US)
    assert not gate.is_open()
    told.known = {"b-initial"}
    clock.sleep_us(LOOK_US)
    assert gate.is_open(), "what was told once stays true"
    asked = told.asked
    clock.sleep_us(LOOK_US)
    assert gate.is_open()
    assert told.asked == asked


def test_a_partition_waits_for_it_and_then_begins_its_pace(
    plan: Plan, told: Told, clock: TurnedClock, tmp_path: Path
) -> None:
    gate = InitialGate(plan.stage("words").waits_for, told, clock)
    source, shard = stage_of(plan, "words", tmp_path, clock, gate), owned("words/0")
    source.adopt(shard)
    assert isinstance(source.work(shard, handed_out("words/0")), Rest)
    clock.sleep_us(5_000_000)
    assert isinstance(source.work(shard, handed_out("words/0")), Rest)
    told.known = {"count-initial"}
    clock.sleep_us(LOOK_US)
    begun_us = clock.now_us()
    assert isinstance(source.work(shard, handed_out("words/0")), Rest), "its first row is not due yet"
    clock.sleep_us(10_000)
    worked = source.work(shard, handed_out("words/0"))
    assert isinstance(worked, Work)
    assert min(worked.timestamps_us) >= begun_us, "no row was due while it waited"


def test_a_partition_that_has_begun_does_not_ask(
    plan: Plan, told: Told, clock: TurnedClock, tmp_path: Path
) -> None:
    gate = InitialGate(plan.stage("words").waits_for, told, clock)
    source, shard = stage_of(plan, "words", tmp_path, clock, gate), owned("words/0", b"\x05")
    source.adopt(shard)
    clock.sleep_us(5_000)
    assert isinstance(source.work(shard, handed_out("words/0")), Work)
    assert told.asked == 0


def test_the_reader_of_initial_state_marks_its_rows_and_tells_the_end_of_a_partition(
    plan: Plan, clock: TurnedClock, tmp_path: Path
) -> None:
    source, shard = stage_of(plan, "count-initial", tmp_path, clock), owned("count-initial/opening/a")
    source.adopt(shard)
    commits = []
    while not (commits and commits[-1].finished):
        worked = source.work(shard, handed_out(shard.shard))
        if isinstance(worked, Rest):
            clock.sleep_us(max(1, worked.until_us - clock.now_us()))
            continue
        commits.append(worked.commit)
        shard.settle(worked.commit, Answer.OK)
    batches = [decode_batch(output.payload) for commit in commits for output in commit.outputs]
    assert [(batch.initial, list(map(list, batch.rows))) for batch in batches] == [(True, [[1, 4]])]
    told = [commit.watermark for commit in commits if commit.tells]
    assert told == [Watermark(END_MS)]
    assert commits[-1].watermark == Watermark(END_MS)
    (tmp_path / "opening" / "a").write_text('{"n": 1, "key": 4}\n{"n": 2, "key": 4}\n')
    assert not source.grew(shard), "what comes later is not initial"
