"""Remote tasks of `penstock run`: what goes beside, and the Spark workers that come and go for it."""

from __future__ import annotations

from dataclasses import replace

from penstock.supervision.beside import LINGER_S
from penstock_operator.fleet.port import WorkerState
from penstock_operator.local.run_decisions import adopt
from penstock_operator.local.run_state import Phase, StartSparkWorker
from penstock_operator.local.spark_worker_care import AGAIN_AFTER_S, BESIDE
from scenes.run_scene import RunScene

BESIDE_W0 = f"w0-{BESIDE}"


def scene_with_remote_task() -> RunScene:
    """One worker whose cores are worth one task: the source's. `count` has two: one at home, one beside."""
    scene = RunScene(1, remote_tasks=True)
    scene.all_ready()
    return scene


def remote_of(scene: RunScene, operator: str) -> list[tuple[tuple[str, int], ...]]:
    return [executor.remote for executor in scene.published[operator].executors]


def count_with(scene: RunScene, tasks: int) -> None:
    """Somebody decides for another number of tasks."""
    old = scene.state.schedules["count"]
    executors = tuple(replace(executor, tasks=tasks) for executor in old.executors)
    scene._carry_out(adopt(scene.state, [replace(old, executors=executors)]))


def test_what_the_workers_cores_are_not_worth_is_published_as_remote() -> None:
    scene = scene_with_remote_task()
    assert remote_of(scene, "count") == [((BESIDE, 1),)]
    assert remote_of(scene, "lines") == [()]


def test_without_remote_tasks_everything_is_at_home() -> None:
    scene = RunScene(1)
    scene.all_ready()
    assert remote_of(scene, "count") == [()]
    assert scene.joined == []


def test_a_spark_worker_starts_once_the_worker_has_told_its_master() -> None:
    scene = RunScene(1, remote_tasks=True)
    scene.turn()
    assert scene.joined == []
    scene.all_ready()
    assert scene.joined == [StartSparkWorker(BESIDE_W0, 0, "run-w0-0", "spark://run-w0-0:7077")]
    scene.turn(1)
    assert len(scene.joined) == 1


def test_a_spark_worker_that_dies_starts_again() -> None:
    scene = scene_with_remote_task()
    scene.fleet.die(BESIDE_W0)
    scene.turn(1)
    assert len(scene.joined) == 1
    scene.turn(AGAIN_AFTER_S)
    assert [joined.attempt for joined in scene.joined] == [0, 1]


def test_tasks_come_home_when_fewer_are_wanted_and_the_spark_worker_leaves_after_a_while() -> None:
    scene = scene_with_remote_task()
    scene.work()
    scene.turn(1)
    version = scene.published["count"].version
    count_with(scene, 1)
    assert remote_of(scene, "count") == [()]
    assert scene.published["count"].version == version + 1
    scene.turn(1)
    assert BESIDE_W0 in scene.living()
    scene.turn(LINGER_S)
    assert scene.living()[BESIDE_W0].state is WorkerState.STOPPING


def test_a_spark_worker_is_of_one_start_of_its_worker() -> None:
    scene = scene_with_remote_task()
    scene.fleet.die("w0")
    scene.turn()
    scene.turn(1)
    scene.ready("w0")
    scene.turn()
    scene.fleet.leave(BESIDE_W0, 0)
    scene.turn()
    scene.turn(AGAIN_AFTER_S)
    assert [joined.home_uid for joined in scene.joined] == ["run-w0-0", "run-w0-1"]


def test_the_end_of_the_run_waits_for_spark_workers_too() -> None:
    scene = scene_with_remote_task()
    scene.failures = {"count": "no such word"}
    scene.turn()
    scene.fleet.leave("w0", 0)
    scene.turn()
    assert scene.state.phase is Phase.STOPPING
    scene.turn(60)
    assert scene.state.phase is Phase.ENDED
