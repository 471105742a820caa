"""What the agent's delivery does when stores are away, gone or full of what waits, on the stores' twins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from clocks.turned_wall import HOUR_US
from penstock.metrics.rows import ClockRow, clock_row_name, pack
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.moving.mover import move_once
from penstock.store.node_clock import ClockAnchor, SteadyClock, boot_id
from penstock.store.port import (
    Acknowledge,
    Answer,
    Append,
    Bounds,
    Claim,
    Claimed,
    Commit,
    Create,
    Enroll,
    Measure,
    NodeStore,
    OpenStore,
    Outgoing,
    OutgoingTargets,
    Output,
    Owner,
    Publish,
    PutMetrics,
    Request,
    StoreUnreachable,
    UnreadableState,
    WaitOutgoing,
)
from penstock.store.redis.connection import ServerError
from penstock.store.sender import PAIRS_A_LOOK
from penstock_operator.agent.delivery import TopologyDelivery
from penstock_operator.agent.kept_thread import ThreadFaults
from penstock_operator.agent.routes import Routes
from penstock_simulation.twins.no_thread import NoThread
from scenes.task_scene import Between

UID = "t"
WAIT_S = 20.0


class Line:
    """A connection to a twin that several threads use; `scene` says how it fares."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._store = MemoryStore(scene.nodes[name], UID, Bounds()) if name in scene.nodes else None
        self._heard: set[str] = set()
        scene.lines.append(name)

    def call(self, call: Request[Any]) -> Any:
        return self._hear() if isinstance(call, WaitOutgoing) else self.pipeline([call])[0]

    def _hear(self) -> bool:
        """The bell: it rings for a target that nothing waited for before, and for nothing else."""
        time.sleep(0.002)
        targets = set(self.call(OutgoingTargets()))
        news, self._heard = targets - self._heard, targets
        return bool(news)

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        if self._store is None or self._name in self._scene.away:
            raise StoreUnreachable(f"{self._name} is away")
        if any(isinstance(call, Append) for call in calls) and self._name in self._scene.faulty:
            self._scene.faulty.remove(self._name)
            raise ServerError("ERR user_script:1: attempt to index a nil value")
        with self._scene.lock:
            return self._store.pipeline(calls)

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        answers = self.pipeline(calls)
        return lambda: answers

    def close(self) -> None:
        self._scene.lines.remove(self._name)


class Scene:
    """Store "c" with producers; stores "a" and "b" for targets. Who is in `away` does not answer, `faulty`
    meets a bug at its next append, `lines` are the open connections."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.away: set[str] = set()
        self.faulty: list[str] = []
        self.lines: list[str] = []
        self.nodes = {name: MemoryNode() for name in "abc"}
        self.at = {name: MemoryStore(node, UID, Bounds()) for name, node in self.nodes.items()}
        for name, store in self.at.items():
            store.call(OpenStore(name))
        self.addresses = dict.fromkeys("abc", "")
        self.routes = Routes()
        self.faults = ThreadFaults()
        self.delivery = TopologyDelivery("c", self._address_of, self._open, self.routes, self.faults)
        self._claims: dict[str, Claimed] = {}
        self._numbers: dict[str, int] = {}

    def _address_of(self, store: str) -> str | None:
        return store if store in self.addresses else None

    def _open(self, url: str) -> NodeStore:
        return Line(self, url)

    def learn(self, homes: dict[str, str], stores: str = "abc") -> None:
        if self.routes.learn(homes, stores):
            self.delivery.routes_changed()

    def publish(self, store: str, operator: str, version: int, homes: dict[str, str]) -> None:
        executor = f"{operator}-w"
        self.at[store].call(
            Publish(
                operator, version, 0, (("w", "n", "h", "u"),), ((executor, "w", 1),),
                tuple((shard, executor, home) for shard, home in homes.items()),
            )
        )  # fmt: skip

    def produce_with(self, *producers: str) -> None:
        self.publish("c", "p", 1, dict.fromkeys(producers, "c"))
        self.at["c"].call(Enroll("w", "u", 1, 1))
        for shard in producers:
            self.at["c"].call(Create(shard, source=True))
            claimed = self.at["c"].call(Claim(shard, Owner("p-w", "u/1/1", "r"), 1))
            assert isinstance(claimed, Claimed)
            self._claims[shard] = claimed

    def send(self, producer: str, *targets: str, now_us: int = 1) -> None:
        """An entry for each of the targets."""
        claim = self._claims[producer]
        self._numbers[producer] = number = self._numbers.get(producer, 0) + 1
        with self.lock:
            answer = self.at["c"].call(
                Commit(
                    shard=producer,
                    generation=claim.generation,
                    epoch=claim.epoch,
                    number=number,
                    table_version=0,
                    now_us=now_us,
                    again=True,
                    outputs=tuple(Output(target, b"%d" % number, 1) for target in targets),
                )
            )
        assert answer is Answer.OK

    def entries(self, store: str, *shards: str) -> int:
        with self.lock:
            seen = self.at[store].call(Measure(shards))
        return sum(one.inbox_entries for one in seen if one is not None)

    def await_that(self, is_so: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < until_s, what
            time.sleep(0.002)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.delivery.stop()
    scene.delivery.join(time.monotonic() + WAIT_S)


def move(scene: Scene, shard: str) -> None:
    """From store a to store b, while store c has nothing for it."""
    scene.publish("a", "q", 1, {shard: "a"})
    scene.at["a"].call(Create(shard))
    for store in "ab":
        scene.publish(store, "q", 2, {shard: "b"})
    for _ in range(50):
        if move_once(scene.at["a"], scene.at.get, shard, target_id="b", version=2).is_over:
            return
    pytest.fail("the move does not end")


@pytest.mark.parametrize("is_named", [True, False], ids=["away", "gone from the schedules"])
def test_a_shard_that_moved_unseen_is_found_though_its_former_home_is_gone(
    scene: Scene, is_named: bool
) -> None:
    scene.produce_with("p/0")
    scene.learn({"p/0": "c", "q/0": "a"})
    scene.learn({"p/0": "c", "q/0": "b"})
    move(scene, "q/0")
    scene.away.add("a")
    scene.delivery.start()
    if not is_named:
        scene.learn({"p/0": "c", "q/0": "b"}, "bc")
    scene.send("p/0", "q/0")
    scene.await_that(lambda: scene.entries("b", "q/0") == 1, "the entry arrives")
    assert scene.faults.counts == {}


def test_a_shard_that_moved_unseen_is_found_though_nobody_knows_its_former_homes_address(
    scene: Scene,
) -> None:
    scene.produce_with("p/0")
    scene.learn({"q/0": "a"})
    scene.learn({"q/0": "b"})
    move(scene, "q/0")
    del scene.addresses["a"]
    scene.delivery.start()
    scene.send("p/0", "q/0")
    scene.await_that(lambda: scene.entries("b", "q/0") == 1, "the entry arrives")


def test_a_shard_that_has_not_moved_yet_waits_for_its_former_home_and_is_found_there(scene: Scene) -> None:
    scene.produce_with("p/0")
    scene.at["a"].call(Create("q/0"))
    scene.learn({"q/0": "a"})
    scene.learn({"q/0": "b"})
    scene.away.add("a")
    scene.delivery.start()
    scene.send("p/0", "q/0")
    scene.await_that(lambda: scene.delivery.counts().get("b") is not None, "b is asked")
    scene.away.clear()
    scene.await_that(lambda: scene.entries("a", "q/0") == 1, "the entry arrives")


def test_what_waits_for_a_store_that_is_away_hides_nothing_that_is_for_another(scene: Scene) -> None:
    producers = [f"p/{n}" for n in range(40)]
    dead, live = [f"q/d{n}" for n in range(40)], [f"q/l{n}" for n in range(5)]
    scene.produce_with(*producers)
    for shard in live:
        scene.at["b"].call(Create(shard))
    scene.learn(dict.fromkeys(dead, "a") | dict.fromkeys(live, "b"))
    scene.away.add("a")
    for producer in producers:
        scene.send(producer, *dead)
    assert len(producers) * len(dead) > PAIRS_A_LOOK
    scene.delivery.start()
    for producer in producers:
        scene.send(producer, *live)
    scene.await_that(
        lambda: scene.entries("b", *live) == len(producers) * len(live), "all of the live store's arrive"
    )
    scene.away.clear()
    for shard in dead:
        with scene.lock:
            scene.at["a"].call(Create(shard))
    scene.await_that(lambda: scene.entries("a", *dead) == len(producers) * len(dead), "and then the others")
    scene.await_that(lambda: scene.at["c"].call(Outgoing(1)) == [], "nothing waits any more")


def test_a_link_that_a_bug_ended_goes_on_and_says_so(scene: Scene) -> None:
    scene.produce_with("p/0")
    scene.at["b"].call(Create("q/0"))
    scene.learn({"q/0": "b"})
    scene.faulty.append("b")
    scene.delivery.start()
    scene.send("p/0", "q/0")
    scene.await_that(lambda: scene.entries("b", "q/0") == 1, "the entry arrives")
    assert scene.faults.counts == {"link": 1}
    assert "attempt to index a nil value" in scene.faults.last
    assert sorted(scene.lines) == ["b", "c", "c"]


@pytest.mark.parametrize("set_by_us", [HOUR_US, -HOUR_US])
def test_the_lag_of_a_link_is_told_by_the_clock_that_stamped_what_it_delivers(
    scene: Scene, set_by_us: int
) -> None:
    worker = SteadyClock(ClockAnchor(boot_id(), SteadyClock().anchor.offset_us + set_by_us))
    scene.at["c"].call(PutMetrics(((clock_row_name(boot_id()), pack(ClockRow(worker.anchor.offset_us))),)))
    scene.produce_with("p/0")
    scene.learn({"p/0": "c", "q/0": "a"})
    scene.publish("a", "q", 1, {"q/0": "a"})
    scene.at["a"].call(Create("q/0"))
    scene.delivery.start()
    scene.send("p/0", "q/0", now_us=worker.now_us() - 1_000_000)
    scene.await_that(lambda: scene.entries("a", "q/0") == 1, "the entry arrives")
    scene.await_that(lambda: scene.delivery.counts()["a"].lag_us > 0, "its lag is told")
    assert 1_000_000 <= scene.delivery.counts()["a"].lag_us < 1_000_000 + WAIT_S * 1_000_000


def test_a_link_to_a_store_that_no_schedule_names_ends_with_its_connections(scene: Scene) -> None:
    scene.produce_with("p/0")
    for store in "ab":
        scene.at[store].call(Create("q/0"))
    scene.learn({"q/0": "a"})
    scene.delivery.start()
    scene.send("p/0", "q/0")
    scene.await_that(lambda: scene.entries("a", "q/0") == 1, "the entry arrives")
    scene.learn({"q/0": "b"}, "bc")
    scene.await_that(lambda: scene.lines == ["c"], "only who hears the bell has a connection")
    scene.send("p/0", "q/0")
    scene.await_that(lambda: list(scene.delivery.counts()) == ["b"], "there is a link to the new home")


# --- turn by turn -------------------------------------------------------------------------------------


class LosesAReply(Line):
    """The answer to the first acknowledgement of each in `failing` gets lost."""

    failing: list[str]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        answers = super().pipeline(calls)
        if any(isinstance(call, Acknowledge) and call.producer in self.failing for call in calls):
            self.failing.clear()
            raise StoreUnreachable("the reply is lost")
        return answers


def test_what_a_try_has_left_is_delivered_though_the_own_store_gave_no_answer_after_it(scene: Scene) -> None:
    """The bell does not ring again for a target that something waits for."""
    now_s = 0.0
    LosesAReply.failing = ["p/1"]
    scene.produce_with("p/0", "p/1")
    scene.learn({"p/0": "c", "p/1": "c", "q/0": "b", "q/1": "b"})
    for shard in ("q/0", "q/1"):
        scene.at["b"].call(Create(shard))
    delivery = TopologyDelivery(
        "c",
        scene._address_of,
        lambda url: LosesAReply(scene, url),
        scene.routes,
        clock_s=lambda: now_s,
        thread=NoThread,
    )
    bell = Line(scene, "c")
    scene.away.add("b")
    scene.send("p/0", "q/0")
    scene.send("p/0", "q/0")
    delivery.turn(bell)
    (link,) = delivery.links()
    link.begin()
    link.turn()
    scene.away.clear()
    scene.send("p/1", "q/1")
    for _ in range(5):
        delivery.turn(bell)
        now_s += 1.0
        link.turn()
    assert not LosesAReply.failing
    assert scene.entries("b", "q/0") == 2
    assert scene.entries("b", "q/1") == 1
    link.end()
    bell.close()


def test_what_waits_behind_a_producer_that_went_to_another_store_is_delivered(scene: Scene) -> None:
    """With all it had, and nothing was delivered here since: the bell does not ring for the next in line."""
    now_s = 0.0
    scene.produce_with("p/0", "p/1")
    scene.learn({"p/0": "c", "p/1": "c", "q/0": "b"})
    scene.at["b"].call(Create("q/0"))
    delivery = TopologyDelivery(
        "c",
        scene._address_of,
        lambda url: Line(scene, url),
        scene.routes,
        clock_s=lambda: now_s,
        thread=NoThread,
    )
    bell = Line(scene, "c")
    scene.away.add("b")
    scene.send("p/0", "q/0")
    delivery.turn(bell)
    (link,) = delivery.links()
    link.begin()
    link.turn()
    scene.send("p/1", "q/0")
    # As the store lets a shard go that has moved: its lines are taken away.
    scene.at["c"].call(Acknowledge("p/0", "q/0", 1))
    scene.away.clear()
    for _ in range(5):
        delivery.turn(bell)
        now_s += 1.0
        link.turn()
    assert scene.entries("b", "q/0") == 1
    link.end()
    bell.close()


class Unreadable(Between):
    """A store that has of its topology what is none."""

    def call(self, _: Request[Any]) -> Any:
        raise UnreadableState("its workers wrote over it")


def test_outboxes_that_cannot_be_read_are_told_of_once_and_looked_at_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    for _ in range(5):
        assert not scene.delivery.turn(Unreadable(scene.at["c"]))
    assert caplog.text.count("its workers wrote over it") == 1
    assert scene.delivery.rest_s >= 1
