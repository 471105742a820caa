"""Resident tasks of a session whose jobs are threads: which are jobs, which are told to who stands by."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from pyspark import SparkContext

from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.plan import Fanout, Stage, Tasks
from penstock.dataflow.schema import Column, Schema
from penstock.store.port import Bounds, Owner
from penstock_worker.main_process.resident_task import ResidentTask
from penstock_worker.spark import resident_tasks, standby
from penstock_worker.spark.places import OnlyHome
from penstock_worker.spark.resident_tasks import ResidentTasks
from penstock_worker.spark.standby import StandbyLaunch
from penstock_worker.spark.standby_rule import BUSY_SHARE, CALM_S, REFILL_S, WARM_AFTER_S
from penstock_worker.task.launch import TaskLaunch

SOURCE = ZipfSource(10, 1.0, 8, 0, None, None, 0.0, 1, 1)
STAGE = Stage("orders", SOURCE, Tasks(1, 4, 1), Fanout(Schema((Column("key", "bigint"),)), (), (), ()))
WITHIN_S = 5.0


def launch(number: int) -> TaskLaunch:
    owner = Owner("orders-w0", "u/1/0", f"orders-w0.{number}.1")
    return TaskLaunch("t", "redis://here", "w0", owner, number, STAGE, ".", False, Bounds())


def unwatched(given: TaskLaunch) -> TaskLaunch:
    """Without the page that its main process reads."""
    return replace(given, note=None)


class Job:
    """What `parallelize` answers; runs where it is asked to."""

    def __init__(self, session: Session, given: object) -> None:
        self._session = session
        self._given = given

    def foreach(self, entry: Callable[[Any], None]) -> None:
        self._session.began(self._given)
        entry(self._given)


class Session:
    """In the place of a SparkContext. `jobs` are what jobs were started with."""

    def __init__(self) -> None:
        self.jobs: list[object] = []
        self._changed = threading.Condition()

    def launches(self) -> list[TaskLaunch]:
        return [unwatched(job) for job in self.jobs if isinstance(job, TaskLaunch)]

    def setJobGroup(self, *_: object, **__: object) -> None:  # noqa: N802  # Spark's own name
        """Threads have no groups."""

    def parallelize(self, given: list[object], _: int) -> Job:
        return Job(self, given[0])

    def began(self, given: object) -> None:
        with self._changed:
            self.jobs.append(given)
            self._changed.notify_all()

    def wait_jobs(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.jobs) >= count, WITHIN_S)


class Scene:
    """`ran` are the launches that processes were told to run; each ends at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[TaskLaunch] = []
        monkeypatch.setattr(standby, "run_resident_task", self.ran.append)
        monkeypatch.setattr(resident_tasks, "run_resident_task", self.ran.append)
        self.session = Session()
        self.now_s = 0.0
        context = cast("SparkContext", self.session)
        self.tasks = ResidentTasks(context, OnlyHome(context), lambda: None, lambda: self.now_s)

    def wait_standby(self) -> None:
        """Until somebody waits at the door."""
        door = self.tasks._door
        assert door is not None
        ticks = threading.Event()
        for _ in range(int(WITHIN_S * 1000)):
            if door._waiting:
                return
            ticks.wait(0.001)
        raise AssertionError("nobody stands by")

    def run(self, number: int) -> ResidentTask:
        """Start a task and wait for its end."""
        task = self.tasks.start(launch(number))
        assert task.ended.wait(WITHIN_S)
        assert task.error == ""
        return task


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(monkeypatch)
    yield made
    made.tasks.close()


def test_without_anybody_who_stands_by_a_task_is_a_job_of_its_own(scene: Scene) -> None:
    scene.run(0)
    assert scene.session.launches() == [launch(0)]
    assert [unwatched(ran) for ran in scene.ran] == [launch(0)]


def test_a_task_for_a_node_that_is_away_ends_and_says_so(scene: Scene) -> None:
    assert [scene.tasks.can_start(node) for node in ("", "n1")] == [True, False]
    task = scene.tasks.start(replace(launch(0), node="n1"))
    assert task.ended.wait(WITHIN_S)
    assert task.error == "the session runs no tasks on node n1: it was started without remote tasks"
    assert scene.ran == []


def test_in_a_worker_with_time_to_spare_nobody_stands_by(scene: Scene) -> None:
    scene.run(0)
    for second in range(1, 100):
        scene.now_s = float(second)
        scene.tasks.prepare(BUSY_SHARE / 2)
    assert scene.session.launches() == [launch(0)]


def test_where_tasks_are_busy_the_next_one_is_told_to_who_stands_by_and_another_follows(
    scene: Scene,
) -> None:
    scene.run(0)
    scene.now_s = 20.0
    scene.tasks.prepare(BUSY_SHARE)
    scene.wait_standby()
    scene.tasks.prepare(BUSY_SHARE)
    scene.run(1)
    assert [unwatched(ran) for ran in scene.ran] == [launch(0), launch(1)]
    assert [type(job) for job in scene.session.jobs] == [TaskLaunch, StandbyLaunch], "one stood by, no more"
    scene.tasks.prepare(BUSY_SHARE)
    assert len(scene.session.jobs) == 2, "the new task gets going first"
    scene.now_s += REFILL_S
    scene.tasks.prepare(BUSY_SHARE)
    scene.session.wait_jobs(3)
    assert type(scene.session.jobs[2]) is StandbyLaunch


def test_a_warm_worker_starts_its_first_task_in_who_stands_by(scene: Scene) -> None:
    scene.now_s = WARM_AFTER_S
    scene.tasks.prepare(0.0)
    scene.wait_standby()
    scene.run(0)
    assert [type(job) for job in scene.session.jobs] == [StandbyLaunch]


def test_who_stands_by_is_sent_away_once_tasks_have_been_calm(scene: Scene) -> None:
    scene.run(0)
    scene.now_s = 20.0
    scene.tasks.prepare(BUSY_SHARE)
    scene.wait_standby()
    scene.now_s += CALM_S
    scene.tasks.prepare(0.0)
    scene.run(1)
    assert [type(job) for job in scene.session.jobs] == [TaskLaunch, StandbyLaunch, TaskLaunch]
