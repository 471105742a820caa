"""A process that stands by for a launch: told, it runs it; sent away, it runs nothing."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.plan import Fanout, Stage, Tasks
from penstock.dataflow.schema import Column, Schema
from penstock.store.port import Bounds, Owner
from penstock_worker.spark import standby
from penstock_worker.spark.standby import StandbyDoor, StandbyLaunch, hand_over, run_standby_task
from penstock_worker.task.launch import TaskLaunch

SOURCE = ZipfSource(10, 1.0, 8, 0, None, None, 0.0, 1, 1)
STAGE = Stage("orders", SOURCE, Tasks(1, 1, 1), Fanout(Schema((Column("key", "bigint"),)), (), (), ()))
LAUNCH = TaskLaunch(
    "t", "redis://here", "w0", Owner("orders-w0", "u/1/0", "orders-w0.0.1"), 0, STAGE, ".", False, Bounds()
)


class Scene:
    """A door, and standbys as threads; `ran` are the launches that they ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[TaskLaunch] = []
        monkeypatch.setattr(standby, "run_resident_task", self.ran.append)
        self.door = StandbyDoor()

    def standby(self, number: int) -> threading.Thread:
        """One that stands by, and waits at the door."""
        before = len(self.door._waiting)
        thread = threading.Thread(target=run_standby_task, args=(StandbyLaunch(self.door.path, number),))
        thread.start()
        while len(self.door._waiting) == before:
            thread.join(0.001)
            assert thread.is_alive()
        return thread


def test_who_stands_by_runs_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    thread = scene.standby(7)
    waiting = scene.door.take()
    assert waiting is not None
    assert waiting[0] == 7
    assert hand_over(waiting[1], LAUNCH)
    thread.join(5)
    assert scene.ran == [LAUNCH]
    scene.door.close()


def test_nobody_is_told_twice_and_where_nobody_waits_nobody_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    assert scene.door.take() is None
    threads = [scene.standby(1), scene.standby(2)]
    first, second = scene.door.take(), scene.door.take()
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == (1, 2)
    assert scene.door.take() is None
    assert hand_over(first[1], LAUNCH)
    assert hand_over(second[1], LAUNCH)
    for thread in threads:
        thread.join(5)
    assert scene.ran == [LAUNCH, LAUNCH]
    scene.door.close()


def test_a_door_that_closes_sends_all_away_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    thread = scene.standby(1)
    assert scene.door.path.startswith("\0"), "a name, and no file that a kill would leave"
    scene.door.close()
    thread.join(5)
    assert not thread.is_alive()
    assert scene.ran == []
    run_standby_task(StandbyLaunch(scene.door.path, 2))
    assert scene.ran == []


def test_whoever_is_another_user_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    run_standby_task(StandbyLaunch(scene.door.path, 1))
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(scene.door.path)
        assert stranger.recv(1) == b"", "it is sent away"
    assert scene.door.take() is None
    assert scene.ran == []
    scene.door.close()


def test_who_goes_before_it_has_knocked_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    with socket.socket(socket.AF_UNIX) as gone:
        gone.connect(scene.door.path)
        gone.sendall(b"\0")
    thread = scene.standby(1)
    waiting = scene.door.take()
    assert waiting is not None
    assert waiting[0] == 1
    assert hand_over(waiting[1], LAUNCH)
    thread.join(5)
    assert scene.ran == [LAUNCH]
    scene.door.close()


def test_who_has_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    thread = scene.standby(1)
    waiting = scene.door.take()
    assert waiting is not None
    scene.door.close()
    _, connection = waiting
    assert hand_over(connection, LAUNCH)
    thread.join(5)
    assert scene.ran == [LAUNCH], "whoever was taken is nobody's to send away"
    assert not hand_over(connection, LAUNCH)
