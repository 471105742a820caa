"""The agent's driver of moves, on stores in memory: whom it tells, how many it makes at once, when it lets a
shard go or takes it back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from queue import Queue
from typing import Any

import pytest

from backends.store_backends import MemoryBackend, StoreMeanwhile
from penstock.store.moving.mover import MoveKind
from penstock.store.moving.progress import MoveObstacle, MoveStep
from penstock.store.port import (
    Answer,
    NodeStore,
    Request,
    ShardStatus,
    StateSnapshot,
    StateWrite,
    StoreFull,
    StoreUnreachable,
    UnreadableState,
)
from penstock.store.port.moves import Chunk, Depart, Freeze, Install, ReadMove, Thaw
from penstock_operator.agent.kept_stores import KEPT_S
from penstock_operator.agent.kept_thread import ThreadFaults
from penstock_operator.agent.moving import (
    LET_GO_S,
    MOVES_AT_ONCE,
    PRECOPY_BURST_S,
    PRECOPY_SHARE,
    MoveDriver,
)
from penstock_operator.agent.store_side import DueMove
from penstock_simulation.twins.no_thread import NoThread
from scenes.move_scene import MoveScene
from scenes.store_scenario import SHARDS, out
from scenes.task_scene import Between

X = "mid/0"
KEY = ("t1", X)
WAIT_S = 20.0


class SteppingClock:
    """Goes on by `step_s` at each look, and by what is rested."""

    def __init__(self, step_s: float = 1.0) -> None:
        self.step_s = step_s
        self._now_s = 0.0
        self._looks = 0
        self._looked = threading.Condition()

    def look(self) -> float:
        with self._looked:
            self._looks += 1
            self._now_s += self.step_s
            self._looked.notify_all()
            return self._now_s

    def await_looks(self, count: int) -> bool:
        with self._looked:
            return self._looked.wait_for(lambda: self._looks >= count, WAIT_S)

    def rest(self, seconds: float) -> None:
        self._now_s += seconds


class Scene:
    """A driver with a stepping clock; `away`: the target takes no chunk; `room`: it takes so many."""

    def __init__(self) -> None:
        self.moving = MoveScene(MemoryBackend())
        self.moving.send_home(X, "s2")
        self.away = False
        self.room: int | None = None
        self.tried = 0
        self.tried_when_let_go: Queue[int] = Queue()
        self.arrived: Queue[tuple[str, str, str]] = Queue()
        self.finished = threading.Event()
        self.rests: list[tuple[float, ShardStatus]] = []
        """(seconds, the shard's status at home then), each time that the driver let others work."""
        self.tried_at_rests: list[int] = []
        """How many chunks had been brought then."""
        self.looks: list[ShardStatus] = []
        """The shard's status at home, each time that the driver asks there how far the move is."""
        self.clock = SteppingClock()
        self.driver = MoveDriver(
            "s1",
            self._open,
            lambda *told: self.arrived.put(told),
            self.finished.set,
            self.clock.look,
            self._rest,
        )

    def hold(self, keys: int) -> None:
        """Give the shard state, before anything moves."""
        for number in range(keys):
            self.moving.a.commit(X, state=[StateWrite(b"", b"k%d" % number, b"v")])

    def _open(self, store_id: str, _: str) -> NodeStore:
        store = self.moving.at[store_id].store
        if store_id == "s2":
            return StoreMeanwhile(store, Install, self._try)
        told = StoreMeanwhile(store, Thaw, lambda: self.tried_when_let_go.put(self.tried))
        return StoreMeanwhile(told, ReadMove, lambda: self.looks.append(self.moving.a.measure(X).status))

    def _try(self) -> None:
        self.tried += 1
        if self.away:
            raise StoreUnreachable("gone")
        if self.room is not None:
            if not self.room:
                raise StoreFull("the node store is at its memory limit")
            self.room -= 1

    def _rest(self, seconds: float) -> None:
        self.rests.append((seconds, self.moving.a.measure(X).status))
        self.tried_at_rests.append(self.tried)
        self.clock.rest(seconds)

    def begin(self) -> None:
        self.driver.start()
        # each mover has looked at the clock twice when it waits: later looks would count as time that passed
        assert self.clock.await_looks(2 * MOVES_AT_ONCE)
        self.driver.want([DueMove(*KEY, MoveKind.MOVE, "s2", self.moving.version)])


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.driver.stop()
    scene.driver.join(WAIT_S)


def test_who_delivers_hears_of_a_shard_that_has_arrived_and_then_of_the_moves_end(scene: Scene) -> None:
    scene.begin()
    assert scene.arrived.get(timeout=WAIT_S) == (*KEY, "s2")
    assert scene.finished.wait(WAIT_S)
    assert scene.moving.status(X) == ["moved", "active"]
    assert scene.driver.count.finished == 1
    assert scene.driver.progress()[KEY].step is MoveStep.DONE


def test_a_shard_whose_move_is_stuck_is_let_go_and_moves_when_it_can(scene: Scene) -> None:
    scene.away = True
    scene.begin()
    assert 1 < scene.tried_when_let_go.get(timeout=WAIT_S) <= LET_GO_S + 1, "not at once, and not for ever"
    progress = scene.driver.progress()[KEY]
    assert progress.obstacle is MoveObstacle.TARGET_UNREACHABLE
    assert progress.target == "s2"
    assert not scene.finished.is_set()
    scene.away = False
    assert scene.finished.wait(WAIT_S)
    assert scene.moving.b.measure(X).status is ShardStatus.ACTIVE


def test_what_a_full_store_has_of_a_shard_is_given_back_and_the_shard_moves_when_there_is_room(
    scene: Scene,
) -> None:
    scene.hold(60)
    scene.room = 2
    scene.begin()
    assert scene.tried_when_let_go.get(timeout=WAIT_S) > 2
    await_status(scene, ["active", "moved"])
    progress = scene.driver.progress()[KEY]
    assert progress.obstacle is MoveObstacle.FULL
    tried = scene.tried
    again = [DueMove(*KEY, MoveKind.MOVE, "s2", scene.moving.version)]
    for _ in range(5):
        # wakes the movers: their clock goes on by a second, and it is too early
        scene.driver.want(again)
    assert scene.tried == tried
    scene.room = None
    for _ in range(1_000):
        if scene.finished.wait(0.02):
            break
        scene.driver.want(again)
    assert scene.moving.status(X) == ["moved", "active"]


def await_status(scene: Scene, wanted: list[str]) -> None:
    pause = threading.Event()
    for _ in range(1_000):
        if scene.moving.status(X) == wanted:
            return
        pause.wait(0.02)
    assert scene.moving.status(X) == wanted


def test_a_bug_in_a_move_ends_no_mover_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_operator.agent.moving._AGAIN_AFTER_BUG_S", 0.01)
    scene, faults, failing = MoveScene(MemoryBackend()), ThreadFaults(), [KeyError("h")]
    scene.send_home(X, "s2")

    def open_store(store_id: str, _: str) -> NodeStore:
        if failing:
            raise failing.pop()
        return scene.at[store_id].store

    arrived: Queue[tuple[str, str, str]] = Queue()
    driver = MoveDriver("s1", open_store, lambda *told: arrived.put(told), lambda: None, faults=faults)
    driver.start()
    driver.want([DueMove(*KEY, MoveKind.MOVE, "s2", scene.version)])
    try:
        assert arrived.get(timeout=WAIT_S) == (*KEY, "s2")
        assert faults.counts == {"mover": 1}
        assert "KeyError" in faults.last
    finally:
        driver.stop()
        driver.join(WAIT_S)


def test_a_mover_keeps_its_connections_for_the_next_move_and_closes_them_when_none_comes_for_long() -> None:
    scene, clock_s, lines = MoveScene(MemoryBackend()), [0.0], list[str]()

    class Line(Between):
        def close(self) -> None:
            lines.append("closed")

    def open_store(store_id: str, _: str) -> NodeStore:
        lines.append(store_id)
        return Line(scene.at[store_id].store)

    driver = MoveDriver("s1", open_store, lambda *_: None, lambda: None, clock_s=lambda: clock_s[0])
    mover = driver.mover()
    assert mover.closes_in_s(0.0) is None, "it has none yet"
    for shard, began_s in ((X, 0.0), ("mid/1", KEPT_S - 1)):
        clock_s[0] = began_s
        scene.send_home(shard, "s2")
        driver.want([DueMove("t1", shard, MoveKind.MOVE, "s2", scene.version)])
        assert mover.take(began_s)
        while mover.go_on() is not None:
            pass
        assert driver.count.finished == 1 + (shard != X)
        assert lines == ["s1", "s2"], "opened once for both moves"
    driver.want([])
    assert not mover.take(began_s + KEPT_S - 1)
    assert mover.closes_in_s(began_s + KEPT_S - 1) == pytest.approx(1.0)
    assert lines == ["s1", "s2"]
    assert not mover.take(began_s + KEPT_S)
    assert lines == ["s1", "s2", "closed", "closed"]
    assert mover.closes_in_s(began_s + KEPT_S) is None


def test_a_copy_ahead_leaves_most_of_the_time_to_others_and_a_shard_that_stands_still_waits_for_none(
    scene: Scene,
) -> None:
    scene.hold(500)
    scene.begin()
    assert scene.finished.wait(WAIT_S)
    worked_s = 1.0
    rest_s = (worked_s * (1 - PRECOPY_SHARE) - PRECOPY_BURST_S) / PRECOPY_SHARE
    assert len(scene.rests) > 5
    assert {status for _, status in scene.rests} == {ShardStatus.COPYING}
    assert [seconds for seconds, _ in scene.rests] == pytest.approx([rest_s] * len(scene.rests))


def test_who_rests_between_copies_does_so_often_and_who_need_not_rest_copies_much_at_once(
    scene: Scene,
) -> None:
    scene.clock.step_s = PRECOPY_BURST_S / 4
    scene.hold(500)
    scene.begin()
    assert scene.finished.wait(WAIT_S)
    first, *more = scene.tried_at_rests
    assert first > 30, "the burst"
    assert len(more) > 5
    assert {later - sooner for sooner, later in pairwise(scene.tried_at_rests)} == {2}
    assert len(scene.looks) < scene.tried, "it is not asked after each chunk how far the move is"


def test_a_shard_that_stands_still_is_copied_without_asking_again_how_far_the_move_is(scene: Scene) -> None:
    scene.moving.a.commit(X, *[out(f"far/{n}", b"o") for n in range(12)])
    scene.begin()
    assert scene.finished.wait(WAIT_S)
    assert ShardStatus.COPYING in scene.looks
    assert ShardStatus.FROZEN not in scene.looks


def test_what_is_not_wanted_any_more_is_forgotten(scene: Scene) -> None:
    scene.away = True
    scene.begin()
    scene.tried_when_let_go.get(timeout=WAIT_S)
    scene.driver.want([])
    assert scene.driver.progress() == {}


# --- several moves, and their end before it is reached ------------------------------------------------


class Door:
    """Where chunks come in: while it is shut nobody gets past."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_open = False
        self._waiting = 0

    def pass_through(self) -> None:
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._is_open, WAIT_S)
            self._waiting -= 1

    def await_waiting(self, count: int, timeout_s: float = WAIT_S) -> bool:
        """Whether so many wait, now or before the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting >= count, timeout_s)

    def open(self) -> None:
        with self._changed:
            self._is_open = True
            self._changed.notify_all()


class OneAtATime(StoreMeanwhile):
    """The twin is one thread's; a driver has several."""

    lock = threading.Lock()

    def __init__(self, store: NodeStore, kind: type, do: Callable[[], object], frozen: list[str]) -> None:
        super().__init__(store, kind, do)
        self.frozen = frozen

    def call(self, call: Request[Any]) -> Any:
        if isinstance(call, self._kind):
            self._do()
        with self.lock:
            answer = self._store.call(call)
        if isinstance(call, Freeze) and isinstance(answer, Chunk):
            self.frozen.append(call.shard)
        return answer


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture
def moving() -> MoveScene:
    return MoveScene(MemoryBackend())


@pytest.fixture
def frozen() -> list[str]:
    """Shards that were stopped for their move."""
    return []


@pytest.fixture
def ended() -> threading.Semaphore:
    """Released at the end of each move."""
    return threading.Semaphore(0)


@pytest.fixture
def driver(
    moving: MoveScene, door: Door, frozen: list[str], ended: threading.Semaphore
) -> Iterator[MoveDriver]:
    def open_store(store_id: str, _: str) -> NodeStore:
        store = moving.at[store_id].store
        if store_id == "s2":
            return OneAtATime(store, Install, door.pass_through, frozen)
        return OneAtATime(store, Thaw, lambda: None, frozen)

    driver = MoveDriver("s1", open_store, lambda *_: None, ended.release)
    driver.start()
    yield driver
    door.open()
    driver.stop()
    driver.join(WAIT_S)


def test_so_many_moves_go_on_side_by_side_and_no_more(
    driver: MoveDriver, moving: MoveScene, door: Door, frozen: list[str], ended: threading.Semaphore
) -> None:
    moving.send_all_away()
    assert len(SHARDS) > MOVES_AT_ONCE > 1
    driver.want([DueMove("t1", shard, MoveKind.MOVE, "s2", moving.version) for shard in SHARDS])
    assert door.await_waiting(MOVES_AT_ONCE), "they do not wait for each other"
    assert not door.await_waiting(MOVES_AT_ONCE + 1, timeout_s=0.3), "the rest waits for one of them to end"
    door.open()
    assert all(ended.acquire(timeout=WAIT_S) for _ in SHARDS)
    assert [moving.status(shard) for shard in SHARDS] == [["moved", "active"]] * len(SHARDS)
    assert sorted(frozen) == sorted(SHARDS)


def test_a_schedule_that_names_the_old_home_again_takes_a_move_back_while_it_is_copied(
    driver: MoveDriver, moving: MoveScene, door: Door, frozen: list[str], ended: threading.Semaphore
) -> None:
    state = {(b"", b"k%d" % n): b"v" for n in range(30)}
    moving.a.commit(X, state=[StateWrite(*name, value) for name, value in state.items()])
    moving.send_home(X, "s2")
    driver.want([DueMove(*KEY, MoveKind.MOVE, "s2", moving.version)])
    assert door.await_waiting(1)
    assert moving.status(X)[0] == "copying"
    moving.send_home(X, "s1")
    driver.want([DueMove(*KEY, MoveKind.BACK, "s1", moving.version)])
    door.open()
    assert ended.acquire(timeout=WAIT_S)
    assert moving.status(X) == ["active", "moved"]
    assert frozen == []
    assert moving.a.store.call(StateSnapshot(X)) == state
    moving.a.commit(X, state=[StateWrite(b"", b"k1", b"went on")])


def test_a_move_that_has_departed_is_not_taken_back_for_ever_but_looked_at_anew(moving: MoveScene) -> None:
    move = moving.freeze(X)
    moving.copy(X, move)
    assert moving.a.store.call(Depart(X, move)) is Answer.OK
    moving.send_home(X, "s1")
    ends: list[None] = []
    driver = MoveDriver(
        "s1",
        lambda store_id, _: moving.at[store_id].store,
        lambda *_: None,
        lambda: ends.append(None),
        lambda: 0.0,
        thread=NoThread,
    )
    driver.want([DueMove(*KEY, MoveKind.BACK, "s1", moving.version)])
    mover = driver.mover()
    assert mover.take(0.0)
    assert mover.go_on() is None
    assert len(ends) == 1, "what is to be done about the shard is found out again"
    assert not mover.take(60.0), "until then nothing is"
    assert driver.count.finished == 0
    mover.close()


class Unreadable(Between):
    """A store that has of its topology what is none."""

    def pipeline(self, calls: Any) -> list[Any]:
        raise UnreadableState("its workers wrote over it")


def never_opened(*_: str) -> NodeStore:
    raise AssertionError


def test_a_topology_with_many_shards_to_move_does_not_take_all_movers() -> None:
    first, second, other = (
        DueMove(uid, shard, MoveKind.MOVE, "s2", 1)
        for uid, shard in (("t1", "mid/0"), ("t1", "mid/1"), ("t2", "mid/0"))
    )
    driver = MoveDriver("s1", never_opened, lambda *_: None, lambda: None, lambda: 1.0, thread=NoThread)
    driver.want([first, second, other])
    assert [driver.take(1.0) for _ in range(4)] == [first, other, second, None]
    driver.want([first, second])
    driver.end(first, 0.0)
    assert driver.take(1.0) == first


def test_a_shard_that_cannot_be_read_is_left_alone_for_longer_than_one_that_has_to_wait() -> None:
    moving = MoveScene(MemoryBackend())
    now_s = 100.0

    def unreadable(*_: str) -> NodeStore:
        return Unreadable(moving.a.store)  # type: ignore[arg-type]

    driver = MoveDriver("s1", unreadable, lambda *_: None, lambda: None, lambda: now_s, thread=NoThread)
    driver.want([DueMove(*KEY, MoveKind.MOVE, "s2", 1)])
    mover = driver.mover()
    assert mover.take(now_s)
    assert mover.go_on() is None
    assert driver.take(now_s + 14) is None
    assert driver.take(now_s + 15) is not None


def test_a_shard_that_takes_long_is_left_for_later_while_another_topology_waits() -> None:
    moving = MoveScene(MemoryBackend())
    moving.send_home(X, "s2")
    for number in range(400):
        moving.a.commit(X, state=[StateWrite(b"", b"k%d" % number, b"v")])
    clock = SteppingClock(0.0)
    driver = MoveDriver(
        "s1",
        lambda store_id, _: moving.at[store_id].store,
        lambda *_: None,
        lambda: None,
        clock.look,
        thread=NoThread,
    )
    large = DueMove(*KEY, MoveKind.MOVE, "s2", moving.version)
    other = DueMove("t2", X, MoveKind.MOVE, "s2", 1)
    driver.want([large])
    mover = driver.mover()
    mover.chunks_max = 1
    assert mover.take(clock.look())
    clock.rest(11.0)
    assert mover.go_on() is not None, "nobody else waits"
    driver.want([large, other])
    clock.rest(11.0)
    assert mover.go_on() is None
    assert driver.take(clock.look()) == large
    assert driver.take(clock.look()) == other
