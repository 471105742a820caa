"""The supervision of `penstock run`: deaths, restarts, ends."""

from __future__ import annotations

from dataclasses import replace

from penstock.supervision.bringing_up import WARM_S
from penstock.supervision.restarts import EARLY_DEATHS_MAX, STEADY_AFTER_S
from penstock_operator.local.run_end import DRAIN_S, STALL_S
from penstock_operator.local.run_state import Backlog, Phase, Result, StartWorker, StopWorker
from penstock_operator.local.run_turn import GRACE_S
from scenes.run_scene import RunScene

DONE = Backlog(generation=1, commits=9, inbox_entries=0, outbox_entries=0, sources_finished=True)


def test_all_workers_start_with_the_shards_spread_over_them() -> None:
    scene = RunScene(2)
    assert [(worker, attempt) for worker, _, attempt in scene.started] == [("w0", 0), ("w1", 0)]
    count = {worker: sum(s.startswith("count/") for s in scene.shards_on(worker)) for worker in ("w0", "w1")}
    assert count == {"w0": 4, "w1": 4}


def test_the_run_is_running_once_the_first_task_runs() -> None:
    scene = RunScene(2)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    assert scene.state.phase is Phase.STARTING
    assert scene.said == ["worker w1 is ready"]
    scene.ready("w1", tasks=1)
    scene.turn(1)
    assert scene.state.phase is Phase.RUNNING


def test_the_run_is_running_once_a_shard_has_committed() -> None:
    scene = RunScene(2)
    scene.turn(1)
    assert scene.state.phase is Phase.STARTING
    scene.work()
    scene.turn(1)
    assert scene.state.phase is Phase.RUNNING


def test_the_shards_of_a_dead_worker_go_to_the_living_at_once() -> None:
    scene = RunScene(2)
    scene.all_ready()
    everything = scene.shards_on("w0") | scene.shards_on("w1")
    scene.fleet.die("w1")
    scene.turn()
    assert scene.shards_on("w0") == everything
    assert any("w1 killed by SIGKILL; its" in text and "went to w0" in text for text in scene.said)


def test_a_dead_worker_starts_again_under_a_uid_that_the_schedules_name() -> None:
    scene = RunScene(2)
    scene.all_ready()
    scene.fleet.die("w1")
    scene.turn()
    assert scene.started[-1] == ("w1", "run-w1-1", 1)
    assert scene.uid_of("w1") == {"run-w1-1"}


def test_a_worker_that_is_ready_again_gets_a_share_back() -> None:
    scene = RunScene(2)
    scene.all_ready()
    before = len(scene.shards_on("w1"))
    scene.fleet.die("w1")
    scene.turn()
    scene.turn(1)
    assert scene.shards_on("w1") == set()
    scene.ready("w1", tasks=0)
    scene.turn(1)
    assert scene.shards_on("w1") == set(), "its tasks are not up: shards would wait for them"
    assert any(executor.worker == "w1" for executor in scene.published["count"].executors)
    scene.ready("w1", tasks=1)
    scene.turn(1)
    assert abs(len(scene.shards_on("w1")) - before) <= 1
    assert "worker w1 is ready again and takes" in scene.said[-1]


def test_a_returned_worker_whose_tasks_do_not_come_up_gets_its_share_all_the_same() -> None:
    scene = RunScene(2)
    scene.all_ready()
    scene.fleet.die("w1")
    scene.turn()
    scene.turn(1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    scene.turn(WARM_S + 1)
    assert scene.shards_on("w1")


def test_a_worker_that_dies_while_it_warms_leaves_every_shard_where_it_works() -> None:
    scene = RunScene(2)
    scene.all_ready()
    scene.fleet.die("w1")
    scene.turn()
    scene.turn(1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    everything = scene.shards_on("w0")
    scene.fleet.die("w1")
    scene.turn(1)
    assert scene.shards_on("w0") == everything
    assert all(e.worker == "w0" for s in scene.published.values() for e in s.executors)


def test_the_last_words_of_a_dead_start_do_not_make_it_ready() -> None:
    scene = RunScene(2)
    scene.all_ready()
    scene.fleet.die("w1")
    scene.turn()
    scene.turn(1)
    assert not scene.state.workers["w1"].is_up


def test_the_only_worker_keeps_its_shards_over_its_restart() -> None:
    scene = RunScene(1)
    scene.all_ready()
    everything = scene.shards_on("w0")
    scene.fleet.die("w0")
    scene.turn()
    assert scene.shards_on("w0") == everything
    assert scene.uid_of("w0") == {"run-w0-1"}
    assert "wait for its return" in scene.said[-1]
    scene.ready("w0")
    scene.turn(5)
    assert scene.shards_on("w0") == everything


def test_no_shard_is_lost_when_all_workers_die_and_one_comes_back() -> None:
    scene = RunScene(2)
    scene.all_ready()
    everything = scene.shards_on("w0") | scene.shards_on("w1")
    scene.fleet.die("w0")
    scene.turn()
    scene.fleet.die("w1")
    scene.turn()
    scene.ready("w0", tasks=0)
    scene.turn(1)
    scene.ready("w0")
    scene.turn(1)
    assert scene.shards_on("w0") == everything


def test_starts_that_follow_each_other_wait_longer_and_longer() -> None:
    scene = RunScene(2)
    waits = []
    for _ in range(6):
        scene.all_ready()
        scene.fleet.die("w1")
        scene.turn()
        waited_s = 0
        while "w1" not in scene.living():
            scene.turn(1)
            waited_s += 1
        waits.append(waited_s)
    assert waits == [0, 1, 2, 4, 8, 10]


def test_a_worker_that_was_steady_starts_again_at_once() -> None:
    scene = RunScene(2)
    for _ in range(3):
        scene.all_ready()
        scene.turn(STEADY_AFTER_S)
        scene.fleet.die("w1")
        scene.turn()
        assert "w1" in scene.living()


def test_a_worker_that_never_becomes_ready_ends_the_run() -> None:
    scene = RunScene(2)
    scene.ready("w0")
    for _ in range(EARLY_DEATHS_MAX):
        scene.fleet.leave("w1", 1)
        scene.turn()
        scene.turn(10)
    assert scene.state.result is Result.FAILED
    assert (
        scene.state.message == "Worker w1 ended 5 times before it was ready (last: ended with exit code 1)."
    )
    assert scene.state.log_of == "w1"


def test_deaths_after_having_been_ready_do_not_end_the_run() -> None:
    scene = RunScene(2)
    for _ in range(2 * EARLY_DEATHS_MAX):
        scene.all_ready()
        scene.fleet.die("w1")
        scene.turn()
        scene.turn(10)
    assert scene.state.phase is Phase.RUNNING


def test_a_failure_of_user_code_stops_the_run_with_its_message() -> None:
    scene = RunScene(2)
    scene.all_ready()
    scene.failures = {"count": "Traceback ...\nValueError: no"}
    actions = scene.turn()
    assert [a for a in actions if isinstance(a, StopWorker)] == [
        StopWorker("w0", GRACE_S),
        StopWorker("w1", GRACE_S),
    ]
    assert scene.state.result is Result.FAILED
    assert scene.state.message.startswith("Operator count failed. Nothing is lost: ")
    assert scene.state.message.endswith("\nTraceback ...\nValueError: no")


def test_a_worker_that_reports_that_it_failed_stops_the_run() -> None:
    scene = RunScene(1)
    scene.ready("w0", "failed", "executor count-w0: no memory")
    scene.turn()
    assert scene.state.message.startswith("Worker w0 cannot go on: executor count-w0: no memory\n")


def test_what_a_worker_says_of_its_tasks_is_told_once() -> None:
    scene = RunScene(1)
    scene.all_ready()
    for trouble in ("task count-w0.0 of count ended: killed", "task count-w0.0 of count stands still"):
        for _ in range(3):
            scene.ready("w0", "ready", trouble)
            scene.turn(1.0)
    assert [text for text in scene.said if "count-w0.0" in text] == [
        "worker w0: task count-w0.0 of count ended: killed",
        "worker w0: task count-w0.0 of count stands still",
    ]


def test_a_store_that_cannot_come_back_stops_the_run() -> None:
    scene = RunScene(1)
    scene.all_ready()
    scene.store_fault = "The disk is full."
    scene.turn()
    assert (scene.state.result, scene.state.message) == (Result.FAILED, "The disk is full.")


def test_the_run_ends_when_the_input_is_used_up_and_nothing_waits() -> None:
    scene = RunScene(2)
    scene.all_ready()
    scene.backlog = DONE
    scene.turn()
    assert scene.state.phase is Phase.RUNNING
    scene.turn()
    assert (scene.state.phase, scene.state.result) == (Phase.STOPPING, Result.FINISHED)
    for worker in ("w0", "w1"):
        scene.fleet.leave(worker, 0)
    scene.turn()
    assert scene.state.phase is Phase.ENDED


def test_work_between_two_looks_is_not_taken_for_the_end() -> None:
    scene = RunScene(2)
    scene.all_ready()
    scene.backlog = DONE
    scene.turn()
    scene.work()
    scene.turn()
    assert scene.state.phase is Phase.RUNNING


def test_a_restart_of_the_store_between_two_looks_is_not_taken_for_the_end() -> None:
    scene = RunScene(2)
    scene.all_ready()
    scene.backlog = DONE
    scene.turn()
    scene.backlog = replace(DONE, generation=2)
    scene.turn()
    assert scene.state.phase is Phase.RUNNING


def test_waiting_entries_keep_the_run_going_also_in_outboxes() -> None:
    for waiting in (replace(DONE, inbox_entries=1), replace(DONE, outbox_entries=1)):
        scene = RunScene(1)
        scene.all_ready()
        scene.backlog = waiting
        scene.turn()
        scene.turn()
        assert scene.state.phase is Phase.RUNNING


def test_a_store_that_is_away_decides_nothing() -> None:
    scene = RunScene(1)
    scene.all_ready()
    scene.rows = scene.backlog = scene.failures = None
    assert scene.turn() == ()
    assert scene.turn(60) == ()


def test_a_death_is_treated_while_the_store_is_away() -> None:
    scene = RunScene(2)
    scene.all_ready()
    scene.rows = scene.backlog = scene.failures = None
    scene.fleet.die("w1")
    assert any(isinstance(action, StartWorker) for action in scene.turn())


def test_a_signal_stops_the_sources_and_lets_the_rest_be_worked_through() -> None:
    scene = RunScene(2)
    scene.all_ready()
    count = scene.published["count"]
    scene.interrupts = 1
    scene.turn()
    assert scene.state.phase is Phase.DRAINING
    assert scene.published["lines"].shards == {}
    assert scene.published["count"] is count
    assert len(scene.living()) == 2
    scene.backlog = replace(DONE, sources_finished=False)
    scene.turn(1)
    scene.turn(1)
    assert (scene.state.phase, scene.state.result) == (Phase.STOPPING, Result.STOPPED)


def test_a_second_signal_ends_the_workers_at_once() -> None:
    scene = RunScene(2)
    scene.all_ready()
    scene.interrupts = 1
    scene.turn()
    scene.interrupts = 2
    actions = scene.turn()
    assert [a for a in actions if isinstance(a, StopWorker)] == [StopWorker("w0", 0.0), StopWorker("w1", 0.0)]
    assert scene.state.result is Result.STOPPED


def test_a_signal_while_workers_leave_ends_them_at_once() -> None:
    scene = RunScene(1)
    scene.all_ready()
    scene.backlog = DONE
    scene.turn()
    scene.turn()
    assert scene.living()["w0"].state == "stopping"
    scene.interrupts = 1
    scene.turn()
    assert scene.living() == {}
    scene.turn()
    assert (scene.state.phase, scene.state.result) == (Phase.ENDED, Result.FINISHED)


def test_a_signal_before_the_work_began_stops_the_workers() -> None:
    scene = RunScene(1)
    scene.interrupts = 1
    scene.turn()
    assert (scene.state.phase, scene.state.result) == (Phase.STOPPING, Result.STOPPED)


def test_a_drain_that_moves_on_may_take_its_whole_time() -> None:
    scene = RunScene(1)
    scene.all_ready()
    scene.interrupts = 1
    scene.turn()
    drained_s = 0
    while scene.state.phase is Phase.DRAINING:
        scene.work()
        scene.turn(1)
        drained_s += 1
    assert drained_s == DRAIN_S
    assert "1 entries still wait; the next run goes on from there" in scene.said


def test_a_drain_that_gets_nowhere_is_given_up() -> None:
    scene = RunScene(1)
    scene.all_ready()
    scene.interrupts = 1
    scene.turn()
    scene.turn(1)
    scene.turn(STALL_S)
    assert scene.state.phase is Phase.STOPPING


def test_a_worker_that_dies_in_a_drain_is_replaced_and_reads_no_more_input() -> None:
    scene = RunScene(1)
    scene.all_ready()
    scene.interrupts = 1
    scene.turn()
    scene.fleet.die("w0")
    scene.turn()
    assert scene.started[-1][2] == 1
    assert scene.published["lines"].shards == {}


def test_a_worker_that_is_back_in_a_drain_gets_a_share_again_though_it_still_has_an_idle_executor() -> None:
    scene = RunScene(2)
    scene.all_ready()
    (reader,) = {e.worker for e in scene.published["lines"].executors}
    scene.interrupts = 1
    scene.turn()
    scene.fleet.die(reader)
    scene.turn()
    scene.turn(1)
    assert scene.shards_on(reader) == set()
    scene.ready(reader, tasks=0)
    scene.turn(1)
    scene.ready(reader)
    scene.turn(1)
    assert len(scene.shards_on(reader)) == 4
    assert scene.said[-1] == f"worker {reader} is ready again and takes 4 shards"


def test_the_time_limit_counts_from_the_beginning_of_work_and_then_drains() -> None:
    scene = RunScene(1, time_limit_s=10)
    scene.turn(60)
    scene.all_ready()
    scene.turn(9)
    assert scene.state.phase is Phase.RUNNING
    scene.turn(1)
    assert (scene.state.phase, scene.state.result) == (Phase.DRAINING, Result.TIME_OVER)


def test_a_worker_that_does_not_leave_is_killed_after_its_grace() -> None:
    scene = RunScene(1)
    scene.all_ready()
    scene.failures = {"count": "no"}
    scene.turn()
    scene.turn(GRACE_S - 1)
    assert scene.state.phase is Phase.STOPPING
    scene.turn(1)
    assert scene.state.phase is Phase.ENDED


def test_nobody_is_started_again_while_the_run_stops() -> None:
    scene = RunScene(2)
    scene.all_ready()
    scene.failures = {"count": "no"}
    scene.turn()
    started = len(scene.started)
    scene.fleet.die("w1")
    scene.turn(1)
    assert len(scene.started) == started
