"""The executor's cycle, with tasks that are plain values: nothing here starts a process."""

import threading

import pytest

from penstock.connectors.files import FilesSource
from penstock.dataflow.plan import Fanout, Stage, Tasks
from penstock.dataflow.schema import Schema
from penstock.store.port import Bounds, Owner
from penstock_worker.main_process.resident_task import ResidentTask
from penstock_worker.main_process.running_executor import CRASHES_MAX, DELAYED_KILL_US, RunningExecutor
from penstock_worker.task.launch import TaskLaunch

STAGE = Stage("count", FilesSource("*", "text", None), Tasks(1, 8, 1), Fanout(Schema(()), (), (), ()))
SHARDS = tuple(f"count/{i}" for i in range(8))
S = 1_000_000


class Harness:
    def __init__(self) -> None:
        self.started: list[ResidentTask] = []
        self.cancelled: list[ResidentTask] = []
        self.away: set[str] = set()
        self.still: set[str] = set()
        self.executor = self.executor_that()

    def executor_that(self, *, spares: bool = False) -> RunningExecutor:
        return RunningExecutor(
            "count-w0",
            "count",
            self._start,
            self.cancelled.append,
            lambda node: node not in self.away,
            lambda task, _: task.launch.owner.ready in self.still,
            spares=spares,
        )

    def _start(self, index: int, node: str) -> ResidentTask:
        ready = f"r{len(self.started)}"
        owner = Owner("count-w0", "u/1/1", ready)
        launch = TaskLaunch("t", "unix:///x", "w0", owner, index, STAGE, "/", False, Bounds(), node=node)
        task = ResidentTask(launch, ready)
        assert isinstance(task.ended, threading.Event)
        self.started.append(task)
        return task

    def turn(
        self, at_us: int, up: set[str] | None = None, loads: dict[str, float | None] | None = None
    ) -> None:
        everyone = {task.launch.owner.ready for task in self.started if not task.ended.is_set()}
        self.executor.turn(
            at_us, everyone if up is None else up, loads or dict.fromkeys(SHARDS), balance=loads is not None
        )

    def tasks_of(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for ready in self.executor.mapping().values():
            counts[ready] = counts.get(ready, 0) + 1
        return counts


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_shards_are_spread_evenly_over_the_tasks(harness: Harness):
    harness.executor.assign(2, SHARDS)
    harness.turn(0)
    assert harness.tasks_of() == {"r0": 4, "r1": 4}


def test_no_more_tasks_run_than_there_are_shards(harness: Harness):
    harness.executor.assign(8, SHARDS[:3])
    harness.turn(0)
    assert len(harness.started) == 3
    assert harness.tasks_of() == {"r0": 1, "r1": 1, "r2": 1}


def test_a_starting_task_gets_shards_only_once_it_is_up(harness: Harness):
    harness.executor.assign(1, SHARDS)
    harness.turn(0)
    harness.executor.assign(2, SHARDS)
    harness.turn(S, up={"r0"})
    assert harness.tasks_of() == {"r0": 8}
    assert harness.executor.starting
    harness.turn(2 * S, up={"r0", "r1"})
    assert harness.tasks_of() == {"r0": 4, "r1": 4}


def test_a_killed_tasks_shards_go_on_with_the_others_until_it_is_back(harness: Harness):
    harness.executor.assign(2, SHARDS)
    harness.turn(0)
    harness.started[0].error = "Python worker exited unexpectedly (crashed)"
    harness.started[0].ended.set()
    harness.turn(S, up={"r1"})
    assert harness.tasks_of() == {"r1": 8}
    assert len(harness.started) == 3
    harness.turn(2 * S, up={"r1", "r2"})
    assert harness.tasks_of() == {"r1": 4, "r2": 4}


def test_a_task_that_leaves_is_named_no_longer_and_killed_only_after_the_delay(harness: Harness):
    harness.executor.assign(2, SHARDS)
    harness.turn(0)
    harness.executor.assign(1, SHARDS)
    harness.turn(S)
    assert harness.tasks_of() == {"r0": 8}
    assert harness.cancelled == []
    harness.turn(S + DELAYED_KILL_US + 1)
    assert harness.cancelled == [harness.started[1]]


def test_a_task_whose_last_shard_went_stands_by(harness: Harness):
    harness.executor.assign(1, SHARDS[:1])
    harness.turn(0)
    assert harness.executor.without_shards() == frozenset()
    harness.executor.assign(1, ())
    harness.turn(S)
    assert harness.executor.without_shards() == {"r0"}
    harness.executor.stop()
    harness.turn(2 * S)
    assert harness.executor.without_shards() == frozenset()


def test_a_task_that_retires_in_time_is_never_killed(harness: Harness):
    harness.executor.assign(2, SHARDS)
    harness.turn(0)
    harness.executor.assign(1, SHARDS)
    harness.turn(S)
    harness.started[1].ended.set()
    harness.turn(S + DELAYED_KILL_US + 1)
    assert harness.cancelled == []
    assert harness.executor.running == 1


def test_an_executor_that_keeps_its_shards_and_is_to_run_no_task_names_none_and_kills_none(harness: Harness):
    harness.executor.assign(1, SHARDS)
    harness.turn(0)
    harness.turn(1)
    harness.executor.assign(0, SHARDS)
    harness.turn(2)
    assert harness.tasks_of() == {}
    harness.started[0].ended.set()
    harness.turn(3 + DELAYED_KILL_US)
    assert harness.cancelled == []
    assert harness.executor.idle
    harness.executor.assign(1, SHARDS)
    harness.turn(4 + DELAYED_KILL_US)
    harness.turn(5 + DELAYED_KILL_US)
    assert harness.tasks_of() == {"r1": len(SHARDS)}


def test_a_crash_loop_is_slowed_down_and_counted(harness: Harness):
    harness.executor.assign(1, SHARDS)
    now_us = 0
    for _ in range(200):
        harness.turn(now_us)
        for task in harness.started:
            task.error = "boom"
            task.ended.set()
        now_us += 100_000
    assert harness.executor.failure(5) == f"a task ended {len(harness.started)} times in a row; last: boom"
    assert harness.executor.failure(len(harness.started) + 1) == ""
    assert len(harness.started) < 12


def test_a_stopped_executor_ends_idle_and_names_nobody(harness: Harness):
    harness.executor.assign(2, SHARDS)
    harness.turn(0)
    harness.executor.stop()
    harness.turn(S)
    assert harness.executor.mapping() == {}
    for task in harness.started:
        task.ended.set()
    harness.turn(2 * S)
    assert harness.executor.idle


def test_load_moves_shards_from_the_busier_task_and_leaves_every_task_one(harness: Harness):
    harness.executor.assign(2, SHARDS)
    harness.turn(0)
    mapping = harness.executor.mapping()
    hot = [shard for shard, ready in mapping.items() if ready == "r0"]
    loads: dict[str, float | None] = {shard: (0.2 if shard in hot else 0.01) for shard in SHARDS}
    harness.turn(S, loads=loads)
    after = harness.executor.mapping()
    share = {ready: sum(loads[s] or 0 for s in SHARDS if after[s] == ready) for ready in ("r0", "r1")}
    assert max(share.values()) / (sum(share.values()) / 2) < 1.2
    assert set(after.values()) == {"r0", "r1"}


def test_how_busy_tasks_are_counts_the_shards_whose_load_is_known(harness: Harness):
    harness.executor.assign(2, SHARDS)
    harness.turn(0)
    harness.turn(S)
    loads: dict[str, float | None] = dict.fromkeys(SHARDS, 0.2)
    assert harness.executor.busy_share(loads) == pytest.approx(0.8)
    loads[SHARDS[0]] = None
    assert harness.executor.busy_share(loads) == pytest.approx(0.7)
    assert harness.executor.busy_share(dict.fromkeys(SHARDS)) == 0.0


def test_remote_tasks_start_on_their_node_and_get_their_share(harness: Harness):
    harness.executor.assign(3, SHARDS, (("n1", 2),))
    harness.turn(0)
    assert sorted(task.launch.node for task in harness.started) == ["", "n1", "n1"]
    assert sorted(harness.tasks_of().values()) == [2, 3, 3]


def test_a_task_of_a_node_that_is_away_waits_for_it_and_the_others_have_its_shards(harness: Harness):
    harness.away.add("n1")
    harness.executor.assign(2, SHARDS, (("n1", 1),))
    harness.turn(0)
    assert [task.launch.node for task in harness.started] == [""]
    assert harness.tasks_of() == {"r0": 8}
    harness.away.clear()
    harness.turn(S)
    harness.turn(2 * S)
    assert harness.tasks_of() == {"r0": 4, "r1": 4}


def test_a_remote_task_that_is_taken_back_leaves_its_shards_to_one_at_home(harness: Harness):
    harness.executor.assign(2, SHARDS, (("n1", 1),))
    harness.turn(0)
    harness.executor.assign(2, SHARDS)
    harness.turn(S)
    harness.turn(2 * S)
    remote = next(task for task in harness.started if task.launch.node)
    assert sum(not task.launch.node for task in harness.started) == 2
    assert remote.launch.owner.ready not in harness.tasks_of()
    assert sorted(harness.tasks_of().values()) == [4, 4]


def test_remote_tasks_that_fail_do_not_make_the_executor_a_failed_one(harness: Harness):
    harness.executor.assign(2, SHARDS, (("n1", 1),))
    for at_s in range(0, 60, 10):
        harness.turn(at_s * S)
        for task in harness.started:
            if task.launch.node:
                task.error = "its node went away"
                task.ended.set()
    assert len(harness.started) > 4
    assert harness.executor.failure(1) == ""


def test_where_there_are_more_tasks_than_shards_remote_ones_go_first(harness: Harness):
    harness.executor.assign(3, SHARDS[:2], (("n1", 1),))
    harness.turn(0)
    assert [task.launch.node for task in harness.started] == ["", ""]


def test_the_shards_of_a_task_that_stands_still_go_to_the_others_at_once(harness: Harness):
    harness.executor.assign(2, SHARDS)
    harness.turn(0)
    harness.still = {"r0"}
    harness.turn(S, up={"r0", "r1"})
    assert harness.tasks_of() == {"r1": 8}
    assert "stands still" in harness.executor.trouble
    assert len(harness.started) == 3, "another one starts in its place"
    harness.turn(2 * S, up={"r0", "r1", "r2"})
    assert harness.tasks_of() == {"r1": 4, "r2": 4}


def test_another_task_starts_for_the_only_one_that_stands_still_and_that_one_is_ended(harness: Harness):
    harness.executor.assign(1, SHARDS)
    harness.turn(0)
    harness.still = {"r0"}
    harness.turn(S)
    assert harness.tasks_of() == {"r1": 8}
    assert not harness.cancelled
    harness.turn(2 * S + DELAYED_KILL_US)
    assert [task.launch.owner.ready for task in harness.cancelled] == ["r0"]


def test_one_that_goes_on_in_time_retires_without_a_failure(harness: Harness):
    harness.executor.assign(1, SHARDS)
    harness.turn(0)
    harness.still = {"r0"}
    harness.turn(S)
    harness.started[0].ended.set()
    harness.turn(S + 1)
    assert harness.tasks_of() == {"r1": 8}
    assert not harness.cancelled
    assert harness.executor.failure(1) == ""


def crash(harness: Harness, shard: str, works: int) -> None:
    """The last task's process is gone, at some work."""
    task = harness.started[-1]
    task.crashed, task.shard, task.works, task.error = True, shard, works, "killed by SIGKILL"
    task.ended.set()


def test_crashes_at_one_batch_make_the_executor_a_failed_one_whichever_task_has_it(harness: Harness):
    harness.executor.assign(1, SHARDS)
    for number in range(CRASHES_MAX):
        harness.turn(number * 10 * S)
        assert harness.executor.failure(99) == ""
        crash(harness, "count/3", works=1)
        harness.turn(number * 10 * S + 1)
        assert harness.executor.has_crashed
    told = harness.executor.failure(99)
    assert told == f"tasks crashed {CRASHES_MAX} times in a row at shard count/3; last: killed by SIGKILL"


def test_a_task_that_is_killed_again_and_again_while_it_gets_on_starts_at_once_each_time(harness: Harness):
    harness.executor.assign(1, SHARDS)
    for number in range(20):
        harness.turn(number * 100)
        assert len(harness.started) == number + 1
        crash(harness, "" if number % 2 else "count/3", works=10)
        harness.turn(number * 100 + 1)
    assert harness.executor.failure(5) == ""


def crash_at(harness: Harness, key: str, at_us: int, hung_us: int = 0) -> None:
    """The task that was started last ends at a key of count/3, and another one starts."""
    task = harness.started[-1]
    task.crashed, task.shard, task.key, task.works, task.error = True, "count/3", key, 1, "killed by SIGKILL"
    task.commits, task.hung_us = 7, hung_us
    task.ended.set()
    harness.turn(at_us)
    harness.turn(at_us + 5 * S)


def begun(harness: Harness, *, spares: bool) -> None:
    harness.executor = harness.executor_that(spares=spares)
    harness.executor.assign(1, SHARDS)
    harness.turn(0)


def test_a_batch_that_tasks_crash_at_is_poison_where_rows_may_become_letters(harness: Harness):
    begun(harness, spares=True)
    for number in range(CRASHES_MAX):
        assert harness.executor.poison == ()
        crash_at(harness, "('ash',)", 10 * number * S)
    (poison,) = harness.executor.poison
    assert (poison.shard, poison.commits, poison.key) == ("count/3", 7, "('ash',)")
    assert f"crashed {CRASHES_MAX} times in a row" in poison.words
    assert "killed by SIGKILL" in poison.words
    assert harness.executor.failure(CRASHES_MAX) == ""
    # What crashes all the same has nothing left to spare.
    for number in range(CRASHES_MAX, 2 * CRASHES_MAX):
        crash_at(harness, "('ash',)", 10 * number * S)
    assert len(harness.executor.poison) == 1
    assert "crashed" in harness.executor.failure(99)


@pytest.mark.parametrize(("spares", "key"), [(False, "('ash',)"), (True, "")])
def test_a_batch_is_no_poison_where_the_operator_fails_or_no_key_is_known(
    harness: Harness, spares: bool, key: str
):
    begun(harness, spares=spares)
    for number in range(CRASHES_MAX):
        crash_at(harness, key, 10 * number * S)
    assert harness.executor.poison == ()
    assert f"crashed {CRASHES_MAX} times" in harness.executor.failure(99)


def test_calls_that_did_not_return_are_in_a_row_however_long_each_was_waited_for(harness: Harness):
    begun(harness, spares=True)
    for number in range(CRASHES_MAX):
        crash_at(harness, "('ash',)", 130 * number * S, hung_us=60 * S)
    assert len(harness.executor.poison) == 1
