"""Workers of `penstock run` that come and go: warm ones, another one where no room is left, empty ones."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from penstock.dataflow.plan import Tasks, WorkerRange
from penstock.schedule.executor_names import free_name
from penstock.schedule.record import ExecutorPlace, OperatorSchedule
from penstock.supervision.restarts import EARLY_DEATHS_MAX
from penstock_operator.fleet.port import WorkerState
from penstock_operator.local.run_decisions import (
    WANTED_S,
    adopt,
    held_back,
    room_for_tasks,
    tasks_in_all,
    want_worker,
    warm_workers,
)
from penstock_operator.local.run_state import Decision, Phase
from penstock_operator.local.run_turn import GRACE_S
from scenes.run_scene import RunScene

WORKS = "w0"


class Scene(RunScene):
    """One worker with all executors (lines: 1 task, count: 2), whose cores are worth three tasks."""

    def __init__(self, *, least: int = 1, most: int = 2, warm: int = 0, tasks_each: int = 3) -> None:
        super().__init__(1)
        workers = WorkerRange(least, most, warm, tasks_each)
        self.state = replace(self.state, plan=replace(self.state.plan, workers=workers))
        self.all_ready()
        self.turn(1)

    def accept(self, decision: Decision) -> None:
        self._carry_out(decision)

    def put_executor(self, worker: str) -> str:
        """One executor of `count` more, in `worker`, with one shard."""
        old = self.state.schedules["count"]
        name = free_name("count", worker, {e.name for e in old.executors})
        shard = next(iter(old.shards))
        shards = {**old.shards, shard: replace(old.shards[shard], executor=name)}
        self.adopt(replace(old, executors=(*old.executors, ExecutorPlace(name, worker, 1)), shards=shards))
        return name

    def drop_executor(self, name: str) -> None:
        """The executor's shards go to the first one, and it goes."""
        old = self.state.schedules["count"]
        first = old.executors[0].name
        shards = {
            shard: replace(place, executor=first) if place.executor == name else place
            for shard, place in old.shards.items()
        }
        executors = tuple(e for e in old.executors if e.name != name)
        self.adopt(replace(old, executors=executors, shards=shards))

    def adopt(self, schedule: OperatorSchedule) -> None:
        self.accept(adopt(self.state, [schedule]))


def test_a_schedule_that_was_worked_out_from_an_older_one_is_dropped() -> None:
    scene = Scene()
    before = scene.state.schedules["count"]
    name = scene.put_executor(WORKS)
    now = scene.state.schedules["count"]
    assert now.version == before.version + 1
    scene.adopt(before)
    assert scene.state.schedules["count"] == now
    scene.drop_executor(name)
    assert scene.state.schedules["count"].version == now.version + 1


def test_warm_workers_start_once_the_others_work_and_get_nothing() -> None:
    scene = Scene(warm=1)
    assert [worker for worker, _, _ in scene.started] == [WORKS, "w1"]
    assert scene.state.phase is Phase.RUNNING
    scene.ready("w1", tasks=0)
    scene.turn(1)
    assert scene.said[-1] == "worker w1 is warm"
    assert scene.shards_on("w1") == set()
    assert warm_workers(scene.state) == {"w1"}


def test_no_warm_worker_is_kept_where_no_other_may_come() -> None:
    assert [worker for worker, _, _ in Scene(most=1, warm=1).started] == [WORKS]


def test_nobody_waits_for_a_warm_worker_that_starts_or_has_died() -> None:
    scene = Scene(warm=1)
    assert held_back(scene.state) == ""
    assert room_for_tasks(scene.state) == {WORKS: 0}, "what is not up has no room"
    for _ in range(EARLY_DEATHS_MAX + 2):
        scene.fleet.die("w1")
        scene.turn()
        assert held_back(scene.state) == ""
        scene.turn(20)
    assert scene.state.phase is Phase.RUNNING


def test_the_cores_of_a_worker_bound_its_tasks_while_another_one_may_come() -> None:
    scene = Scene(warm=1, tasks_each=5)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    assert room_for_tasks(scene.state) == {WORKS: 2, "w1": 5}
    scene.put_executor("w1")
    assert room_for_tasks(scene.state) == {WORKS: 9, "w1": 11}, "nobody else may come: sessions admit twelve"


def test_the_tasks_of_workers_that_may_still_come_count_for_what_there_is_to_give() -> None:
    assert tasks_in_all(Scene(most=4).state) == 12


def test_a_warm_worker_that_is_given_an_executor_joins_and_is_refilled_behind() -> None:
    scene = Scene(most=3, warm=1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    scene.put_executor("w1")
    assert "warm worker w1 joins" in scene.said
    scene.turn(0.1)
    assert scene.started[-1][0] == "w2"
    assert warm_workers(scene.state) == {"w2"}


def test_another_worker_starts_when_room_is_lacking_and_is_kept_until_it_is_used() -> None:
    scene = Scene()
    assert scene.living().keys() == {WORKS}
    scene.accept(want_worker(scene.state, scene.now_s))
    scene.turn(0.1)
    assert scene.started[-1][0] == "w1"
    assert room_for_tasks(scene.state) == {WORKS: 0}
    scene.ready("w1", tasks=0)
    scene.turn(WANTED_S - 1)
    assert room_for_tasks(scene.state) == {WORKS: 0, "w1": 3}


def test_another_worker_that_nothing_was_put_on_leaves_in_the_end() -> None:
    scene = Scene()
    scene.accept(want_worker(scene.state, scene.now_s))
    scene.turn(0.1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    scene.turn(WANTED_S)
    assert scene.living()["w1"].state is WorkerState.STOPPING
    assert scene.said[-1] == "worker w1 leaves"
    assert scene.uid_of("w1") == set()


def test_no_more_workers_start_than_are_allowed() -> None:
    scene = Scene(most=1)
    scene.accept(want_worker(scene.state, scene.now_s))
    scene.turn(0.1)
    assert scene.living().keys() == {WORKS}


def test_a_worker_leaves_only_when_it_has_lost_its_last_executor() -> None:
    scene = Scene(most=2)
    scene.accept(want_worker(scene.state, scene.now_s))
    scene.turn(0.1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    first, second = scene.put_executor("w1"), scene.put_executor("w1")
    scene.turn(WANTED_S + 1)
    scene.drop_executor(first)
    scene.turn(1)
    assert scene.living()["w1"].state is WorkerState.RUNNING
    scene.drop_executor(second)
    scene.turn(1)
    assert scene.living()["w1"].state is WorkerState.STOPPING
    assert scene.living()[WORKS].state is WorkerState.RUNNING


def test_an_empty_worker_stays_as_a_warm_one_where_one_is_asked_for() -> None:
    scene = Scene(most=2, warm=1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    scene.drop_executor(scene.put_executor("w1"))
    scene.turn(WANTED_S + 1)
    assert scene.living()["w1"].state is WorkerState.RUNNING
    assert warm_workers(scene.state) == {"w1"}


def test_the_least_number_of_workers_stays_also_when_one_is_empty() -> None:
    scene = Scene(least=2, most=2)
    scene.accept(want_worker(scene.state, scene.now_s))
    scene.turn(0.1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    scene.drop_executor(scene.put_executor("w1"))
    scene.turn(WANTED_S + 1)
    assert scene.living()["w1"].state is WorkerState.RUNNING


def test_a_name_is_used_again_once_its_worker_has_ended_and_never_its_uid() -> None:
    scene = Scene()
    for start in range(2):
        scene.accept(want_worker(scene.state, scene.now_s))
        scene.turn(0.1)
        assert scene.started[-1] == ("w1", f"run-w1-{start}", start)
        scene.ready("w1", tasks=0)
        scene.turn(1)
        scene.turn(WANTED_S)
        scene.turn(GRACE_S + 1)


def test_a_name_is_not_used_while_its_worker_still_leaves() -> None:
    scene = Scene()
    scene.accept(want_worker(scene.state, scene.now_s))
    scene.turn(0.1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    scene.turn(WANTED_S)
    scene.accept(want_worker(scene.state, scene.now_s))
    scene.turn(0.1)
    assert scene.started[-1][0] == "w2"


def test_a_warm_worker_takes_over_what_nobody_living_can() -> None:
    scene = Scene(warm=1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    everything = scene.shards_on(WORKS)
    scene.fleet.die(WORKS)
    scene.turn()
    assert scene.shards_on("w1") == everything
    assert warm_workers(scene.state) == set()


def test_a_warm_worker_that_becomes_ready_takes_on_what_waits_for_one_that_is_down() -> None:
    scene = Scene(warm=1)
    everything = scene.shards_on(WORKS)
    scene.fleet.die(WORKS)
    scene.turn()
    assert scene.shards_on(WORKS) == everything, "nobody else is up"
    scene.ready("w1", tasks=0)
    scene.turn(1)
    assert scene.shards_on("w1") == everything
    assert scene.said[-2:] == [
        f"the {len(everything)} shards of worker w0 went to w1",
        "warm worker w1 joins",
    ]


def test_a_warm_worker_takes_the_share_of_one_that_died_and_that_one_is_warm_once_it_is_back() -> None:
    scene = Scene(most=3, warm=1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    scene.put_executor("w1")
    scene.turn(1)
    scene.ready("w2", tasks=0)
    scene.turn(1)
    scene.fleet.die("w1")
    scene.turn()
    assert "its 1 shards went to w0" in scene.said[-1]
    scene.turn(0.1)
    assert "warm worker w2 joins" in scene.said
    assert scene.shards_on("w2") == set(), "its tasks are not up"
    scene.ready("w2")
    scene.turn(0.1)
    assert scene.shards_on("w2")
    scene.ready("w1", tasks=0)
    scene.turn(1)
    assert scene.said[-2:] == ["worker w1 is ready again", "worker w1 is empty"]
    assert warm_workers(scene.state) == {"w1"}
    assert held_back(scene.state) == ""
    assert scene.living().keys() == {"w0", "w1", "w2"}


def test_a_worker_that_comes_back_and_finds_nothing_to_do_holds_nobody_back() -> None:
    scene = Scene(least=2, most=2)
    scene.accept(want_worker(scene.state, scene.now_s))
    scene.turn(0.1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    scene.drop_executor(scene.put_executor("w1"))
    scene.fleet.die("w1")
    scene.turn(WANTED_S + 1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    assert scene.shards_on("w1") == set(), "somebody decided that it has no work"
    assert held_back(scene.state) == ""


def test_of_the_idle_the_warm_one_leaves_and_the_least_number_stays() -> None:
    scene = Scene(least=2, most=4, warm=1)
    executors = {}
    for name in ("w1", "w2"):
        scene.ready(name, tasks=0)
        scene.turn(1)
        executors[name] = scene.put_executor(name)
        scene.turn(1)
    scene.ready("w3", tasks=0)
    scene.turn(1)
    scene.drop_executor(executors["w1"])
    scene.turn(1)
    scene.drop_executor(executors["w2"])
    scene.turn(1)
    assert warm_workers(scene.state) == {"w1"}
    workers = replace(scene.state.plan.workers, warm=0)
    scene.state = replace(scene.state, plan=replace(scene.state.plan, workers=workers))
    scene.turn(WANTED_S + 1)
    assert scene.state.workers.keys() == {"w0", "w2"}


def test_a_warm_worker_that_dies_when_none_is_wanted_any_more_is_forgotten() -> None:
    scene = Scene()
    scene.accept(want_worker(scene.state, scene.now_s))
    scene.turn(0.1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    scene.fleet.die("w1")
    scene.turn(WANTED_S)
    assert scene.state.workers.keys() == {WORKS}
    assert scene.uid_of("w1") == set()


def test_a_worker_for_which_there_is_nothing_to_do_is_taken_in_no_more() -> None:
    scene = Scene(warm=1)
    scene.ready("w1", tasks=0)
    scene.turn(1)
    stages = tuple(replace(stage, tasks=Tasks(1, 8, 1)) for stage in scene.state.plan.stages)
    count = scene.state.schedules["count"]
    scene.adopt(replace(count, executors=tuple(replace(e, tasks=1) for e in count.executors)))
    scene.state = replace(scene.state, hosts_wanted=2, plan=replace(scene.state.plan, stages=stages))
    before = list(scene.said)
    scene.turn(1)
    assert (scene.state.hosts_wanted, scene.said) == (1, before)
    assert held_back(scene.state) == ""


@pytest.mark.parametrize("seed", [9, 27, 53, 63, 105, *range(8)])
def test_whoever_dies_in_whatever_order_all_that_are_wanted_work_in_the_end(seed: int) -> None:
    draw = random.Random(seed)
    scene = Scene(least=1, most=draw.choice([2, 3, 4]), warm=draw.choice([0, 1, 2]))
    everything = scene.shards_on(WORKS)
    for _ in range(40):
        name = draw.choice(sorted(scene.state.workers))
        match draw.randrange(5):
            case 0 if name in scene.living():
                scene.fleet.die(name)
            case 1:
                scene.accept(want_worker(scene.state, scene.now_s))
            case 2 if not held_back(scene.state) and name in scene.living():
                scene.put_executor(name)
            case _:
                scene.ready(name, tasks=draw.randrange(2))
        scene.turn(draw.choice([0.0, 0.1, 1.0, 5.0]))
        held = [scene.shards_on(worker) for worker in scene.state.workers]
        assert sum(len(shards) for shards in held) == len(everything)
        assert len(scene.state.workers) <= scene.state.plan.workers.most
    for _ in range(60):
        for name in scene.state.workers:
            scene.ready(name)
        scene.turn(1.0)
    assert scene.state.phase is Phase.RUNNING
    assert held_back(scene.state) == ""
    assert set().union(*(scene.shards_on(worker) for worker in scene.living())) == everything
    assert scene.turn(1.0) == (), "all is as it should be"
