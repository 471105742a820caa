"""The driver of a copy has the next chunk read while the target takes one: when, and what it must forget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from backends.store_backends import Backend, StoreMeanwhile
from penstock.store.moving.mover import move_once
from penstock.store.moving.progress import MoveStep
from penstock.store.port import NodeStore, Request, StateSnapshot, StateWrite, StoreUnreachable
from penstock.store.port.moves import Install
from scenes.move_scene import MoveScene

X = "mid/0"


class Told:
    """A store of which the order of what is sent to it is kept; the names of calls that wait for no answer
    begin with a star."""

    def __init__(self, store: NodeStore, sent: list[str]) -> None:
        self._store = store
        self._sent = sent

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self._sent.append("+".join(type(call).__name__ for call in calls))
        return self._store.pipeline(calls)

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        self._sent.append("*" + "+".join(type(call).__name__ for call in calls))
        return self._store.post(calls)

    def close(self) -> None:
        self._store.close()


class Taking(Told):
    """Keeps where each chunk ends that its store takes."""

    def __init__(self, store: NodeStore, taken: list[bytes]) -> None:
        super().__init__(store, [])
        self._taken = taken

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        answers = super().pipeline(calls)
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(call, Install) and answer.chunks == call.number:
                self._taken.append(call.chunk.resume)
        return answers


@pytest.fixture
def moving(backend: Backend) -> MoveScene:
    """A shard of many chunks that is to go from s1 to s2."""
    moving = MoveScene(backend)
    for first in range(0, 60, 10):
        names = [b"c%d" % number for number in range(first, first + 10)]
        moving.a.commit(X, state=[StateWrite(name, b"k", b"v") for name in names])
    moving.send_home(X, "s2")
    return moving


def drive(moving: MoveScene, source: NodeStore, target: NodeStore, chunks_max: int = 16) -> MoveStep:
    found = {"s2": target}
    return move_once(source, found.get, X, target_id="s2", version=moving.version, chunks_max=chunks_max).step


def test_the_source_reads_on_while_the_target_takes_a_chunk(moving: MoveScene) -> None:
    sent: list[str] = []
    drive(moving, Told(moving.a.store, sent), Told(moving.b.store, sent), chunks_max=100)
    assert sent[:3] == ["ReadMove", "ReadMove", "Precopy+ReadMove"]
    assert sent[3] == "NextRound+Export"
    first_round = sent[4 : sent.index("NextRound+Export", 4)]
    chunks = len(first_round) // 2
    assert chunks > 3
    assert first_round == ["*Export", "Install"] * (chunks - 1) + ["*ReadMove", "Install"]


def test_nothing_is_read_that_this_call_will_not_copy(moving: MoveScene) -> None:
    sent: list[str] = []
    drive(moving, Told(moving.a.store, sent), Told(moving.b.store, sent), chunks_max=2)
    assert sent[4:] == ["*Export", "Install", "Install"]


def test_what_was_read_ahead_is_forgotten_when_another_driver_was_further(moving: MoveScene) -> None:
    before = moving.a.store.call(StateSnapshot(X))
    taken: list[bytes] = []
    target = Taking(moving.b.store, taken)
    tries = 0

    def another_driver() -> None:
        nonlocal tries
        tries += 1
        if tries == 2:
            drive(moving, moving.a.store, target, chunks_max=3)

    while drive(moving, moving.a.store, StoreMeanwhile(target, Install, another_driver)) is not MoveStep.DONE:
        assert tries < 1_000
    assert len(taken) > 5
    assert len(set(taken)) == len(taken), "no part is copied twice"
    moving.claim(X)
    assert moving.b.store.call(StateSnapshot(X)) == before


def test_a_source_that_goes_away_while_it_reads_ahead_is_an_obstacle(moving: MoveScene) -> None:
    class Away(Told):
        def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
            raise StoreUnreachable("gone")

    before = moving.a.store.call(StateSnapshot(X))
    assert drive(moving, Away(moving.a.store, []), moving.b.store) is MoveStep.PRECOPY
    while drive(moving, moving.a.store, moving.b.store) is not MoveStep.DONE:
        pass
    moving.claim(X)
    assert moving.b.store.call(StateSnapshot(X)) == before
