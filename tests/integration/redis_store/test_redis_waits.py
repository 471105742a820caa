"""What is only true of the node store in Redis: who waits on it, and what wakes them."""

from __future__ import annotations

import threading
import time

import pytest
import redis

from backends.store_fixtures import RedisBackend
from penstock.store.keys import Keys
from penstock.store.port import (
    Answer,
    Publish,
    SetTasks,
    StoreUnreachable,
    Tasks,
    WaitControl,
    WaitOutgoing,
    WaitReady,
    Wake,
)
from penstock.store.redis.connection import ServerError, Wire
from scenes.store_scenario import Scene, incarnation, out

pytestmark = pytest.mark.integration


def blocked_call(
    scene: Scene, backend: RedisBackend, call: WaitReady | WaitControl | WaitOutgoing
) -> tuple[threading.Thread, list]:
    """A thread in which `call` blocks, and where its answer will be."""
    answers: list = []
    client = backend.open_store()
    thread = threading.Thread(target=lambda: answers.append(client.call(call)))
    thread.start()
    with backend.admin() as admin:
        deadline_s = time.monotonic() + 5
        while not (admin.info("clients")["blocked_clients"] or admin.pubsub_channels()):
            assert time.monotonic() < deadline_s
    return thread, answers


def test_a_waiting_task_is_woken_by_an_entry_and_finds_it_on_its_list(
    scene: Scene, backend: RedisBackend, admin: redis.Redis
) -> None:
    scene.set_up("mid/0", "mid/1")
    thread, answers = blocked_call(scene, backend, WaitReady("mid@w1", 2000))
    scene.append("mid/0", 1)
    thread.join(5)
    assert answers == [True]
    scene.append("mid/1", 1)
    assert admin.lrange(Keys("t1").ready("mid@w1"), 0, -1) == [b"mid/0", b"mid/1"]


def test_waiting_changes_nothing_on_a_list(scene: Scene, admin: redis.Redis) -> None:
    scene.set_up("mid/0", "mid/1")
    scene.append("mid/0", 1)
    scene.append("mid/1", 1)
    for _ in range(3):
        assert scene.store.call(WaitReady("mid@w1", 1))
    assert scene.fetch_names("mid@w1") == ["mid/0", "mid/1"]


def test_a_waiting_task_is_woken_by_a_control_token(scene: Scene, backend: RedisBackend) -> None:
    scene.set_up()
    thread, answers = blocked_call(scene, backend, WaitReady("mid@w1", 2000))
    scene.store.call(Wake("mid@w1"))
    thread.join(5)
    assert answers == [True]
    assert scene.fetch("mid@w1").control


def test_a_waiting_worker_is_woken_by_a_schedule(scene: Scene, backend: RedisBackend) -> None:
    scene.set_up()
    last = scene.store.call(WaitControl("w1", -1, 1))
    thread, answers = blocked_call(scene, backend, WaitControl("w1", last, 2000))
    scene.publish("mid", version=2)
    thread.join(5)
    assert answers == [last + 1]


def test_a_waiting_worker_notices_that_its_stream_began_anew(scene: Scene) -> None:
    scene.set_up()
    assert scene.store.call(WaitControl("w1", 1000, 2000)) < 1000


def test_a_waiting_sender_is_woken_by_an_entry_for_another_store(scene: Scene, backend: RedisBackend) -> None:
    scene.set_up("src/0", "mid/0")
    thread, answers = blocked_call(scene, backend, WaitOutgoing(2000))
    scene.commit("src/0", out("far/0"), again=True)
    thread.join(5)
    assert answers == [True]


def test_what_waits_is_seen_by_who_took_up_the_bell_while_the_store_was_loading(
    scene: Scene, backend: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that loads its log lets clients listen, and answers no look."""

    class Loading:
        def exchange(self, _: object) -> list[ServerError]:
            return [ServerError("LOADING Redis is loading the dataset in memory")]

    scene.set_up("src/0")
    scene.commit("src/0", out("far/0"), again=True)
    listener = backend.open_store()
    with monkeypatch.context() as loading:
        loading.setattr(listener, "_blocking", Loading())
        with pytest.raises(StoreUnreachable):
            listener.call(WaitOutgoing(1))
    assert listener.call(WaitOutgoing(1))


def test_the_outboxes_bell_rings_once_for_a_target_and_is_heard_between_two_waits(scene: Scene) -> None:
    scene.set_up("src/0", "src/1")
    store = scene.store
    assert not store.call(WaitOutgoing(1))
    scene.commit("src/0", out("far/0"), again=True)
    scene.commit("src/0", out("far/0"), again=True)
    scene.commit("src/1", out("far/0"), again=True)
    assert store.call(WaitOutgoing(1))
    assert not store.call(WaitOutgoing(1))
    scene.commit("src/1", out("far/1"), again=True)
    assert store.call(WaitOutgoing(1))
    assert not store.call(WaitOutgoing(1))


def test_a_sender_whose_connection_broke_looks_again(scene: Scene, admin: redis.Redis) -> None:
    scene.set_up("src/0")
    scene.commit("src/0", out("far/0"), again=True)
    assert scene.store.call(WaitOutgoing(1))
    admin.client_kill_filter(_type="pubsub", skipme=True)
    with pytest.raises(StoreUnreachable):
        scene.store.call(WaitOutgoing(1000))
    assert scene.store.call(WaitOutgoing(1))


def test_a_task_whose_connection_broke_looks_though_it_need_not(scene: Scene, admin: redis.Redis) -> None:
    scene.set_up("mid/0")
    assert not scene.store.call(WaitReady("mid@w1", 1))
    admin.client_kill_filter(_type="pubsub", skipme=True)
    scene.append("mid/0", 1)
    with pytest.raises(StoreUnreachable):
        scene.store.call(WaitReady("mid@w1", 1000, look=False))
    assert scene.store.call(WaitReady("mid@w1", 1, look=False))


def test_a_wait_of_no_time_does_not_block(scene: Scene) -> None:
    scene.set_up("mid/0")
    assert not scene.store.call(WaitReady("mid@w1", 0))
    scene.append("mid/0", 1)
    assert scene.store.call(WaitReady("mid@w1", 0))


def test_all_that_was_rung_is_taken_also_with_waits_of_no_time(scene: Scene, admin: redis.Redis) -> None:
    """Else the store keeps it for a task that is never without work, until it cuts the connection."""

    def kept_bytes() -> int:
        return sum(int(client["omem"]) for client in admin.client_list(_type="pubsub"))

    scene.set_up("mid/0")
    assert not scene.store.call(WaitReady("mid@w1", 0))
    for _ in range(2000):
        admin.publish(Keys("t1").ready("mid@w1"), b"x" * 1000)
    assert kept_bytes() > 0
    for _ in range(100):
        scene.store.call(WaitReady("mid@w1", 0))
        if kept_bytes() == 0:
            break
    assert kept_bytes() == 0


def test_a_list_that_no_task_is_given_any_more_expires(scene: Scene, admin: redis.Redis) -> None:
    scene.set_up()
    for ready in ("a", "b", "a"):
        scene.store.call(SetTasks("w1", incarnation("w1"), "mid@w1", (("mid/0", ready),)))
    assert admin.ttl(Keys("t1").ready("a")) == -1
    assert 0 < admin.ttl(Keys("t1").ready("b")) <= 60


def test_ready_lists_of_an_executor_that_is_named_no_more_expire(scene: Scene, admin: redis.Redis) -> None:
    """Its worker may be gone: nobody takes the token off them."""
    scene.set_up()
    for worker in ("w1", "w2"):
        call = SetTasks(worker, incarnation(worker), f"mid@{worker}", (("mid/0", f"of-{worker}"),))
        assert scene.store.call(call) is Answer.OK
    one = Publish(
        "mid",
        2,
        1,
        (("w1", "node-1", "host-1", "uid-w1"),),
        (("mid@w1", "w1", 1),),
        (("mid/0", "mid@w1", "s1"),),
    )
    assert scene.store.call(one) is Answer.OK
    assert admin.ttl(Keys("t1").ready("of-w1")) == -1
    assert 0 < admin.ttl(Keys("t1").ready("of-w2")) <= 60
    assert scene.store.call(Tasks("mid@w2", "mid")).mapping == {}
    assert not admin.exists(Keys("t1").tasks("mid@w2"))
    assert scene.store.call(Tasks("mid@w1", "mid")).mapping == {"mid/0": "of-w1"}


def test_a_message_of_more_than_anybody_reads_ends_the_connection_and_is_not_gathered(
    scene: Scene, backend: RedisBackend, admin: redis.Redis
) -> None:
    """Who has a topology's user may publish what he likes where agents listen."""
    scene.open()
    wire = Wire(backend.open_wire().url, 5.0, reply_bytes_max=100_000)
    wire.exchange([(b"SUBSCRIBE", b"bell")])
    for _ in range(10):
        admin.publish("bell", b"x" * 50_000)
        assert wire.pushed(5.0)
    admin.publish("bell", b"x" * 200_000)

    def listen() -> None:
        for _ in range(20):
            wire.pushed(1.0)

    with pytest.raises(StoreUnreachable, match="more than 100000 bytes"):
        listen()
    assert not wire.is_open
