"""Producers of other stores get their share of an inbox that producers of its own store keep full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from backends.store_backends import Backend
from penstock.store.port import Answer, Bounds
from penstock.store.port.moves import Activate, Depart, Thaw
from scenes.move_scene import MoveScene
from scenes.store_scenario import SMALL, Scene, out

BOUNDS = Bounds(
    inbox_bytes_max=6400,
    inbox_entries_max=64,
    outbox_bytes_max=3200,
    outbox_entries_max=32,
    entry_bytes_max=4000,
)
PER_STEP = 8
TARGET = "mid/0"
CALLS_LAST_COMMITS = 1024 + 64


@dataclass(frozen=True)
class Load:
    """What a step brings: `PER_STEP` entries of each producer, which is more than the target works."""

    locals: int = 1
    remotes: int = 1
    size: int = 1
    visit_every: int = 1
    """Steps between two passes of the sender."""
    worked: int = PER_STEP


class Contest:
    """Producers of this store and of another one, all of which have more for one target than it can work."""

    def __init__(self, backend: Backend, bounds: Bounds = BOUNDS) -> None:
        self.scene = Scene(backend.open_store(bounds=bounds)).set_up("src/0", "src/1", TARGET)
        self.bounds = bounds
        self.brought: dict[str, int] = {}

    def go(self, load: Load, steps: int) -> None:
        for step in range(steps):
            for number in range(load.locals):
                self.produce(f"src/{number}", load)
            if step % load.visit_every == 0:
                # each comes first in turn, as senders see to
                for number in range(load.remotes):
                    self.visit(f"far/{(number + step) % load.remotes}", load)
            self.work(load.worked)

    def produce(self, producer: str, load: Load) -> None:
        seen, bounds = self.scene.measure(producer), self.bounds
        if seen.outbox_entries > bounds.outbox_entries_max or seen.outbox_bytes > bounds.outbox_bytes_max:
            return
        outputs = [out(TARGET, b"l" * load.size) for _ in range(PER_STEP)]
        self.scene.commit(producer, *outputs, again=True)

    def visit(self, producer: str, load: Load) -> None:
        """As a sender does: entries in order until one is refused."""
        for _ in range(PER_STEP * load.visit_every):
            number = self.brought.get(producer, 0) + 1
            answer = self.scene.append(TARGET, number, b"r" * load.size, producer=producer)
            if answer is not Answer.OK:
                assert answer is Answer.BUSY
                return
            self.brought[producer] = number

    def work(self, count: int) -> None:
        fetched = self.scene.fetch("mid@w1")
        entries = [one.entries for one in fetched.shards if one.shard == TARGET]
        if entries:
            self.scene.commit(TARGET, entries=entries[0][:count])

    @property
    def waiting(self) -> int:
        return self.scene.measure(TARGET).inbox_entries

    def local_arrived(self) -> int:
        return self.scene.measure(TARGET).arrived_rows - sum(self.brought.values())


@pytest.fixture
def contest(backend: Backend) -> Iterator[Contest]:
    return Contest(backend)


@pytest.mark.parametrize(
    "load",
    [
        Load(),
        Load(size=100),
        Load(size=700, worked=1),
        Load(worked=1),
        Load(locals=2),
        Load(remotes=3),
        Load(visit_every=5),
        Load(visit_every=40),
    ],
    ids=str,
)
def test_who_comes_from_elsewhere_gets_a_third_of_what_one_here_gets_and_not_all(
    contest: Contest, load: Load
) -> None:
    contest.go(load, 40)
    local_before, before = contest.local_arrived(), dict(contest.brought)
    contest.go(load, 240)
    local = (contest.local_arrived() - local_before) / load.locals
    remote = [contest.brought[name] - before.get(name, 0) for name in contest.brought]
    assert len(remote) == load.remotes
    # who comes too seldom for his share gets a quarter of the inbox each time
    share = min(local / 3, 240 / load.visit_every * contest.bounds.inbox_entries_max / 4)
    assert min(remote) >= share * 0.9
    assert local >= max(remote) / 3


def test_what_is_kept_for_who_calls_no_more_is_a_quarter_at_most_and_given_back(contest: Contest) -> None:
    contest.go(Load(remotes=0, worked=4), 30)
    assert contest.waiting == 64
    contest.go(Load(), 2)
    least = 64
    for _ in range(40):
        contest.go(Load(remotes=0), 1)
        least = min(least, contest.waiting)
    assert least == 64 - 16
    contest.go(Load(remotes=0, worked=1), CALLS_LAST_COMMITS)
    contest.go(Load(remotes=0, worked=4), 8)
    assert contest.waiting == 64


def test_an_entry_that_is_refused_for_its_size_gets_room_in_the_end(contest: Contest) -> None:
    """A quarter of the inbox would not do."""
    load = Load(remotes=0, size=100, worked=1)
    contest.go(load, 90)
    answers = []
    for _ in range(120):
        answers.append(contest.scene.append(TARGET, 1, b"r" * 3000, producer="far/0"))
        if answers[-1] is Answer.OK:
            break
        contest.go(load, 1)
    assert answers[0] is Answer.BUSY
    assert answers[-1] is Answer.OK


def test_an_inbox_that_is_empty_takes_an_entry_of_its_own_store_whatever_is_kept(backend: Backend) -> None:
    scene = Scene(backend.open_store(bounds=SMALL)).set_up("src/0", TARGET)
    scene.commit("src/0", out(TARGET, b"x" * 90), again=True)
    assert scene.append(TARGET, 1, b"r" * 100) is Answer.BUSY
    scene.commit(TARGET, entries=scene.fetch_one(TARGET))
    scene.commit("src/0", out(TARGET, b"x" * 90), again=True)
    assert scene.measure(TARGET).inbox_entries == 1


@pytest.mark.parametrize("stays", [False, True], ids=["moves", "stays after all"])
def test_a_shard_that_is_stopped_for_a_move_keeps_nothing_for_who_called_before(
    backend: Backend, stays: bool
) -> None:
    moving = MoveScene(backend, src_1="s2")
    bounds = SMALL.inbox_entries_max
    for number in range(1, bounds + 1):
        assert moving.a.append(TARGET, number) is Answer.OK
    assert moving.a.append(TARGET, bounds + 1) is Answer.BUSY
    moving.a.commit(TARGET, entries=moving.a.fetch_one(TARGET))
    move = moving.freeze(TARGET)
    if stays:
        assert moving.a.store.call(Thaw(TARGET, move)) is Answer.OK
        moving.send_home(TARGET, "s1")
    else:
        moving.copy(TARGET, move)
        assert moving.a.store.call(Depart(TARGET, move)) is Answer.OK
        assert moving.b.store.call(Activate(TARGET, move)) is Answer.OK
    moving.claim(TARGET)
    there, source = (moving.a, "src/0") if stays else (moving.b, "src/1")
    there.commit(source, *[out(TARGET) for _ in range(bounds)], again=True)
    assert there.measure(TARGET).inbox_entries == bounds
