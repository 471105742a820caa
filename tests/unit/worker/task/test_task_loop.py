"""The task loop with its real parts (stages, user code, state, sinks) on the store's twin, turn by turn."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.dataflow.plan import Plan, Processor
from penstock.dataflow.routing_table import encode_table, next_table, routed_count
from penstock.store.codec import decode_counts
from penstock.store.memory.store import MemoryStore
from penstock.store.port import (
    Acknowledge,
    Answer,
    Claim,
    ClearFailure,
    Commit,
    Enroll,
    Failures,
    Fetch,
    Measure,
    Owner,
    PutTable,
    ReadMetrics,
    ReportFailure,
    Request,
    SetTasks,
    StoreUnreachable,
    WaitReady,
    Wake,
)
from penstock_worker.sources.reader import SourceBatch
from penstock_worker.state.encoding import pack
from penstock_worker.task.held_shards import REFRESH_US
from penstock_worker.task.loop import TaskLoop
from scenes.task_scene import CODE, INCARNATION, MANIFEST, Between, Scene


class LossyStore(Between):
    """Loses replies on demand: the calls are carried out, the caller hears nothing."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.lose_next_commit = False

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        answers = self._store.pipeline(calls)
        if self.lose_next_commit and any(isinstance(call, Commit) for call in calls):
            self.lose_next_commit = False
            raise StoreUnreachable("the reply was lost")
        return answers


class ClaimedMeanwhile(Between):
    """While user code raises, somebody else claims the shard."""

    def call(self, call: Request[Any]) -> Any:
        if isinstance(call, ReportFailure):
            self._store.call(Claim(call.shard, Owner("count-w1", INCARNATION, "other"), 1))
        return self._store.call(call)


class HoldingBack(Between):
    """Keeps acknowledgements back, as a task does between a write and its next round trip."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.held: list[Acknowledge] = []

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self.held.extend(call for call in calls if isinstance(call, Acknowledge))
        return [Answer.OK if isinstance(call, Acknowledge) else self._store.call(call) for call in calls]


class ReleasingAfterClaim(Between):
    """Lets what was held back arrive right after the first claims: the worst moment."""

    def __init__(self, store: MemoryStore, holding: HoldingBack) -> None:
        super().__init__(store)
        self._holding = holding

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        answers = self._store.pipeline(calls)
        if any(isinstance(call, Claim) for call in calls):
            while self._holding.held:
                self._store.call(self._holding.held.pop(0))
        return answers


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.syspath_prepend(str(tmp_path))
    scene = Scene(tmp_path)
    (tmp_path / "a.txt").write_text("ash sea ash\nsea ash\n")
    scene.publish(["lines/a.txt"])
    return scene


def with_tables(plan: Plan) -> Plan:
    """Each keyed operator's keys may go by a table."""
    stages = []
    for stage in plan.stages:
        head = replace(stage.head, locality=True) if isinstance(stage.head, Processor) else stage.head
        steps = tuple(
            replace(
                step,
                out=replace(step.out, edges=tuple(replace(edge, locality=True) for edge in step.out.edges)),
            )
            for step in stage.out.steps
        )
        stages.append(replace(stage, head=head, out=replace(stage.out, steps=steps)))
    return replace(plan, stages=tuple(stages))


def fed(scene: Scene) -> Scene:
    scene.turns(scene.task("lines", ["lines/a.txt"]))
    return scene


def test_lines_become_words_become_totals_in_the_sinks_file(scene: Scene):
    task = fed(scene).task("count", ["count/0", "count/1"])
    scene.turns(task)
    assert scene.out() == ['{"word":"ash","total":3}', '{"word":"sea","total":2}']
    assert scene.waiting() == 0


def test_a_finished_source_is_read_once(scene: Scene):
    task = scene.task("lines", ["lines/a.txt"])
    scene.turns(task, 40)
    again = scene.task("lines", ["lines/a.txt"], ready="second")
    scene.turns(again, 40)
    scene.turns(scene.task("count", ["count/0", "count/1"]))
    assert scene.out() == ['{"word":"ash","total":3}', '{"word":"sea","total":2}']


def test_a_lost_reply_to_a_commit_is_neither_lost_nor_counted_twice(scene: Scene):
    lossy = LossyStore(fed(scene).store)
    task = scene.task("count", ["count/0", "count/1"], store=lossy)
    lossy.lose_next_commit = True
    scene.turns(task, 1)
    assert scene.out() == [], "the commit is done, but the task does not know"
    scene.turns(task)
    assert scene.out() == ['{"word":"ash","total":3}', '{"word":"sea","total":2}']


def test_a_task_that_is_woken_switches_to_a_new_table_at_once(scene: Scene):
    """All producers are to switch together: rows of keys that move wait from the first to the last."""
    scene.plan = with_tables(scene.plan)
    task = scene.task("lines", ["lines/a.txt"])
    scene.turns(task)
    table = next_table(None, {pack(("ash",)): 0, pack(("sea",)): 1}, lambda _: 0, ["lines/a.txt"])
    scene.store.call(PutTable("count", table.version, encode_table(table)))

    def routes_by() -> int:
        (counters,) = scene.store.call(Measure(("lines/a.txt",)))
        assert counters is not None
        return decode_counts(counters.counts).get(routed_count("count"), 0)

    task.turn()
    assert routes_by() == 0, "versions were looked at a moment ago"
    scene.store.call(Wake("lines.ready"))
    task.turn()
    assert routes_by() == table.version


def test_a_late_owner_is_fenced_and_the_new_one_writes_what_was_committed(scene: Scene):
    fed(scene)
    late = scene.task("count", ["count/0", "count/1"], ready="late")
    late.turn()  # claims, works, commits and writes
    (scene.folder / "b.txt").write_text("ash\n")
    new = scene.task("count", ["count/0", "count/1"], ready="new")
    scene.turns(new)
    scene.turns(late)
    assert late.retired
    assert scene.out() == ['{"word":"ash","total":3}', '{"word":"sea","total":2}']


def test_entries_committed_but_not_written_are_written_by_the_next_owner(scene: Scene):
    fed(scene)
    dying = scene.task("count", ["count/0", "count/1"], ready="dying")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock_worker.sinks.jsonl.JsonlSinkWriter.write", _die)
        with pytest.raises(SystemExit):
            scene.turns(dying)
    assert scene.out() == []
    scene.turns(scene.task("count", ["count/0", "count/1"], ready="next"))
    assert scene.out() == ['{"word":"ash","total":3}', '{"word":"sea","total":2}']


def _die(*_: object) -> None:
    raise SystemExit("killed between commit and write")


def test_a_sink_whose_disk_is_full_is_waited_for(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    def write_nothing(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    task = fed(scene).task("count", ["count/0", "count/1"])
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", write_nothing)
        scene.turns(task)
    assert scene.out() == []
    assert scene.store.call(Failures()) == {}
    scene.turns(task)
    assert scene.out() == ['{"word":"ash","total":3}', '{"word":"sea","total":2}']


def test_user_code_that_raises_is_reported_once_and_nothing_of_its_batch_is_kept(scene: Scene):
    (scene.folder / "a.txt").write_text("ash poison ash\n")
    fed(scene)
    task = scene.task("count", ["count/0", "count/1"])
    waited = scene.waiting()
    scene.turns(task)
    failures = scene.store.call(Failures())
    assert list(failures) == ["count"]
    assert "ValueError: this word is poison" in failures["count"]
    assert scene.waiting() >= 1
    assert waited >= scene.waiting()
    scene.store.call(ClearFailure("count"))
    code = CODE.replace('if key[0] == "poison":', "if False:")
    (scene.folder / "loop_code.py").write_text(code)
    __import__("sys").modules.pop("loop_code")
    scene.turns(scene.task("count", ["count/0", "count/1"], ready="mended"))
    assert scene.out() == ['{"word":"ash","total":2}', '{"word":"poison","total":1}']


def test_a_failure_of_a_fenced_owner_does_not_count(scene: Scene):
    (scene.folder / "a.txt").write_text("poison\n")
    fed(scene)
    late = scene.task("count", ["count/0", "count/1"], ready="late", store=ClaimedMeanwhile(scene.store))
    late.turn()
    assert scene.store.call(Failures()) == {}


def test_a_task_that_the_map_names_no_longer_retires(scene: Scene):
    task = scene.task("count", ["count/0", "count/1"])
    task.turn()
    scene.store.call(SetTasks("w1", INCARNATION, "count-w1", ()))
    scene.turns(task)
    assert task.retired


def test_a_task_whose_last_shard_went_waits_for_the_next_one(scene: Scene):
    task = fed(scene).task("count", ["count/0", "count/1"])
    task.turn()
    ready = task._launch.owner.ready
    scene.store.call(SetTasks("w1", INCARNATION, "count-w1", (), (ready,)))
    scene.turns(task)
    assert not task.retired
    scene.store.call(SetTasks("w1", INCARNATION, "count-w1", (("count/0", ready), ("count/1", ready))))
    scene.turns(task)
    assert not task.retired
    assert scene.waiting() == 0


def given_away(scene: Scene) -> TaskLoop:
    """A task that owns both shards when the map gives them to another, which has not come yet."""
    task = scene.task("count", ["count/0", "count/1"])
    scene.turns(task)
    mapping = (("count/0", "other"), ("count/1", "other"))
    scene.store.call(SetTasks("w1", INCARNATION, "count-w1", mapping))
    task.turn()
    fed(scene)
    assert scene.waiting() > 0
    return task


def test_a_shard_is_worked_on_until_its_next_task_claims_it(scene: Scene):
    task = given_away(scene)
    scene.turns(task)
    assert scene.waiting() == 0
    other = scene.task("count", ["count/0", "count/1"], ready="other")
    other.turn()
    (scene.folder / "b.txt").write_text("ash sea\n")
    scene.publish_more("lines/b.txt")
    scene.turns(scene.task("lines", ["lines/b.txt"], ready="more"))
    scene.turns(other)
    scene.clock.sleep_us(1_000_000)
    scene.turns(task)
    assert task.retired
    assert len(scene.out()) == 4
    assert scene.out()[1] == '{"word":"ash","total":4}'


def test_a_shard_whose_next_task_does_not_come_is_let_go_in_time(scene: Scene):
    task = given_away(scene)
    scene.clock.sleep_us(1_000_000)
    scene.turns(task)
    assert task.retired
    assert scene.waiting() > 0


def test_a_task_of_an_earlier_start_of_the_worker_retires(scene: Scene):
    task = scene.task("count", ["count/0", "count/1"])
    task.turn()
    assert scene.store.call(Enroll("w1", "u1", 6, 2)) is Answer.OK
    scene.store.call(SetTasks("w1", "u1/6/2", "count-w1", (("count/0", "theirs"), ("count/1", "theirs"))))
    scene.clock.sleep_us(2_000_000)
    scene.turns(task)
    assert task.retired


def test_a_task_waits_to_be_named_before_it_retires(scene: Scene):
    task = scene.task("count", ["count/0", "count/1"])
    scene.store.call(SetTasks("w1", INCARNATION, "count-w1", ()))
    scene.turns(task, 3)
    assert not task.retired
    assert "task:w1:count-w1:0" in scene.store.call(ReadMetrics()), "a task that is up says so"
    scene.clock.sleep_us(700_000_000)
    scene.turns(task)
    assert task.retired


def test_a_task_is_at_work_as_soon_as_the_map_names_it(scene: Scene):
    fed(scene)
    assert scene.waiting() > 0
    task = scene.task("count", ["count/0", "count/1"], "new")
    scene.store.call(SetTasks("w1", INCARNATION, "count-w1", ()))
    scene.turns(task, 2)
    began_us = scene.clock.time_us
    named = tuple((shard, "new") for shard in ("count/0", "count/1"))
    scene.store.call(SetTasks("w1", INCARNATION, "count-w1", named))
    scene.turns(task, 3)
    assert scene.waiting() == 0
    assert scene.clock.time_us - began_us < 200_000, "it did not wait for its next regular look"


def test_a_late_acknowledgement_of_the_earlier_owner_moves_nothing_in_the_file(scene: Scene):
    fed(scene)
    late = scene.task("count", ["count/0", "count/1"], ready="late")
    late.turn()  # what it wrote last is not acknowledged in the store yet, or is by the end of its turn
    (scene.folder / "more.txt").write_text("ash sea\n")
    scene.publish_more("lines/more.txt")
    scene.turns(scene.task("lines", ["lines/more.txt"], ready="more"))
    held_back = HoldingBack(scene.store)
    middle = scene.task("count", ["count/0", "count/1"], ready="middle", store=held_back)
    scene.turns(middle, 1)
    new = scene.task(
        "count", ["count/0", "count/1"], ready="new", store=ReleasingAfterClaim(scene.store, held_back)
    )
    scene.turns(new)
    assert scene.out() == [
        '{"word":"ash","total":3}',
        '{"word":"ash","total":4}',
        '{"word":"sea","total":2}',
        '{"word":"sea","total":3}',
    ]
    assert scene.store.call(Failures()) == {}


def test_a_shard_that_a_lost_fetch_took_is_claimed_again(scene: Scene):
    task = scene.task("count", ["count/0", "count/1"])
    task.turn()
    fed_later = scene.task("lines", ["lines/a.txt"], ready="feed")
    scene.turns(fed_later)
    # A fetch whose sender gave up: the shards are handed out to nobody.
    assert scene.store.call(Fetch("count.ready", 1 << 20, 64)).shards
    for _ in range(4):
        scene.clock.sleep_us(1_100_000)
        scene.turns(task, 2)
    assert scene.out() == ['{"word":"ash","total":3}', '{"word":"sea","total":2}']


class ClaimUnheardOf(Between):
    """Before the first fetch claims of the task's own take effect once more, and it never hears of that."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.claims: list[Claim] = []
        self._fetched = False

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self.claims += [call for call in calls if isinstance(call, Claim)]
        if isinstance(calls[-1], Fetch) and not self._fetched:
            self._fetched = True
            self._store.pipeline(self.claims)
            self._store.call(Wake("count.ready"))
        return self._store.pipeline(calls)


def test_a_batch_from_before_a_claim_does_not_cost_the_claim(scene: Scene):
    scene.turns(scene.task("lines", ["lines/a.txt"]))
    store = ClaimUnheardOf(scene.store)
    scene.turns(scene.task("count", ["count/0", "count/1"], store=store))
    assert [call.shard for call in store.claims] == ["count/0", "count/1"] * 2
    assert scene.waiting() == 0


class LongWork:
    """Takes 50 ms for each batch, and notes whose it was, and when. Dies behind so many, where it is said."""

    def __init__(self, scene: Scene, stage: Any, dies_behind: int | None = None) -> None:
        self._scene = scene
        self._stage = stage
        self._dies_behind = dies_behind
        self.worked: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)

    def work(self, owned: Any, fetched: Any) -> Any:
        if len(self.worked) == self._dies_behind:
            raise SystemExit("killed")
        self.worked.append((owned.shard, self._scene.clock.time_us))
        self._scene.clock.sleep_us(50_000)
        return self._stage.work(owned, fetched)


def test_a_shard_that_is_lost_is_claimed_again_soon_by_a_task_that_never_runs_out_of_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Under overload a task is never idle. There a policy waits for each moved shard's owner to speak, before
    it gives the operator more tasks."""
    monkeypatch.syspath_prepend(str(tmp_path))
    scene = Scene(tmp_path)
    names = [f"lines/{number}.txt" for number in range(300)]
    for name in names:
        (tmp_path / Path(name).name).write_text(f"{'ash' * 500} {'lamp' * 500}\n")
    scene.publish(names)
    scene.turns(scene.task("lines", names), 40)
    holding = HoldingBack(scene.store)
    late = scene.task("count", ["count/1"], ready="late", store=holding)
    late._stage = LongWork(scene, late._stage, dies_behind=10)
    with pytest.raises(SystemExit):
        late.turn()
    # What it wrote is acknowledged right behind the claim, so this one is claimed twice.
    task = scene.task("count", [], ready="new", store=ReleasingAfterClaim(scene.store, holding))
    scene.store.call(SetTasks("w1", INCARNATION, "count-w1", (("count/1", "late"),), idle=("new",)))
    task.turn()
    given_us = scene.clock.time_us
    mapping = tuple((shard, "new") for shard in scene.count_shards)
    scene.store.call(SetTasks("w1", INCARNATION, "count-w1", mapping))
    task._stage = work = LongWork(scene, task._stage)
    while scene.waiting():
        task.turn()
    last_us = dict(work.worked)
    first_us = dict(reversed(work.worked))
    assert last_us["count/0"] - given_us > 4 * REFRESH_US, "the other shard keeps the task busy"
    assert first_us["count/1"] - given_us < REFRESH_US
    assert sorted(json.loads(line)["total"] for line in scene.out())[-2:] == [300, 300]


class SlowStage:
    """Takes 8 ms for each shard, and notes what is in the sink whenever it begins on one."""

    def __init__(self, scene: Scene, stage: Any) -> None:
        self._scene = scene
        self._stage = stage
        self.out_at_begin: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)

    def work(self, owned: Any, fetched: Any) -> Any:
        self.out_at_begin.append(len(self._scene.out()))
        self._scene.clock.sleep_us(8_000)
        return self._stage.work(owned, fetched)


def test_what_a_shard_put_out_does_not_wait_for_slow_work_on_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(tmp_path))
    scene = Scene(tmp_path, shards=8)
    (tmp_path / "a.txt").write_text("ash sea river stone lamp night door glass north wheel tide\n")
    scene.publish(["lines/a.txt"])
    fed(scene)
    task = scene.task("count", scene.count_shards)
    slow = SlowStage(scene, task._stage)
    task._stage = slow
    scene.turns(task)
    assert len(scene.out()) == 11
    before_last = [out for out in slow.out_at_begin if out]
    assert len(slow.out_at_begin) >= 5
    # All but the shard at hand and the one whose commit is on its way.
    assert len(before_last) >= len(slow.out_at_begin) - 2


def test_a_sink_file_that_somebody_changed_is_told_though_nothing_is_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (tmp_path / "a.txt").write_text("one\ntwo\none\n")
    scene.publish(("lines/a.txt",))
    scene.turns(scene.task("lines", ("lines/a.txt",)))
    task = scene.task("count", scene.count_shards)
    scene.turns(task)
    assert scene.store.call(Failures()) == {}
    path = next(path for path in (tmp_path / "out").glob("*.jsonl") if path.stat().st_size)
    with path.open("a") as file:
        file.write("a line of my own\n")
    scene.clock.sleep_us(REFRESH_US)
    scene.turns(task, 1)
    (failure,) = scene.store.call(Failures()).values()
    assert "sink totals: file" in failure
    assert "that this topology did not write" in failure
    assert path.read_text().endswith("a line of my own\n")


def test_what_is_counted_is_what_was_committed_whatever_gets_lost(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    lines = [f"{word} {word} {number}" for number, word in enumerate("abcdefgh" * 30)]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    scene.publish(("lines/a.txt",))
    lossy = LossyStore(scene.store)
    for operator, shards in (("lines", ("lines/a.txt",)), ("count", scene.count_shards)):
        task = scene.task(operator, shards, store=lossy)
        for _ in range(40):
            lossy.lose_next_commit = True
            scene.turns(task, 3)
        scene.turns(task)
    assert totals_of(scene, "lines/a.txt") == {"lines": len(lines), "words": 3 * len(lines)}
    counted = [totals_of(scene, shard) for shard in scene.count_shards]
    assert sum(one["totals"] for one in counted) == len(scene.out())
    assert [one["count"] for one in counted] == [one["totals"] for one in counted]


def totals_of(scene: Scene, shard: str) -> dict[str, int]:
    known = scene.store.call(Measure((shard,)))[0]
    assert known is not None
    return decode_counts(known.counts)


def test_a_file_that_grew_after_it_was_read_to_its_end_is_read_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (tmp_path / "a.txt").write_text("one\n")
    scene.publish(("lines/a.txt",))
    task = scene.task("lines", ("lines/a.txt",))
    scene.turns(task)
    with (tmp_path / "a.txt").open("a") as file:
        file.write("two\nthree\n")
    for _ in range(4):
        scene.clock.sleep_us(REFRESH_US)
        scene.turns(task, 2)
    assert totals_of(scene, "lines/a.txt") == {"lines": 3, "words": 3}
    known = scene.store.call(Measure(("lines/a.txt",)))[0]
    assert known is not None
    assert known.finished


class Asked(Between):
    """Notes what is asked, a line for each exchange."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.exchanges: list[tuple[str, ...]] = []

    def call(self, call: Request[Any]) -> Any:
        self.exchanges.append((type(call).__name__,))
        return super().call(call)

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self.exchanges.append(tuple(type(call).__name__ for call in calls))
        return super().pipeline(calls)


def paced(folder: Path, per_second: int, shards: Sequence[str] = ("lines/0",)) -> Scene:
    """Its source has records that are due at an even pace."""
    scene = Scene(folder)
    zipf = f"{{zipf: {{keys: 10, ratePerSecond: {per_second}}}}}"
    manifest = MANIFEST.replace('{files: {glob: "*.txt", format: text}}', zipf)
    (folder / "topology.yaml").write_text(manifest)
    (folder / "loop_code.py").write_text(CODE.replace("line.value.split()", "[str(line.key)]"))
    scene.plan = compile_topology(load_topology(folder / "topology.yaml"))
    scene.publish(shards)
    return scene


def commits_of(scene: Scene, shard: str) -> int:
    (counters,) = scene.store.call(Measure((shard,)))
    assert counters is not None
    return counters.commit


def test_a_source_that_gathers_asks_its_store_once_for_each_flush(tmp_path: Path) -> None:
    scene = paced(tmp_path, 2000)
    asked = Asked(scene.store)
    task = scene.task("lines", ["lines/0"], store=asked, waiter=asked)
    scene.turns(task, 40)
    before, asked.exchanges = commits_of(scene, "lines/0"), []
    scene.turns(task, 40)
    flushes = commits_of(scene, "lines/0") - before
    assert flushes >= 30
    about_work = [calls for calls in asked.exchanges if {"Commit", "Fetch", "WaitReady"} & set(calls)]
    # Behind a look at the map the list is asked as well.
    assert len(about_work) <= flushes + 2
    assert sum(calls[-2:] == ("Commit", "Fetch") for calls in about_work) == flushes


def test_a_source_whose_records_are_far_apart_is_woken_meanwhile(tmp_path: Path) -> None:
    scene = paced(tmp_path, 2)
    asked = Asked(scene.store)
    task = scene.task("lines", ["lines/0"], store=asked, waiter=asked)
    scene.turns(task, 12)
    assert ("WaitReady",) in asked.exchanges


class Waits(Between):
    """Which waits of a task looked at its list."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.looks: list[bool] = []

    def call(self, call: Request[Any]) -> Any:
        if isinstance(call, WaitReady) and call.timeout_ms:
            self.looks.append(call.look)
        return self._store.call(call)


def test_a_task_that_has_worked_off_its_list_waits_without_another_look(scene: Scene) -> None:
    waits = Waits(fed(scene).store)
    task = scene.task("count", ["count/0", "count/1"], waiter=waits)
    scene.turns(task, 3)
    assert scene.out()
    assert waits.looks
    assert not any(waits.looks)


def test_a_task_that_has_heard_of_more_and_cannot_work_on_it_looks(scene: Scene) -> None:
    """No map names it, so what rang is still there when it waits again."""
    waits = Waits(scene.store)
    task = scene.task("count", [], waiter=waits)
    scene.turns(task, 1)
    for _ in range(3):
        scene.store.call(Wake("count.ready"))
        waits.looks.clear()
        scene.turns(task, 1)
        assert waits.looks == [True]


class QuietReader:
    """Has nothing, and is to be asked again in a millisecond."""

    paced = True

    def __init__(self, *_: object) -> None:
        self.opened: list[str] = []

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        self.opened.append(shard)

    def release(self, shard: str) -> None:
        self.opened.remove(shard)

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        return SourceBatch((), (), position, finished=False, next_due_us=now_us + 1_000)

    def grew(self, shard: str, position: bytes) -> bool:
        return False

    def close(self) -> None:
        self.opened.clear()


def test_a_source_that_has_nothing_to_commit_asks_its_ready_list_all_the_same(tmp_path: Path) -> None:
    """As one of a quiet topic, which looks again and again."""
    scene = paced(tmp_path, 2000)
    asked = Asked(scene.store)
    task = scene.task("lines", ["lines/0"], store=asked, waiter=asked, readers=QuietReader)
    scene.turns(task, 12)
    for _ in range(4):
        scene.store.call(Wake("lines.ready"))
        asked.exchanges.clear()
        began_us = scene.clock.time_us
        while not any("Tasks" in calls for calls in asked.exchanges):
            task.turn()
        assert scene.clock.time_us - began_us <= 15_000, "a look at the map by itself comes after a second"


def test_a_task_that_never_waits_takes_what_was_rung_for_it_all_the_same(tmp_path: Path) -> None:
    """Each name that comes onto an empty list rings: the store keeps that for whoever does not listen."""
    scene = paced(tmp_path, 2000)
    asked = Asked(scene.store)
    task = scene.task("lines", ["lines/0"], store=asked, waiter=asked)
    scene.turns(task, 12)
    for _ in range(3):
        asked.exchanges.clear()
        began_us = scene.clock.time_us
        while ("WaitReady",) not in asked.exchanges:
            task.turn()
        assert scene.clock.time_us - began_us <= 1_100_000


def test_a_partition_that_is_behind_is_not_held_up_by_one_that_rests(tmp_path: Path) -> None:
    """Their batches take long, so a fetch hands out one of them."""
    partitions = ("lines/0", "lines/1")
    scene = paced(tmp_path, 2000, partitions)
    slow = SlowAndSparse(scene)
    task = scene.task("lines", partitions, readers=lambda *_: slow)
    scene.turns(task, 40)
    slow.reads, began_us = 0, scene.clock.time_us
    while scene.clock.time_us < began_us + 2_000_000:
        task.turn()
    assert slow.reads >= 155, "each takes 12 ms"


class SlowAndSparse(QuietReader):
    """Of one partition a batch takes 12 ms and there is always another; another has a row each 25 ms, and is
    to be asked each millisecond."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._clock = scene.clock
        self._next_us = 0
        self.reads = 0

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        if shard == "lines/0":
            self._clock.time_us += 12_000
            self.reads += 1
            return SourceBatch(((1, 2),), (now_us,), position, finished=False, next_due_us=now_us)
        rows = ((1, 2),) if now_us >= self._next_us else ()
        if rows:
            self._next_us = now_us + 25_000
        return SourceBatch(rows, (now_us,) * len(rows), position, finished=False, next_due_us=now_us + 1_000)
