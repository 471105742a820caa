"""A user for the workers of each topology, on a real redis-server with its agent: none reaches what is
another's, by whatever it calls; and each has what its tasks need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from backends.guarded_store import made_store, running
from clocks.eventually import eventually
from penstock.errors import PermanentError
from penstock.store.keys import WORKER_USERS, Keys
from penstock.store.port import ReadMetrics, StoreUnreachable, Topologies
from penstock.store.redis.calls import RedisCalls
from penstock.store.redis.connection import PASSWORD_FILE, ServerError, Wire
from penstock.store.redis.forms import function_name
from penstock.store.redis.library import PREVIOUS_VERSION, PROTOCOL_VERSION
from penstock.store.redis.store import RedisStore
from penstock.store.redis.users import PROBE, USERS, hash_of, topology_user, users_file
from penstock.store.redis.worker_users import Hashes, PackedUsers, tell_worker_users
from penstock_operator.agent.store_keeper import OpenedStore, StoreKeeper
from penstock_operator.agent.store_server import StoreServer
from penstock_operator.cluster.stores.worker_passwords import worker_hashes, worker_password
from penstock_operator.cluster.turns.passwords_turn import takes
from processes.free_ports import free_port
from scenes.store_scenario import SMALL, Scene, out

pytestmark = pytest.mark.integration

KEY, ROOT = "the operator's key", "of workers"
MINE, THEIRS = "aaaa-1", "bbbb-2"


class Node:
    """A server, its agent's keeper, and what the operator tells it."""

    def __init__(self, folder: Path) -> None:
        self.store = made_store(folder)
        self.shared(is_on=False)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.openings: list[OpenedStore | None] = []
        self.server = ExitStack()
        self.keeper: StoreKeeper | None = None

    def shared(self, *, is_on: bool) -> None:
        """Whether the users' file has the user that topologies shared."""
        known = {user: [hash_of(self.store.password(user))] for user in USERS if is_on or user != "worker"}
        fresh = self.store.folder / "fresh.acl"
        fresh.write_text(users_file(known), encoding="utf-8")
        fresh.rename(self.store.folder / "users.acl")

    def start(self) -> None:
        settings = ("--port", str(self.port), "--bind", "127.0.0.1", "--appendonly", "yes")
        self.server.enter_context(running(self.store, *settings))

    def restart(self) -> None:
        self.server.close()
        self.start()

    def keep(self) -> None:
        server = StoreServer(f"redis://agent@{self.address}", "s1")
        users = str(self.store.folder / "users.acl")
        self.keeper = StoreKeeper(server, 0, self.openings.append, users_file=users)
        self.keeper.start()
        eventually(lambda: self.openings, "the agent's keeper opened the store")

    def tell(self, *uids: str, roots: tuple[str, ...] = (ROOT,), term: int = 1) -> int:
        """As the operator, with its user's rights."""
        wire = Wire(f"redis://operator@{self.address}", 5.0, lambda: self.store.password("operator"))
        try:
            return tell_worker_users(wire, PackedUsers.of(self.hashes(*uids, roots=roots)), term)
        finally:
            wire.close()

    def hashes(self, *uids: str, roots: tuple[str, ...] = (ROOT,)) -> Hashes:
        return worker_hashes(KEY, [hash_of(root) for root in roots], uids)

    def lets_in(self, uid: str, root: str = ROOT) -> bool:
        return takes(self.address, {topology_user(uid): worker_password(KEY, root, uid)})

    def client(self, uid: str, of: str = "") -> RedisStore:
        """What a task of the topology `uid` has, for the keys of topology `of`."""
        url = f"redis://{topology_user(uid)}@{self.address}"
        return RedisStore(url, of or uid, SMALL, password=lambda: worker_password(KEY, ROOT, uid))

    def plain(self, uid: str) -> Any:
        return redis.Redis(
            port=self.port,
            username=topology_user(uid),
            password=worker_password(KEY, ROOT, uid),
            protocol=3,
            retry=Retry(NoBackoff(), 0),
        )

    def agent(self) -> Any:
        return self.store.plain("agent")

    def agents(self, uid: str) -> RedisStore:
        return RedisStore(f"redis://agent@{self.address}", uid, SMALL)

    def stop(self) -> None:
        if self.keeper is not None:
            self.keeper.stop()
        self.server.close()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node(tmp_path)
    monkeypatch.setenv(PASSWORD_FILE, str(node.store.folder / "agent-password"))
    node.start()
    node.keep()
    node.tell(MINE, THEIRS)
    eventually(lambda: node.lets_in(MINE) and node.lets_in(THEIRS), "the agent made their users")
    yield node
    node.stop()


def filled(node: Node, uid: str) -> Scene:
    """A topology at work: keys of each kind."""
    Scene(node.agents(uid)).set_up(unclaimed=("src/0", "mid/0", "mid/1", "end/0"))
    worker = Scene(node.client(uid))
    assert worker.enroll("w1", attempt=2)
    for shard in ("src/0", "mid/0", "mid/1", "end/0"):
        worker.claim(shard, attempt=2)
    worker.commit("src/0", *(out("mid/0", b"m%d" % number) for number in range(5)), position=b"7")
    return worker


def content(node: Node, uid: str) -> dict[bytes, bytes]:
    agent = node.agent()
    return {key: agent.dump(key) for key in agent.scan_iter(f"penstock:{uid}:*")}


def keys_of(uid: str) -> dict[str, bytes]:
    """One of each data type."""
    keys = Keys(uid)
    return {
        "hash": keys.shard("src/0"), "list": keys.ready("src@w1"), "set": keys.pending("src/0"),
        "zset": keys.waiters("mid/0"), "stream": keys.inbox("mid/0"),
    }  # fmt: skip


COMMANDS = [
    "HGETALL {hash}", "HSET {hash} p x", "HDEL {hash} p", "HINCRBY {hash} x 1", "HSCAN {hash} 0",
    "HRANDFIELD {hash}", "HSTRLEN {hash} p", "LRANGE {list} 0 -1", "LPUSH {list} x", "LPOP {list}",
    "BLPOP {list} 0.01", "LMPOP 1 {list} LEFT", "RPOPLPUSH {list} {own_list}",
    "LMOVE {own_list} {list} LEFT LEFT", "SMEMBERS {set}", "SADD {set} x", "SDIFFSTORE {own_set} {set}",
    "SUNIONSTORE {set} {own_set}", "SMOVE {own_set} {set} x", "SINTERCARD 2 {own_set} {set}",
    "SSCAN {set} 0", "ZRANGE {zset} 0 -1", "ZADD {zset} 1 x", "ZPOPMIN {zset}",
    "ZRANGESTORE {own_zset} {zset} 0 -1", "ZUNIONSTORE {own_zset} 2 {own_zset} {zset}",
    "ZMPOP 1 {zset} MIN", "XRANGE {stream} - +", "XADD {stream} * a b", "XDEL {stream} 1-0",
    "XTRIM {stream} MAXLEN 0", "XREAD COUNT 1 STREAMS {stream} 0",
    "XREAD COUNT 1 STREAMS {own_stream} {stream} 0 0", "XINFO STREAM {stream}",
    "XGROUP CREATE {stream} g 0", "XREADGROUP GROUP g c STREAMS {stream} >", "XCLAIM {stream} g c 0 1-0",
    "EXISTS {hash}", "EXPIRE {hash} 0", "PERSIST {hash}", "UNLINK {hash}", "UNLINK {own_hash} {hash}",
    "DEL {hash}", "TYPE {hash}", "DUMP {hash}", "OBJECT ENCODING {hash}", "MEMORY USAGE {hash}",
    "COPY {hash} {own_hash}", "RENAME {hash} {own_hash}", "SORT {list} STORE {own_list}",
    "SORT_RO {own_list} BY {hash}->p", "TOUCH {hash}", "GET {hash}", "SET {hash} x", "MOVE {hash} 1",
    "WATCH {hash}", "PUBLISH {list} x", "SUBSCRIBE {list}", "PSUBSCRIBE penstock:*", "SPUBLISH {list} x",
    "SSUBSCRIBE {list}", "HSET penstock:store generation 9", "UNLINK penstock:store",
    "HDEL penstock:store id", "SMEMBERS penstock:topologies", "SREM penstock:topologies x",
    "UNLINK penstock:topologies", "SPOP penstock:topologies", "HGETALL penstock:schedules",
    "HSET penstock:schedules a b", "HGETALL penstock-users", "HSET penstock-users users x",
    "HMGET penstock-users users", "UNLINK penstock-users", "KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE",
    "FLUSHALL", "EVAL return(1) 0", "SCRIPT LOAD x", "FUNCTION LIST", "FUNCTION LOAD x", "FUNCTION DUMP",
    "CONFIG GET *", "ACL LIST", "ACL WHOAMI", "ACL SETUSER worker-bbbb-2 nopass", "CLIENT LIST",
    "CLIENT KILL USER worker-bbbb-2", "MONITOR", "SHUTDOWN", "PSYNC ? -1",
    "REPLICAOF NO ONE", "MULTI", "SELECT 1", "SWAPDB 0 1", "MIGRATE h 1 k 0 1", "RESTORE {own_hash} 0 x",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["plain", "beside own keys"])
def test_no_command_reaches_what_is_another_topologys(node: Node, kind: str) -> None:
    filled(node, THEIRS)
    if kind != "plain":
        filled(node, MINE)
    before = content(node, THEIRS)
    names = {name: key.decode() for name, key in keys_of(THEIRS).items()}
    names |= {f"own_{name}": key.decode() for name, key in keys_of(MINE).items()}
    got_through = []
    for command in COMMANDS:
        with node.plain(MINE) as client:
            try:
                answer = client.execute_command(*command.format(**names).split())
            except redis.exceptions.NoPermissionError:
                continue
            got_through.append((command, answer))
    assert got_through == []
    assert content(node, THEIRS) == before


WITHOUT_KEYS = {"auth", "hello", "ping", "quit", "reset"}
COUNTED_KEYS = {
    "blmpop": "0 1 {} LEFT", "bzmpop": "0 1 {} MIN", "fcall": "f 1 {}", "fcall_ro": "f 1 {}",
    "lmpop": "1 {} LEFT", "sintercard": "1 {}", "xread": "STREAMS {} 0",
    "xreadgroup": "GROUP g c STREAMS {} >", "zdiff": "1 {}", "zdiffstore": "own 1 {}", "zinter": "1 {}",
    "zintercard": "1 {}", "zinterstore": "own 1 {}", "zmpop": "1 {} MIN", "zunion": "1 {}",
    "zunionstore": "own 1 {}",
}  # fmt: skip
"""Commands that say where their keys are, with one."""


def test_of_all_commands_that_the_server_has_none_takes_another_topologys_key(node: Node) -> None:
    """Also of a server that has more of them than the one that these rules were written for."""
    foreign = Keys(THEIRS).shard("src/0").decode()
    own = Keys(MINE).shard("src/0").decode()
    wire = Wire(f"redis://agent@{node.address}", 5.0)
    (listed,) = wire.exchange([("COMMAND", "LIST")])
    names = sorted(name.decode() for name in listed)
    infos = [info for (info,) in wire.exchange([("COMMAND", "INFO", name) for name in names])]
    takes_it = []
    for name, info in zip(names, infos, strict=True):
        words = name.split("|")
        given = [foreign] * (abs(info[1]) - len(words))
        if name in COUNTED_KEYS:
            given = [own if word == "own" else word.format(foreign) for word in COUNTED_KEYS[name].split()]
        (told,) = wire.exchange([("ACL", "DRYRUN", topology_user(MINE), *words, *given)])
        if not isinstance(told, ServerError) and b"no permissions" not in told:
            takes_it.append(name)
    wire.close()
    assert set(takes_it) == WITHOUT_KEYS
    assert len(names) > 300


@pytest.mark.parametrize(
    "command",
    [
        "SUNION {set} {set} {set}", "SINTERCARD 2 {set} {set}", "SDIFFSTORE {set} {set}", "ZINTER 1 {zset}",
        "ZUNIONSTORE {zset} 2 {zset} {zset}", "ZRANGESTORE {zset} {zset} 0 -1", "LINSERT {list} BEFORE a b",
        "LPOS {list} x", "SORT {list}", "XREADGROUP GROUP g c STREAMS {stream} >", "BLPOP {list} 1",
    ],
)  # fmt: skip
def test_nothing_that_tasks_do_not_need_is_done_with_own_keys_either(node: Node, command: str) -> None:
    """One command that names a set ten thousand times keeps the server from everybody for minutes."""
    filled(node, MINE)
    names = {name: key.decode() for name, key in keys_of(MINE).items()}
    with node.plain(MINE) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*command.format(**names).split())


def test_who_asks_for_more_than_a_server_can_hold_is_put_out_and_the_others_are_not(node: Node) -> None:
    theirs = node.client(THEIRS)
    theirs.call(ReadMetrics())
    key = Keys(MINE).metrics
    with node.plain(MINE) as client:
        client.hset(key, "row", b"x" * (4 << 20))
        with pytest.raises(redis.exceptions.ConnectionError):
            client.execute_command("HMGET", key, *["row"] * 20)
        with pytest.raises(redis.exceptions.RedisError):
            client.hset(key, "other", b"x" * (33 << 20))
    assert node.agent().hkeys(key) == [b"row"]
    theirs.call(ReadMetrics())
    theirs.close()
    assert node.agent().config_get("maxmemory-clients") == {"maxmemory-clients": "20%"}
    assert None not in node.openings


def test_who_has_most_of_the_connections_that_a_server_takes_is_put_out(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = node.client(THEIRS)
    theirs.call(ReadMetrics())
    node.agent().config_set("maxclients", 60)
    crowd = [node.plain(MINE) for _ in range(60)]
    with ExitStack() as opened:
        for client in crowd:
            opened.enter_context(client)
            with suppress(redis.exceptions.ConnectionError):
                client.ping()
        eventually(lambda: f"of {topology_user(MINE)} are ended" in caplog.text, "the agent saw it")
        assert node.lets_in(THEIRS)
    theirs.call(ReadMetrics())
    assert None not in node.openings
    theirs.close()


@pytest.mark.parametrize("version", [PROTOCOL_VERSION, PREVIOUS_VERSION])
def test_no_function_works_on_another_topologys_prefix(node: Node, version: int) -> None:
    filled(node, THEIRS)
    before = content(node, THEIRS)
    calls = RedisCalls(Keys(THEIRS), SMALL, version)
    with node.plain(MINE) as client:
        for name, command in calls.functions.items():
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(command, function_name(name, version), 1, Keys(THEIRS).prefix, "src/0")
    assert content(node, THEIRS) == before


@pytest.mark.parametrize("version", [PROTOCOL_VERSION, PREVIOUS_VERSION])
def test_keys_that_a_function_makes_of_its_arguments_are_checked_too(node: Node, version: int) -> None:
    """Without a key, or with one of one's own: each command inside counts as the caller's."""
    filled(node, THEIRS)
    before = content(node, THEIRS)
    calls = RedisCalls(Keys(THEIRS), SMALL, version)
    theirs = Keys(THEIRS).prefix.decode()
    # what a name must hold to lead from one's own prefix to theirs, if anything did
    names = ("src/0", f"../{THEIRS}:shard:src/0", theirs, f"\r\n{theirs}shard:src/0", "*")
    numbers = ("1", "0", "9")
    with node.plain(MINE) as client:
        for name, command in calls.functions.items():
            for keys in ((0,), (1, Keys(MINE).prefix), (2, Keys(MINE).prefix, theirs)):
                for argument in names:
                    with pytest.raises(redis.exceptions.ResponseError) if keys[0] == 2 else _any_answer():
                        client.execute_command(
                            command, function_name(name, version), *keys, argument, *numbers, argument
                        )
    assert content(node, THEIRS) == before
    assert node.agent().hget("penstock:store", "id") == b"s1"


class _any_answer:  # noqa: N801 - stands beside pytest.raises
    """Whatever it answers, or that it refuses: what counts is what it did."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, redis.exceptions.ResponseError)


def test_a_function_that_names_a_foreign_key_inside_is_refused_by_the_server(node: Node) -> None:
    """It is the server that checks; not what our functions happen to ask for."""
    filled(node, THEIRS)
    code = (
        "#!lua name=planted\n"
        "redis.register_function('planted_get', function(keys, args)"
        " return redis.call('HGETALL', args[1]) end)\n"
        "redis.register_function('planted_set', function(keys, args)"
        " return redis.call('HSET', args[1], 'p', 'x') end)\n"
    )
    node.agent().function_load(code)
    with node.plain(MINE) as client:
        for function in ("planted_get", "planted_set"):
            with pytest.raises(redis.exceptions.ResponseError, match=r"can.t access at least one"):
                client.fcall(function, 0, Keys(THEIRS).shard("src/0"))
            with pytest.raises(redis.exceptions.ResponseError, match=r"can.t access at least one"):
                client.fcall(function, 1, Keys(MINE).prefix, Keys(THEIRS).shard("src/0"))
        assert client.fcall("planted_set", 1, Keys(MINE).prefix, Keys(MINE).shard("src/0")) == 1


def test_our_own_client_of_another_topology_is_told_why(node: Node) -> None:
    filled(node, THEIRS)
    with pytest.raises(PermanentError, match="NOPERM"):
        node.client(MINE, of=THEIRS).call(ReadMetrics())


@pytest.mark.parametrize("version", [PROTOCOL_VERSION, PREVIOUS_VERSION])
def test_workers_of_two_topologies_do_all_that_tasks_do_side_by_side(node: Node, version: int) -> None:
    if version == PREVIOUS_VERSION:
        node.agent().function_delete(f"penstock_{PROTOCOL_VERSION}")
    for uid in (MINE, THEIRS):
        worker = filled(node, uid)
        assert worker.fetch_names("src@w1") == ["src/0"]
        entries = worker.fetch_one("mid/0")
        worker.commit("mid/0", out("end/0", b"e"), entries=entries)
        assert worker.measure("mid/0").completed_rows == len(entries)
    assert set(node.agent().smembers("penstock:topologies")) == {MINE.encode(), THEIRS.encode()}


def test_what_a_worker_adds_to_the_set_of_topologies_keeps_no_agent_busy(node: Node) -> None:
    """Agents retract what is in it and is nobody's any more."""
    filled(node, THEIRS)
    with node.plain(MINE) as client:
        for added in (f"{THEIRS}:shard", "a b", b"\xff", "", "*", "x" * 65):
            client.sadd("penstock:topologies", added)
    assert node.agents("any").call(Topologies()) == [THEIRS]


def test_a_topology_that_is_gone_has_no_user_and_no_connection_and_others_are_not_disturbed(
    node: Node,
) -> None:
    mine, theirs = node.client(MINE), node.client(THEIRS)
    filled(node, MINE)
    filled(node, THEIRS)
    mine.call(ReadMetrics())
    theirs.call(ReadMetrics())
    node.tell(MINE)
    eventually(lambda: not node.lets_in(THEIRS), "its user is gone")
    with pytest.raises(StoreUnreachable):
        theirs.call(ReadMetrics())
    with pytest.raises(StoreUnreachable, match="refuses the login"):
        theirs.call(ReadMetrics())
    mine.call(ReadMetrics())
    assert None not in node.openings
    for client in (mine, theirs):
        client.close()


def test_who_is_gone_is_out_before_the_operator_tells_and_does_not_come_back(node: Node) -> None:
    """What its workers wrote behind the removal of its state would stay for good. A store at its memory limit
    cannot be told."""
    theirs, server = node.client(THEIRS), StoreServer(f"redis://agent@{node.address}", "s1")
    theirs.call(ReadMetrics())
    assert node.keeper is not None
    node.keeper.end_user(THEIRS, server)
    with pytest.raises(StoreUnreachable):
        theirs.call(ReadMetrics())
    node.tell(MINE, THEIRS, "cccc-3")
    eventually(lambda: node.lets_in("cccc-3"), "the agent looked at what was told")
    assert not node.lets_in(THEIRS)
    assert node.lets_in(MINE)
    assert set(node.keeper.users()) == {MINE, THEIRS, "cccc-3"}, "as the operator has told"
    theirs.close()
    server.close()


def test_a_server_that_starts_anew_knows_the_topologies_users_again_and_nobody_tells_it(node: Node) -> None:
    filled(node, MINE)
    node.restart()
    eventually(lambda: node.lets_in(MINE) and node.lets_in(THEIRS), "the agent made their users again")
    node.client(MINE).call(ReadMetrics())


def test_a_store_that_was_emptied_lets_nobody_in_until_it_is_told(node: Node) -> None:
    node.agent().flushall()
    eventually(lambda: not node.lets_in(MINE), "what was told is gone")
    node.tell(MINE)
    eventually(lambda: node.lets_in(MINE), "the next look tells it")


def test_a_worker_that_is_there_before_its_user_waits_as_for_a_store_that_is_away(node: Node) -> None:
    early = node.client("cccc-3")
    with pytest.raises(StoreUnreachable, match="refuses the login"):
        early.call(ReadMetrics())
    node.tell(MINE, THEIRS, "cccc-3")
    eventually(lambda: node.lets_in("cccc-3"), "the agent made its user")
    early.call(ReadMetrics())
    early.close()


def test_a_rotation_keeps_both_passwords_and_then_ends_what_came_in_by_the_former(node: Node) -> None:
    former = node.client(MINE)
    former.call(ReadMetrics())
    node.tell(MINE, THEIRS, roots=(ROOT, "next"))
    eventually(lambda: node.lets_in(MINE, "next") and node.lets_in(PROBE, "next"), "the next one is good")
    assert node.lets_in(MINE, ROOT)
    former.call(ReadMetrics())
    node.tell(MINE, THEIRS, roots=("next",))
    eventually(lambda: not node.lets_in(MINE, ROOT), "the former one is over")
    # An agent that ends connections may end the one that asks.
    eventually(lambda: node.lets_in(MINE, "next"), "the next one is good")
    # Connections are ended after the users are others.
    eventually(lambda: is_out(former), "what came in by the former one is ended")
    former.close()


def is_out(client: RedisStore) -> bool:
    try:
        client.call(ReadMetrics())
    except StoreUnreachable:
        return True
    return False


def test_an_operator_that_leads_no_more_does_not_take_a_user_away(node: Node) -> None:
    assert node.tell(MINE, THEIRS, "cccc-3", term=5) == 5
    eventually(lambda: node.lets_in("cccc-3"), "the later leader's word counts")
    assert node.tell(MINE, term=4) == 5
    assert node.agent().hget(WORKER_USERS, "term") == b"5"
    assert node.lets_in("cccc-3")


def test_what_is_no_list_of_users_changes_no_user(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.agent().hset(WORKER_USERS, mapping={"digest": "x", "users": b"\xc1"})
    eventually(lambda: "keeps the topologies' users" in caplog.text, "the agent saw it")
    assert node.lets_in(MINE)
    node.tell(THEIRS)
    eventually(lambda: not node.lets_in(MINE), "the next good one is taken")
    assert node.lets_in(THEIRS)


def test_workers_of_a_version_before_log_in_as_the_shared_user_until_it_is_taken_away(node: Node) -> None:
    def shared_is_in() -> bool:
        return takes(node.address, {"worker": node.store.password("worker")})

    assert not shared_is_in()
    node.shared(is_on=True)
    eventually(shared_is_in, "a downgrade brings it back")
    client = node.store.plain("worker")
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.hset(WORKER_USERS, "users", "x")
    old = redis.Redis(port=node.port, username="worker", password=node.store.password("worker"))
    assert old.ping()
    node.shared(is_on=False)
    eventually(lambda: not shared_is_in(), "it is over")
    with pytest.raises(redis.exceptions.ConnectionError):
        old.ping()
    assert node.lets_in(MINE)


def test_the_operator_writes_who_the_users_are_and_no_other_key(node: Node) -> None:
    operator = node.store.plain("operator")
    for command in (
        "UNLINK penstock-users", "EXPIRE penstock-users 1", "HDEL penstock-users users",
        "HSET penstock-usersx a b", f"HSET penstock:{MINE}:x a b", "RENAME penstock-users x",
    ):  # fmt: skip
        with pytest.raises(redis.exceptions.NoPermissionError):
            operator.execute_command(*command.split())
