"""A large schedule on its way into a real store, in parts: who dies, comes between or moves a shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.store.keys import Keys
from penstock.store.port import (
    Answer,
    Assignment,
    Bounds,
    Claim,
    Claimed,
    Create,
    Measure,
    OpenStore,
    Output,
    Owner,
    Publish,
    Request,
    Retract,
    SetTasks,
    StoreUnreachable,
    Tasks,
    Weigh,
)
from penstock.store.port.moves import Depart, Freeze, Move, Precopy
from penstock.store.redis.calls import RedisCalls
from penstock.store.redis.connection import Wire
from penstock.store.redis.store import RedisStore
from penstock_operator.local.store.private_store import PrivateStore
from scenes.store_scenario import SMALL, Scene, incarnation

pytestmark = pytest.mark.integration

SHARDS = tuple(f"mid/{number}" for number in range(700))
CALL_US_MAX = 5_000
TRIES_MAX = 60


def schedule(
    version: int, worker: str, *, home: str = "s1", term: int = 1, shards: Sequence[str] = SHARDS
) -> Publish:
    return Publish(
        "mid",
        version,
        term,
        (("w1", "n", "h", "uid-w1"), ("w2", "n", "h", "uid-w2")),
        (("mid@w1", "w1", 1), ("mid@w2", "w2", 1)),
        tuple((shard, f"mid@{worker}", home) for shard in shards),
    )


class Publisher:
    """Sends a schedule command by command."""

    def __init__(self, url: str, call: Publish) -> None:
        self._wire = Wire(url, 5.0)
        calls = RedisCalls(Keys("t1"), SMALL)
        self.commands = [command for command, _ in calls.encode([call], [0])]
        assert len(self.commands) > 2

    def send(self, first: int, last: int | None = None) -> bytes:
        """Commands from one up to before another; answers the last one's reply."""
        reply: bytes = self._wire.exchange(self.commands[first:last])[-1]
        return reply


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateStore]:
    server = PrivateStore(Path(tmp_path_factory.mktemp("store")), "Process")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def admin(server: PrivateStore) -> redis.Redis:
    admin = redis.Redis.from_url(server.url)
    admin.flushall()
    return admin


@pytest.fixture
def many(server: PrivateStore, admin: redis.Redis) -> Iterator[Scene]:
    """Version 2 gives all shards to worker w1, which has claimed them."""
    assert not admin.keys("*")
    scene = Scene(RedisStore(server.url, "t1", SMALL)).set_up()
    scene.store.pipeline([Create(shard) for shard in SHARDS])
    assert scene.store.call(schedule(2, "w1")) is Answer.OK
    owner = Owner("mid@w1", incarnation("w1"), "mid@w1")
    scene.store.pipeline([Claim(shard, owner, 2) for shard in SHARDS])
    yield scene
    scene.store.close()


def given(scene: Scene, worker: str) -> list[str]:
    executors = scene.store.call(Assignment(worker)).executors
    return sorted(shard for one in executors if one.operator == "mid" for shard in one.shards)


def test_nothing_of_a_schedule_counts_before_its_last_part(many: Scene, server: PrivateStore) -> None:
    publisher = Publisher(server.url, schedule(3, "w2"))
    for at in range(len(publisher.commands) - 1):
        assert publisher.send(at, at + 1) == b"OK"
        assert given(many, "w1") == sorted(SHARDS)
        assert isinstance(many.try_claim(SHARDS[at], version=2), Claimed)
    assert publisher.send(-1) == b"OK"
    assert given(many, "w1") == []
    assert given(many, "w2") == sorted(SHARDS)


def test_a_publisher_that_died_midway_is_gone_on_from_and_what_others_left_expires(
    many: Scene, server: PrivateStore, admin: redis.Redis
) -> None:
    Publisher(server.url, schedule(3, "w2")).send(0, 2)
    Publisher(server.url, schedule(4, "w2", home="s2")).send(0, 1)
    staged = [key for key in admin.keys("*") if b":staged" in key]
    assert staged
    assert all(0 < admin.ttl(key) <= 60 for key in staged)
    assert many.store.call(schedule(3, "w2")) is Answer.OK
    assert given(many, "w2") == sorted(SHARDS)
    kept = [key for key in admin.keys("*") if b"shards:mid" in key and b"staged" not in key]
    assert [admin.ttl(key) for key in kept] == [-1]


def test_two_publishers_of_one_schedule_at_once_publish_it_once(many: Scene, server: PrivateStore) -> None:
    one, other = (Publisher(server.url, schedule(3, "w2")) for _ in range(2))
    one.send(0, 1)
    other.send(0, 2)
    assert one.send(1) == b"OK"
    assert other.send(2) == b"DONE"
    assert given(many, "w2") == sorted(SHARDS)


def test_a_schedule_whose_parts_were_staged_over_another_version_is_published_again(
    many: Scene, server: PrivateStore
) -> None:
    late = Publisher(server.url, schedule(9, "w2"))
    late.send(0, 1)
    assert many.store.call(schedule(3, "w1", home="s2")) is Answer.OK
    assert late.send(1) == b"AGAIN"
    assert many.store.call(schedule(9, "w2")) is Answer.OK
    assert given(many, "w2") == sorted(SHARDS)


def test_parts_that_are_missing_are_told_as_a_call_that_may_be_repeated(
    many: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchanged = Wire.send
    monkeypatch.setattr(Wire, "send", lambda wire, commands: exchanged(wire, [commands[-1]] * len(commands)))
    with pytest.raises(StoreUnreachable, match="publish it again"):
        many.store.call(schedule(3, "w2"))
    monkeypatch.undo()
    assert many.store.call(schedule(3, "w2")) is Answer.OK


def test_a_shard_that_departs_between_two_parts_is_given_to_nobody(many: Scene, server: PrivateStore) -> None:
    assert many.store.call(schedule(3, "w2", home="s2")) is Answer.OK
    move = many.store.call(Precopy(SHARDS[0], "s2", 3))
    assert isinstance(move, Move)
    many.store.call(Freeze(SHARDS[0], move, 3, b""))
    publisher = Publisher(server.url, schedule(4, "w1", home="s2"))
    publisher.send(0, -1)
    assert many.store.call(Depart(SHARDS[0], move)) is Answer.OK
    assert publisher.send(-1) == b"OK"
    assert given(many, "w1") == sorted(SHARDS[1:])
    assert given(many, "w2") == []


def test_a_shard_that_another_executor_claims_between_two_parts_is_kept_by_that_one(
    many: Scene, server: PrivateStore
) -> None:
    assert many.store.call(schedule(3, "w2")) is Answer.OK
    publisher = Publisher(server.url, schedule(4, "w1", home="s2"))
    publisher.send(0, -1)
    assert isinstance(many.try_claim(SHARDS[0], worker="w2", version=3), Claimed)
    assert publisher.send(-1) == b"OK"
    assert given(many, "w2") == [SHARDS[0]]
    assert given(many, "w1") == sorted(SHARDS[1:])


def test_no_call_about_as_many_shards_as_a_topology_may_have_keeps_a_store_for_5_ms(
    server: PrivateStore, admin: redis.Redis
) -> None:
    """A busy machine stops the server in the middle of some: what is slow is so each time."""
    store = RedisStore(server.url, "t1", Bounds())
    shards = tuple(f"mid/{number}" for number in range(4096))
    store.call(OpenStore("s1"))
    scene = Scene(store)
    for worker in ("w1", "w2"):
        scene.enroll(worker)
    store.call(schedule(1, "w1", shards=shards))
    owner = Owner("mid@w1", incarnation("w1"), "mid@w1")
    for first in range(0, len(shards), 256):
        store.pipeline([Create(shard) for shard in shards[first : first + 256]])
        store.pipeline([Claim(shard, owner, 1) for shard in shards[first : first + 256]])
    store.call(schedule(2, "w1", shards=shards))
    # one with as many pairs: it sends to all others
    source = store.call(Claim("mid/0", owner, 2))
    assert isinstance(source, Claimed)
    scene.claims["mid/0"], scene.numbers["mid/0"] = source, 0
    for first in range(1, len(shards), 512):
        scene.commit("mid/0", *[Output(shard, b"x", 1) for shard in shards[first : first + 512]])
    tasks = tuple((shard, f"r{at % 8}") for at, shard in enumerate(shards))
    calls: dict[str, Callable[[int], Request[Any]]] = {
        "publish here": lambda version: schedule(version, f"w{1 + version % 2}", shards=shards),
        "publish away": lambda version: schedule(version, "w2", home="s2", shards=shards),
        "assignment of all": lambda _: Assignment("w1"),
        "measure": lambda _: Measure(shards),
        "weigh": lambda _: Weigh(shards[:16]),
        "set tasks": lambda _: SetTasks("w1", incarnation("w1"), "mid@w1", tasks),
        "tasks": lambda _: Tasks("mid@w1", "mid"),
        "claim": lambda version: Claim("mid/0", owner, version),
    }
    admin.config_set("slowlog-max-len", 10_000)
    version = 2
    for name, call in calls.items():
        shortest: dict[bytes, int] = {}
        for _ in range(TRIES_MAX):
            version += name.startswith("publish")
            for function, spent_us in shortest_us(admin, store, call(version)).items():
                shortest[function] = min(shortest.get(function, spent_us), spent_us)
            if max(shortest.values()) < CALL_US_MAX:
                break
        assert max(shortest.values()) < CALL_US_MAX, (name, shortest)
    retracts = [shortest_us(admin, store, Retract()) for _ in range(12)]
    assert min(max(spent.values()) for spent in retracts if spent) < CALL_US_MAX
    store.close()


def shortest_us(admin: redis.Redis, store: RedisStore, call: Request[Any]) -> dict[bytes, int]:
    """How long a call kept the server, by function; of several commands of one function the shortest."""
    admin.slowlog_reset()
    admin.config_set("slowlog-log-slower-than", 0)
    store.call(call)
    admin.config_set("slowlog-log-slower-than", -1)
    spent: dict[bytes, int] = {}
    for entry in admin.slowlog_get(10_000):
        words = entry["command"].split(b" ")
        if words[0].startswith(b"FCALL"):
            spent[words[1]] = min(spent.get(words[1], entry["duration"]), entry["duration"])
    return spent
