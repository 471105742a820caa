"""The users of a node store, on a real redis-server: what each may do, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from backends.guarded_store import GuardedStore, made_store, running
from clocks.running import run
from penstock.errors import PermanentError
from penstock.schedule.rebuilding import Kept
from penstock.store.keys import Keys
from penstock.store.port import (
    Answer,
    Assignment,
    Bounds,
    ClearFailure,
    Create,
    Enroll,
    Failures,
    Load,
    Measure,
    OpenStore,
    Outgoing,
    PutMetrics,
    ReadMetrics,
    ReadOutbox,
    ReportFailure,
    Request,
    Retract,
    Scan,
    SetTasks,
    StateSnapshot,
    StateWrite,
    TaskMap,
    Tasks,
    TimerWrite,
    Topologies,
    WaitControl,
    WaitReady,
    Wake,
)
from penstock.store.redis.calls import RedisCalls
from penstock.store.redis.connection import PASSWORD_FILE, Wire
from penstock.store.redis.library import function_library
from penstock.store.redis.store import RedisStore, load_functions
from penstock.store.redis.users import hash_of, topology_rules, topology_user
from penstock_operator.agent.schedule_feed import seen_schedule
from penstock_operator.agent.schedule_memory import ScheduleMemory
from penstock_operator.cluster.observing.kept_schedules import KeptSchedules
from penstock_operator.cluster.observing.observed import KeptThere
from scenes.store_scenario import SMALL, Scene, incarnation, out
from worlds.schedule_objects import UID, item

pytestmark = pytest.mark.integration

OWN = topology_user("t1")
"""Of the workers of the topology of these tests; `worker` is what all shared."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStore]:
    store = made_store(tmp_path_factory.mktemp("users"))
    # As the agent makes it.
    (store.folder / f"{OWN}-password").write_text(store.password(OWN), encoding="utf-8")
    rules = " ".join(topology_rules("t1", [hash_of(store.password(OWN))]))
    with (store.folder / "users.acl").open("a", encoding="utf-8") as file:
        file.write(f"user {OWN} {rules}\n")
    with running(store):
        yield store


class Login:
    """Stores as one of the users; the password comes from the file, as in a pod."""

    def __init__(self, store: GuardedStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = store
        self._monkeypatch = monkeypatch
        self._clients: list[RedisStore] = []

    def use(self, user: str) -> str:
        """The URL for `user`, whose password the environment names from now on."""
        self._monkeypatch.setenv(PASSWORD_FILE, str(self._store.folder / f"{user}-password"))
        return self._store.url(user)

    def open(self, user: str, bounds: Bounds = SMALL) -> RedisStore:
        client = RedisStore(self.use(user), "t1", bounds)
        client.call(Failures())  # connects while the environment names this user's file
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def login(server: GuardedStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Login]:
    server.plain("agent").flushall()
    login = Login(server, monkeypatch)
    load_functions(login.use("agent"))
    yield login
    login.close()


def scene_of(login: Login) -> Scene:
    """What the agent has set up: maps and records; nothing is claimed."""
    scene = Scene(login.open("agent"))
    scene.set_up(unclaimed=("src/0", "mid/0", "mid/1", "end/0"))
    return scene


@pytest.mark.parametrize("user", [OWN, "worker"])
def test_a_worker_may_do_all_that_its_tasks_do(login: Login, user: str) -> None:
    scene_of(login)
    worker = Scene(login.open(user))
    store = worker.store
    assert worker.enroll("w1", attempt=2) is Answer.OK
    assert [one.operator for one in store.call(Assignment("w1")).executors] == ["end", "mid", "src"]
    assert store.call(WaitControl("w1", after=0, timeout_ms=0)) > 0
    assert isinstance(store.call(Tasks("mid@w1", "mid")), TaskMap)
    mapping = (("mid/0", "mid@w1"), ("mid/1", "mid@w1"))
    assert store.call(SetTasks("w1", incarnation("w1", 2), "mid@w1", mapping)) is Answer.OK
    for shard in ("src/0", "mid/0", "mid/1", "end/0"):
        worker.claim(shard, attempt=2)

    assert store.call(WaitReady("src@w1", timeout_ms=0))
    assert store.call(Wake("src@w1")) is Answer.OK
    assert worker.fetch_names("src@w1") == ["src/0"]
    state = (
        StateWrite(b"", b"total", b"1"),
        StateWrite(b"list", b"0", b"first"),
        StateWrite(b"map", b"gone", None),
        StateWrite(b"old", None, None),
    )
    timers = (TimerWrite(b"soon", 5), TimerWrite(b"never", None))
    # four entries find room, the fifth waits in the outbox and is drained by a later commit
    outputs = [out("mid/0", b"m%d" % number) for number in range(5)]
    worker.commit("src/0", *outputs, position=b"7", again=True, state=state, timers=timers)
    assert worker.outbox("src/0", "mid/0") == [(5, b"m4")]
    entries = worker.fetch_one("mid/0")
    far = out("other/0", b"away")
    worker.commit("mid/0", out("end/0", b"e"), far, out("sink", b"row", external=True), entries=entries)
    assert worker.outgoing() == [("mid/0", "other/0")]
    assert worker.acknowledge("mid/0", "sink", 1, b"position") is Answer.OK
    assert worker.acknowledge("mid/0", "other/0", 1) is Answer.OK
    worker.commit("src/0", finished=True)

    claimed = worker.claims["src/0"]
    owned = ("src/0", claimed.generation, claimed.epoch)
    assert store.call(Load(*owned, b"", (b"total", b"none"))) == [b"1", None]
    assert store.call(Scan(*owned, b"list", "0", 10)) == ("0", [(b"0", b"first")])
    assert store.call(StateSnapshot("src/0"))
    assert store.call(ReportFailure(*owned, "src", "it raised")) is Answer.OK
    assert store.call(Failures()) == {"src": "it raised"}
    assert store.call(ClearFailure("src")) is Answer.OK
    assert store.call(PutMetrics((("row", b"packed"),))) is Answer.OK
    assert store.call(ReadMetrics()) == {"row": b"packed"}
    assert worker.measure("mid/0").completed_rows == 4


@pytest.mark.parametrize("user", [OWN, "worker"])
def test_a_worker_is_woken_by_the_stores_bells(login: Login, user: str) -> None:
    agent = scene_of(login)
    worker = login.open(user)
    Scene(worker).claim("mid/0")
    assert not worker.call(WaitReady("mid@w1", timeout_ms=0))  # listens from here on
    agent.fill("mid/0", 1)
    assert worker.call(WaitReady("mid@w1", timeout_ms=2000))


def test_the_agent_may_do_everything(login: Login) -> None:
    agent = scene_of(login)
    assert agent.store.call(Retract()) == 0
    agent.store.pipeline([OpenStore("s1"), Create("new/0")])


def test_the_operator_reads_what_it_decides_by(login: Login) -> None:
    agent = scene_of(login)
    agent.store.call(PutMetrics((("row", b"packed"),)))
    store = login.open("operator")
    assert store.call(Measure(("src/0", "none/0")))[1] is None
    assert store.call(ReadMetrics()) == {"row": b"packed"}
    assert store.call(Failures()) == {}
    assert store.call(Tasks("mid@w1", "mid")).mapping == {}
    assert len(store.call(Assignment("w1")).executors) == 3
    assert store.call(Outgoing(10)) == []
    assert store.call(ReadOutbox("src/0", "mid/0", 100)) == []
    assert store.call(Topologies()) == ["t1"]


def test_the_operator_reads_what_agents_keep_of_schedules_and_the_versions_of_maps(login: Login) -> None:
    scene_of(login)
    memory = ScheduleMemory(Wire(login.use("agent"), 5.0))
    memory.keep({"words-mid": item(3)})
    memory.close()

    def found(uid: str) -> KeptThere:
        names = {"mid": "words-mid", "other": "words-other"}
        with ThreadPoolExecutor(1) as threads:
            reader = KeptSchedules(lambda address: Wire(login.use(address), 5.0), threads)
            there = run(reader.read(uid, names, {"a": "operator"}))["a"]
        assert there is not None
        return there

    kept = found(UID)
    assert kept["mid"].schedule == seen_schedule(item(3)).schedule
    assert (kept["mid"].published, kept["other"]) == (0, Kept())
    published = found("t1")["mid"]
    assert published.schedule is None, "it is of another state"
    assert published.published > 0


WRITES: tuple[Request[Any], ...] = (
    OpenStore("s1"),
    Create("new/0"),
    Enroll("w1", "uid-w1", 1000, 9),
    Wake("src@w1"),
    PutMetrics((("row", b"x"),)),
    Retract(),
)


@pytest.mark.parametrize("call", WRITES, ids=lambda call: type(call).__name__)
def test_the_operator_cannot_write(login: Login, call: Request[Any]) -> None:
    scene_of(login)
    with pytest.raises(PermanentError, match="NOPERM"):
        login.open("operator").call(call)


@pytest.mark.parametrize("user", [OWN, "worker", "operator"])
@pytest.mark.parametrize(
    "command",
    [
        "FLUSHALL", "FLUSHDB", "CONFIG GET *", "CONFIG SET maxmemory 1", "FUNCTION LOAD x", "FUNCTION FLUSH",
        "FUNCTION DUMP", "KEYS *", "SCAN 0", "RANDOMKEY", "ACL LIST", "ACL SETUSER worker +@all", "SHUTDOWN",
        "MONITOR", "REPLICAOF NO ONE", "SAVE", "BGREWRITEAOF", "CLIENT KILL ID 1",
        "CLIENT LIST", "CLIENT ID", "INFO", "SCRIPT FLUSH", "EVAL return(1) 0",
        "RESTORE penstock:x 0 y", "MIGRATE h 1 k 0 1", "RENAME penstock:store penstock:x",
        "PSUBSCRIBE *", "SUBSCRIBE elsewhere", "HGETALL elsewhere", "LATENCY RESET", "MODULE LIST",
    ],
)  # fmt: skip
def test_neither_workers_nor_the_operator_administer_the_store(
    server: GuardedStore, user: str, command: str
) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        server.plain(user).execute_command(*command.split())


@pytest.mark.parametrize(
    "command", ["HSET penstock:store id x", "UNLINK penstock:store", "PUBLISH penstock:x y"]
)
def test_the_operator_has_no_command_that_writes(server: GuardedStore, command: str) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        server.plain("operator").execute_command(*command.split())


def test_a_store_with_these_users_that_is_killed_comes_back_with_all_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server replays its log as the user `default`, and leaves out what that user may not do."""
    store = made_store(tmp_path)
    login = Login(store, monkeypatch)
    logged = ("--appendonly", "yes", "--appendfsync", "no")
    with running(store, *logged) as process:
        load_functions(login.use("agent"))
        scene = scene_of(login)
        scene.claim("src/0")
        scene.commit("src/0", out("mid/0", b"m"), position=b"7")
        before = _content(store)
        login.close()
        process.kill()
    store.socket.unlink()
    with running(store, *logged):
        assert _content(store) == before


def _content(store: GuardedStore) -> dict[bytes, object]:
    """Everything that a server holds but ready lists, which are not in its log; a hash has no order."""
    agent = store.plain("agent")
    keys = [key for key in agent.scan_iter() if b":ready:" not in key]
    return {key: agent.hgetall(key) if agent.type(key) == b"hash" else agent.dump(key) for key in keys}


def test_nobody_enters_without_a_password(server: GuardedStore) -> None:
    with pytest.raises(redis.exceptions.AuthenticationError):
        redis.Redis(unix_socket_path=str(server.socket)).ping()
    wrong = redis.Redis(unix_socket_path=str(server.socket), username="worker", password="wrong")
    with pytest.raises(redis.exceptions.AuthenticationError):
        wrong.ping()


def test_the_libraries_reads_are_called_as_reads() -> None:
    library = function_library().decode()
    registered = set(re.findall(r"register\('(\w+)', \w+, READS\)", library))
    functions = RedisCalls(Keys("t1"), SMALL).functions
    called = {name for name, command in functions.items() if command == b"FCALL_RO"}
    assert called == registered
