"""What is only true of the node store in Redis: login, connections, and its library's version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
import redis

from backends.store_fixtures import RedisBackend
from penstock.errors import PermanentError
from penstock.store.port import (
    Answer,
    Append,
    Create,
    Fetch,
    ProtocolMismatch,
    StateSnapshot,
    StateWrite,
    StoreUnreachable,
    WaitReady,
)
from penstock.store.redis.connection import PASSWORD_FILE, ServerError, Wire, translate
from penstock.store.redis.library import PROTOCOL_VERSION
from penstock.store.redis.store import RedisStore, load_functions
from scenes.store_scenario import SMALL, Scene, out

pytestmark = pytest.mark.integration


@pytest.fixture
def guarded(backend: RedisBackend, admin: redis.Redis) -> Iterator[str]:
    """The URL of a store that lets in the user "agent" alone, whose password is "right"."""
    path = admin.connection_pool.connection_kwargs["path"]
    admin.execute_command("ACL", "SETUSER", "agent", "on", ">right", "~*", "&*", "+@all")
    admin.execute_command("ACL", "SETUSER", "looker", "on", ">right", "~*", "+@read")
    yield f"unix://agent@{path}"
    admin.acl_deluser("agent", "looker")


def test_a_user_logs_in_with_the_password_in_the_file_which_is_read_at_each_connect(
    guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admin: redis.Redis
) -> None:
    file = tmp_path / "password"
    monkeypatch.setenv(PASSWORD_FILE, str(file))
    file.write_text("right\n")
    store = RedisStore(guarded, "t1")
    assert store.call(Create("mid/0")) is Answer.OK
    admin.execute_command("ACL", "SETUSER", "agent", ">new", "<right")
    admin.client_kill_filter(user="agent")
    file.write_text("new")
    with pytest.raises(StoreUnreachable):
        store.call(Create("mid/0"))
    assert store.call(Create("mid/0")) is Answer.EXISTS
    store.close()


def test_a_login_that_is_refused_is_told_without_the_password(
    guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_FILE, raising=False)
    store = RedisStore(guarded, "t1")
    with pytest.raises(PermanentError, match=f"names the user agent, and {PASSWORD_FILE} is not set"):
        store.call(Create("mid/0"))
    file = tmp_path / "password"
    monkeypatch.setenv(PASSWORD_FILE, str(file))
    with pytest.raises(PermanentError, match="cannot be read: No such file"):
        store.call(Create("mid/0"))
    file.write_text("wrong-one")
    with pytest.raises(StoreUnreachable, match=f"refuses the login.*{PASSWORD_FILE} names") as refused:
        store.call(Create("mid/0"))
    assert "wrong-one" not in str(refused.value)
    with pytest.raises(StoreUnreachable) as refused:
        RedisStore(guarded.replace("agent@", "agent:wrong-one@"), "t1").call(Create("mid/0"))
    assert "wrong-one" not in str(refused.value)


def test_a_call_that_the_user_may_not_make_is_told(
    guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    monkeypatch.setenv(PASSWORD_FILE, str(file))
    file.write_text("right")
    with pytest.raises(PermanentError, match=r"does not allow.*users\.acl"):
        RedisStore(guarded.replace("agent@", "looker@"), "t1").call(Create("mid/0"))


def test_a_broken_connection_is_made_anew_at_the_next_call(scene: Scene, admin: redis.Redis) -> None:
    scene.set_up("mid/0")
    admin.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(StoreUnreachable):
        scene.append("mid/0", 1)
    assert scene.append("mid/0", 1) is Answer.OK


def test_nothing_is_sent_twice(scene: Scene, admin: redis.Redis) -> None:
    scene.set_up("mid/0")
    admin.config_resetstat()
    for number in (1, 2, 3):
        scene.append("mid/0", number)
    assert admin.info("commandstats")["cmdstat_fcall"]["calls"] == 3


def test_a_store_that_is_not_there_is_unreachable() -> None:
    store = RedisStore("unix:///nowhere/store.sock", "t")
    with pytest.raises(StoreUnreachable, match="/nowhere/store"):
        store.call(Create("mid/0"))
    with pytest.raises(StoreUnreachable):
        store.call(WaitReady("r", 10))


def test_a_store_without_the_library_is_a_mismatch(backend: RedisBackend) -> None:
    store = backend.open_store()
    with backend.admin() as admin:
        url = f"unix://{admin.connection_pool.connection_kwargs['path']}"
        admin.function_flush()
        with pytest.raises(ProtocolMismatch, match="function library"):
            store.call(Create("mid/0"))
        load_functions(url)
        assert store.call(Create("mid/0")) is Answer.OK


def test_a_fault_of_the_library_is_told_with_its_part_and_line(
    backend: RedisBackend, admin: redis.Redis
) -> None:
    wire = Wire(f"unix://{admin.connection_pool.connection_kwargs['path']}", 5.0)
    (reply,) = wire.exchange([(b"FCALL", f"penstock_claim_{PROTOCOL_VERSION}", b"0")])
    wire.close()
    told = str(translate(str(reply)))
    found = re.search(r"penstock_claim_\d+, on @shared/records\.lua:(\d+)", told)
    assert found, told
    part = files("penstock.store.redis") / "functions" / "shared" / "records.lua"
    assert "redis.call('HEXISTS', STORE, p)" in part.read_text().split("\n")[int(found[1]) - 1]


def test_a_malformed_commit_is_refused_before_it_writes(scene: Scene) -> None:
    scene.set_up("mid/0")
    for outputs in ([out("end/0", rows="many")], [out("mid/0")]):
        with pytest.raises(ServerError, match="malformed"):
            scene.store.call(scene.next_commit("mid/0", *outputs, state=[StateWrite(b"", b"f", b"1")]))
    assert scene.store.call(StateSnapshot("mid/0")) == {}
    assert scene.measure("mid/0").commit == 0


def test_a_call_beyond_the_caps_in_a_pipeline_sends_nothing(scene: Scene) -> None:
    scene.set_up("mid/0")
    good = Append("far/0", "mid/0", 1, b"x", 1, 0)
    with pytest.raises(ValueError, match="mid/0"):
        scene.store.pipeline([good, replace(good, payload=b"x" * (SMALL.entry_bytes_max + 1))])
    assert scene.append("mid/0", 1) is Answer.OK


def test_a_pipeline_of_commits_and_a_fetch_answers_in_order(scene: Scene) -> None:
    scene.set_up("mid/0", "mid/1")
    for shard in ("mid/0", "mid/1"):
        scene.append(shard, 1)
        scene.append(shard, 2)
    taken = scene.fetch("mid@w1").shards
    commits = [scene.next_commit(one.shard, entries=one.entries[:1]) for one in taken]
    *answers, fetched = scene.store.pipeline([*commits, Fetch("mid@w1", 1000, 10)])
    assert answers == [Answer.OK, Answer.OK]
    assert [(one.shard, one.offset) for one in fetched.shards] == [("mid/0", 1), ("mid/1", 1)]
