"""Two versions of Penstock at the same stores: this one, and earlier ones as they are in the history.

`BEFORE` is the version before this one: it goes on through an upgrade, takes a store over again, and moves
shards to and from this version's stores. `OLD` is further away than one version: both refuse each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import getsource
from pathlib import Path

import pytest
import redis
import yaml

from backends.store_fixtures import RedisBackend
from house import ROOT
from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.lives import LIFE
from penstock.store.port import (
    Answer,
    Create,
    ProtocolMismatch,
    Retract,
    StateSnapshot,
    StateWrite,
    StoreUnreachable,
)
from penstock.store.redis.library import (
    PREVIOUS_VERSION,
    PROTOCOL_VERSION,
    function_library,
    previous_library,
)
from penstock.store.redis.library import libraries as libraries_of
from penstock.store.redis.store import load_functions
from penstock_operator.cluster.manifests.template import workers_manifest
from processes.history import BEFORE
from processes.other_version import OtherVersion, OtherVersionError
from scenes.delivery_pass import deliver_once
from scenes.move_scene import MoveScene
from scenes.store_scenario import Scene, out, payloads

pytestmark = pytest.mark.integration

OLD = "d7b0fe32dc5073be7fe583c053258ae24bf1e33e"
"""Its store protocol has version 5."""

SINCE = (
    "  -- since version 10: an owner of version 9 would number entries of a later life from one\n",
    "  -- since version 10: an owner of version 9 knows no limits\n",
    "  -- since version 10: limits\n",
)
"""Each and the line below it were added to what that commit has."""

OWN = f"penstock_{PROTOCOL_VERSION}"
BOTH = {"penstock", OWN}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisBackend]:
    backend = RedisBackend(tmp_path_factory.mktemp("nodes"))
    yield backend
    backend.stop()


@pytest.fixture
def backend(nodes: RedisBackend) -> Iterator[RedisBackend]:
    """Stores n1 and n2, neither with a library."""
    for node in ("n1", "n2"):
        nodes.open_store(node)
        admin = nodes.admin(node)
        admin.function_flush()
        admin.config_set("slowlog-log-slower-than", 0)
        admin.config_set("slowlog-max-len", 100_000)
        admin.slowlog_reset()
    yield nodes
    nodes.empty()


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherVersion]:
    other = OtherVersion(BEFORE, tmp_path_factory.mktemp("before"))
    other.run(
        """
        from penstock.store.redis.library import function_library
        from penstock.store.redis.store import RedisStore, load_functions
        from penstock.store.port import *
        from scenes.store_scenario import SMALL, Scene, out, payloads
        """
    )
    yield other
    other.close()


def url_of(backend: RedisBackend, node: str = "n1") -> str:
    return f"unix://{backend.admin(node).connection_pool.connection_kwargs['path']}"


def libraries(admin: redis.Redis) -> set[str]:
    return {library[1].decode() for library in admin.function_list("penstock*")}


def test_the_library_that_is_kept_for_the_version_before_is_the_one_that_it_loads(
    before: OtherVersion,
) -> None:
    lines = previous_library().decode().splitlines(keepends=True)
    added = [number for number, line in enumerate(lines) if line in SINCE]
    for number in reversed(added):
        del lines[number : number + 2]
    assert len(added) == len(SINCE)
    assert before.run("answer = function_library().decode()") == "".join(lines)


def test_a_shard_that_lives_once_more_waits_for_a_worker_of_this_version(
    backend: RedisBackend, before: OtherVersion
) -> None:
    url = url_of(backend)
    load_functions(url)
    new = Scene(backend.open_store())
    new.open()
    new.publish("mid")
    new.enroll("w1")
    assert new.store.call(Create("mid/0", life=1)) is Answer.OK
    refused = before.run(
        f"""
        answer = Scene(RedisStore({url!r}, "t1", SMALL)).try_claim("mid/0").value
        """
    )
    assert refused == "STALE"
    assert new.claim("mid/0").epoch == LIFE + 1


def test_a_worker_of_the_version_before_goes_on_through_an_upgrade_and_a_downgrade(
    backend: RedisBackend, before: OtherVersion
) -> None:
    url, admin = url_of(backend), backend.admin()
    before.run(
        f"""
        load_functions({url!r})
        old = Scene(RedisStore({url!r}, "t1", SMALL))
        old.set_up("src/0", "mid/0", "end/0")
        old.commit("src/0", out("mid/0", b"one"), position=b"7")
        old.commit("mid/0", entries=old.fetch_one("mid/0"), state=[StateWrite(b"", b"count", b"1")])
        """
    )
    assert libraries(admin) == {"penstock"}

    # The agent is upgraded; the worker stays, and so does its connection.
    assert load_functions(url)
    assert not load_functions(url)
    assert libraries(admin) == BOTH
    old_works_on = """
        old.commit("src/0", out("mid/0", b"two"), position=b"8")
        entries = old.fetch_one("mid/0")
        old.commit("mid/0", entries=entries, state=[StateWrite(b"", b"count", b"2")])
        answer = [one.decode() for one in payloads(entries)]
    """
    assert before.run(old_works_on) == ["two"]

    # The shard goes to a worker of this version, and what the other one still sends of it does not count.
    new = Scene(backend.open_store())
    assert new.publish("mid", version=2, worker="w2") is Answer.OK
    assert new.claim("mid/0", worker="w2", version=2).commit == 2
    assert before.run('answer = old.send(old.next_commit("mid/0")).value') == "FENCED"
    assert before.run('old.commit("src/0", out("mid/0", b"three"), position=b"9")') is None
    entries = new.fetch_one("mid/0", "w2")
    assert payloads(entries) == [b"three"]
    new.commit("mid/0", out("end/0", b"sum"), entries=entries, state=[StateWrite(b"", b"count", b"3")])
    assert functions_called(admin, "commit") == {PREVIOUS_VERSION, PROTOCOL_VERSION}

    # The agent is the one before again: what this version wrote is taken up where it stands.
    before.run(f"load_functions({url!r})")
    state = before.run(
        """
        old.publish("mid", version=3)
        claimed = old.claim("mid/0", version=3)
        state = old.store.call(StateSnapshot("mid/0"))
        answer = [claimed.commit, *[value.decode() for value in state.values()]]
        """
    )
    assert state == [3, "3"]
    assert new.send(new.next_commit("mid/0")) is Answer.FENCED
    assert libraries(admin) == BOTH, "workers of this version may still be there"
    assert before.run("answer = [one.decode() for one in payloads(old.fetch_one('end/0'))]") == ["sum"]
    assert before.run(old_works_on.replace("two", "four").replace("8", "10")) == ["four"]


def test_shards_move_between_a_store_of_this_version_and_one_whose_agent_is_still_the_one_before(
    backend: RedisBackend, before: OtherVersion
) -> None:
    urls = {node: url_of(backend, node) for node in ("n1", "n2")}
    before.run(f"load_functions({urls['n1']!r})")
    load_functions(urls["n2"])
    before.run(
        f"""
        from scenes.delivery_pass import deliver_once
        from scenes.move_scene import MoveScene
        class Backend:
            def open_store(self, node, bounds):
                return RedisStore({urls!r}[node], "t2", bounds)
        """
    )
    before.run(getsource(to_and_fro))
    assert before.run("answer = to_and_fro(MoveScene(Backend()))") == 5
    assert functions_called(backend.admin("n2"), "install") == {PREVIOUS_VERSION}
    assert to_and_fro(MoveScene(backend)) == 5
    assert functions_called(backend.admin("n1"), "install") == {PREVIOUS_VERSION}
    assert functions_called(backend.admin("n2"), "install") == {PREVIOUS_VERSION, PROTOCOL_VERSION}


def to_and_fro(moving: MoveScene) -> int:
    """A shard with state goes to the other store, takes an entry and writes there, and comes back."""
    for number in range(1, 5):
        moving.a.commit("mid/0", state=[StateWrite(b"", b"f%d" % number, b"v")])
    moving.move("mid/0", "s2")
    moving.a.commit("src/0", out("mid/0", b"sent"))
    deliver_once(moving.a.store, moving.home_of)
    entries = moving.b.fetch_one("mid/0", "w2")
    assert payloads(entries) == [b"sent"]
    moving.b.commit("mid/0", entries=entries, state=[StateWrite(b"", b"f5", b"v")])
    moving.move("mid/0", "s1")
    return len(moving.a.store.call(StateSnapshot("mid/0")))


def test_a_client_speaks_this_version_once_its_store_does(
    backend: RedisBackend, before: OtherVersion
) -> None:
    url, admin = url_of(backend), backend.admin()
    before.run(f"load_functions({url!r})")
    scene = Scene(backend.open_store()).set_up("src/0", "mid/0")
    assert functions_called(admin, "claim") == {PREVIOUS_VERSION}
    load_functions(url)
    scene.claim("mid/0")
    assert functions_called(admin, "claim") == {PREVIOUS_VERSION}, "a connection stays in one version"
    admin.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(StoreUnreachable):
        scene.claim("mid/0")
    scene.claim("mid/0")
    assert functions_called(admin, "claim") == {PREVIOUS_VERSION, PROTOCOL_VERSION}


def test_a_client_whose_version_is_taken_away_goes_on_with_the_one_that_is_held(
    backend: RedisBackend, before: OtherVersion
) -> None:
    url, admin = url_of(backend), backend.admin()
    load_functions(url)
    scene = Scene(backend.open_store()).set_up("mid/0")
    admin.function_delete(OWN)
    with pytest.raises(ProtocolMismatch, match="library of this version"):
        scene.claim("mid/0")
    scene.claim("mid/0")
    # Whoever died between the two loads has left just this.
    assert load_functions(url)
    assert libraries(admin) == BOTH


def test_a_version_that_is_too_far_away_and_this_one_refuse_each_others_stores_in_words(
    backend: RedisBackend, tmp_path: Path
) -> None:
    url, admin = url_of(backend), backend.admin()
    old = OtherVersion(OLD, tmp_path)
    try:
        old.run(
            f"""
            from penstock.store.redis_store import RedisStore, load_functions
            from store_scenario import SMALL, Scene
            load_functions({url!r})
            old = Scene(RedisStore({url!r}, "t1", SMALL)).set_up("mid/0")
            """
        )
        with pytest.raises(
            ProtocolMismatch, match=r"protocol has version 5.*one version at a time, or delete"
        ):
            load_functions(url)
        assert libraries(admin) == {"penstock"}
        with pytest.raises(ProtocolMismatch, match="library of this version"):
            backend.open_store().call(Retract())
        assert isinstance(old.run("answer = old.claim('mid/0').epoch"), int), "nothing was touched"

        admin.flushall()
        assert load_functions(url), "without topologies it is taken over"
        assert libraries(admin) == BOTH
        with pytest.raises(OtherVersionError, match=rf"ProtocolMismatch.*{PREVIOUS_VERSION}, newer than 5"):
            old.run(f"load_functions({url!r})")
        with pytest.raises(OtherVersionError, match=r"ProtocolMismatch.*run the same version on both sides"):
            old.run("old.claim('mid/0')")
    finally:
        old.close()


def test_a_worker_of_the_version_before_reads_the_plan_that_this_operator_writes(
    before: OtherVersion, tmp_path: Path
) -> None:
    topology = load_topology(ROOT / "examples" / "word-count" / "on-kubernetes.yaml", runtime="cluster")
    file = tmp_path / "topology.yaml"
    file.write_text(yaml.safe_dump(workers_manifest(topology)))
    stages = before.run(
        f"""
        from penstock.api.compile import compile_topology
        from penstock.api.load import load_topology
        plan = compile_topology(load_topology({str(file)!r}, (), runtime="cluster"), "cluster")
        answer = [stage.operator for stage in plan.stages]
        """
    )
    assert stages == [stage.operator for stage in compile_topology(topology, "cluster").stages]


def load_later(admin: redis.Redis, version: int) -> None:
    """What a later version of Penstock loads, were its functions as they are now."""

    def numbered(number: int) -> bytes:
        text = function_library().replace(OWN.encode(), b"penstock_%d" % number)
        return text.replace(b"local VERSION = %d\n" % PROTOCOL_VERSION, b"local VERSION = %d\n" % number)

    admin.function_flush()
    for source in libraries_of(version, numbered(version), numbered(version - 1)).values():
        admin.function_load(source)


def test_a_downgrade_by_one_takes_the_store_over_and_one_by_more_is_refused_in_words(
    backend: RedisBackend, before: OtherVersion
) -> None:
    url, admin = url_of(backend), backend.admin()
    load_later(admin, PROTOCOL_VERSION + 1)
    scene = Scene(backend.open_store()).set_up("mid/0")
    assert load_functions(url)
    assert libraries(admin) == {*BOTH, f"penstock_{PROTOCOL_VERSION + 1}"}
    scene.claim("mid/0")
    load_later(admin, PROTOCOL_VERSION + 1)
    with pytest.raises(OtherVersionError, match=f"version {PROTOCOL_VERSION}, newer than {PREVIOUS_VERSION}"):
        before.run(f"load_functions({url!r})")
    load_later(admin, PROTOCOL_VERSION + 2)
    with pytest.raises(ProtocolMismatch, match=f"newer than {PROTOCOL_VERSION} by more than one"):
        load_functions(url)


def functions_called(admin: redis.Redis, name: str) -> set[int]:
    """The versions in which clients have called a function."""
    form = re.compile(rb"FCALL penstock_%s_(\d+) " % name.encode())
    found = [form.match(entry["command"]) for entry in admin.slowlog_get(100_000)]
    return {int(match[1]) for match in found if match}
