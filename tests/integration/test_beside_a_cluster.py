"""The commands with --cluster: through the Kubernetes API's twin into a process as in a worker's pod, with a
worker's login, to two real stores that know that user. What the API server does is the twin's; what answers,
the stores and their users are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from backends.cluster_api_server import ClusterApiServer, Container
from backends.guarded_store import GuardedStore, made_store, running
from clocks.eventually import eventually
from penstock.api.compile import compile_topology
from penstock.api.load import read_topology
from penstock.api.schedule_object import to_spec
from penstock.dataflow.on_error import dead_letters_of
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock.store import letters
from penstock.store.codec import encode_counts, pack
from penstock.store.letters import Letter, LetterId
from penstock.store.port import (
    Claim,
    Claimed,
    Commit,
    Create,
    Enroll,
    Fetch,
    Measure,
    OpenStore,
    Owner,
    Publish,
    ShardCounters,
    StateWrite,
)
from penstock.store.redis.connection import PASSWORD_FILE
from penstock.store.redis.store import RedisStore, load_functions
from penstock.store.redis.users import hash_of, topology_rules, topology_user
from penstock_operator.asking.keys import key_of, keyed_head, shard_of_key
from penstock_operator.cli.main import main
from penstock_operator.cluster.asked.asked_cluster import seen_topology
from penstock_operator.cluster.kubernetes_api.loop_thread import LoopThread
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_ASKED
from penstock_operator.cluster.kubernetes_api.port import PODS, SCHEDULES, TOPOLOGIES
from penstock_simulation.twins.memory_cluster import MemoryCluster
from processes.free_ports import free_port
from scenes.manifest_texts import COUNTING_WITH_LETTERS
from scenes.owned_state import OwnedState
from worlds import cluster_objects as objects

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

UID = "uid-of-state"
NAMESPACE = "streams"
PASSWORD = "secret of the topology"
MANIFEST = yaml.safe_load(COUNTING_WITH_LETTERS)
SHARDS = ("count/0", "count/1")
HOMES = {"count/0": "a", "count/1": "b"}
PLAN = compile_topology(read_topology(MANIFEST), "cluster")
HEAD = keyed_head(PLAN, "count")
ASH = shard_of_key("count", HEAD, key_of(HEAD, ["ash"]))
OF = LetterId(1, 0)
NAME = f"count@{ASH}:{OF}"


def state_of_ash() -> tuple[StateWrite, ...]:
    owned = OwnedState(lambda handle: handle.getValueState("total", "n long"))
    owned.prefetch(("ash",))
    with owned.at("ash") as total:
        total.update((3,))
    return owned.state.take_writes()


class Cluster:
    """Two nodes with stores, a Topology with its Schedule, a worker's pod on node a, and the way there."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.ports = {node: free_port() for node in "ab"}
        self.stores = {node: self._store(node, stack) for node in "ab"}
        (folder / "password").write_text(PASSWORD, encoding="utf-8")
        self.claims = self._filled()
        self.loop = LoopThread("twin")
        stack.callback(self.loop.stop)
        self.twin = MemoryCluster(lambda: 0.0, NAMESPACE)
        self.server = self.loop.wait(self._served())
        stack.callback(lambda: self.loop.wait(self.server.stop()))
        self.kubeconfig = self.server.kubeconfig(folder)

    def _store(self, node: str, stack: ExitStack) -> RedisStore:
        folder = self.folder / node
        folder.mkdir()
        guarded: GuardedStore = made_store(folder)
        settings = ("--port", str(self.ports[node]), "--bind", "127.0.0.1")
        stack.enter_context(running(guarded, *settings))
        rules = topology_rules(UID, [hash_of(PASSWORD)])
        guarded.plain("agent").execute_command("ACL", "SETUSER", topology_user(UID), *rules)
        load_functions(guarded.url("agent"))
        store = RedisStore(guarded.url("agent"), UID)
        stack.callback(store.close)
        store.call(OpenStore(node))
        workers = (("w0", node, "localhost", "u0"),)
        places = tuple((shard, "count-w0", home) for shard, home in HOMES.items())
        store.call(Publish("count", 1, 0, workers, (("count-w0", "w0", 1),), places))
        for shard in (one for one, home in HOMES.items() if home == node):
            store.call(Create(shard))
        store.call(Enroll("w0", "u0", 5, 1))
        return store

    def _filled(self) -> Claimed:
        """A letter about ash, and what is kept of it, in the shard where ash is."""
        store = self.home
        claimed = store.call(Claim(ASH, Owner("count-w0", "u0/5/1", "ready"), 1))
        assert isinstance(claimed, Claimed), claimed
        letter = Letter(letters.ROWS, ["ash"], [["ash"]], [5], "ValueError: no", 9, f"inbox of {ASH}")
        state = (*letters.written("count", OF, letters.packed(letter)), *state_of_ash())
        counts = encode_counts({dead_letters_of("count"): 1})
        store.call(Commit(ASH, claimed.generation, claimed.epoch, 1, 0, 1, counts=counts, state=state))
        return claimed

    async def _served(self) -> ClusterApiServer:
        server = ClusterApiServer(self.twin)
        await server.start()
        await self.twin.create(TOPOLOGIES, MANIFEST)
        await self.be("Running")
        schedule = OperatorSchedule(
            "count",
            1,
            1,
            (WorkerPlace("counting-w0", "a", "localhost", "u0"),),
            (ExecutorPlace("count-w0", "counting-w0", 1),),
            {shard: ShardPlace("count-w0", home) for shard, home in HOMES.items()},
            tuple(StorePlace(node, node, f"127.0.0.1:{port}") for node, port in self.ports.items()),
        )
        labels = {"penstock.dev/topology": "counting"}
        head = {"apiVersion": SCHEDULES.api_version, "kind": SCHEDULES.kind}
        metadata = {"name": "counting-count", "labels": labels}
        spec = to_spec(schedule, "counting", UID)
        await self.twin.create(SCHEDULES, {**head, "metadata": metadata, "spec": spec})
        self.server = server
        await self.add_pod("counting-w0")
        return server

    async def be(self, phase: str) -> None:
        self.twin.set_status(TOPOLOGIES, "counting", {"phase": phase, "stateUid": UID})

    def remove_pod(self) -> None:
        pod = self.loop.wait(self.twin.get(PODS, "counting-w0"))
        assert pod is not None
        self.loop.wait(self.twin.delete(PODS, "counting-w0", pod["metadata"]["uid"], 0))
        self.server.containers.clear()

    async def add_pod(self, name: str, *, is_ready: bool = True, **container: Any) -> None:
        """A worker's pod that runs, with the login of the topology's workers. One without a part in a
        Schedule is not ready."""
        labels = {"app.kubernetes.io/component": "worker", "penstock.dev/topology": "counting"}
        pod = objects.pod(name)
        pod["metadata"]["labels"] = labels
        await self.twin.create(PODS, pod)
        running_now = {"name": "worker", "ready": is_ready, "state": {"running": {}}}
        self.twin.set_status(PODS, name, {"phase": "Running", "containerStatuses": [running_now]})
        environment = {
            **os.environ,
            "PENSTOCK_STORE_URL": f"redis://{topology_user(UID)}@127.0.0.1:{self.ports['a']}",
            PASSWORD_FILE: str(self.folder / "password"),
        }
        log = "count/1: 3 rows\nprinted by code\n"
        found = Container(environment, **{"log": log, **container})
        self.server.containers[NAMESPACE, name, "worker"] = found

    @property
    def home(self) -> RedisStore:
        return self.stores[HOMES[ASH]]

    def counters(self) -> ShardCounters:
        (found,) = self.home.call(Measure((ASH,)))
        assert found is not None
        return found

    @property
    def where(self) -> tuple[str, ...]:
        return ("--cluster", "--namespace", NAMESPACE, "--kubeconfig", str(self.kubeconfig))

    def called(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that is under way."""
        command = [sys.executable, "-m", "penstock_operator.cli", *arguments, *self.where]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder
        )

    def answer(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output, errors of a command that has ended."""
        ended = CliRunner().invoke(main, [*arguments, *self.where])
        return ended.exit_code, ended.stdout, ended.stderr


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv(PASSWORD_FILE, str(tmp_path / "a" / "agent-password"))
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def test_letters_in_a_cluster_are_listed_and_shown(cluster: Cluster) -> None:
    code, told, errors = cluster.answer("dead-letters", "list", "counting", "--json")
    assert code == 0, errors
    assert json.loads(told)["id"] == NAME
    assert cluster.answer("dead-letters", "list", "counting") == (
        0,
        f'{NAME}  key ["ash"], 1 row  ValueError: no\n',
        "",
    )
    code, told, _ = cluster.answer("dead-letters", "show", "counting", NAME)
    assert code == 0
    assert '  ["ash"]\nValueError: no\n' in told
    code, _, errors = cluster.answer("dead-letters", "show", "counting", "count@count/1:9.9")
    assert (code, errors) == (
        1,
        "penstock: there is no dead letter count@count/1:9.9; see 'penstock dead-letters list'\n",
    )


def test_an_order_goes_into_the_shards_inbox_and_its_owner_is_waited_for(cluster: Cluster) -> None:
    code, _, errors = cluster.answer("dead-letters", "replay", "counting", NAME, "--timeout", "0.2")
    assert code == 1
    assert "the run has not come to it within 0.2 s; it will" in errors
    assert cluster.counters().inbox_entries == 1
    command = cluster.called("dead-letters", "drop", "counting", "--all")
    eventually(lambda: cluster.counters().inbox_entries == 2, "a second order")
    (fetched,) = cluster.home.call(Fetch("ready", 10_000, 10)).shards
    said = [letters.decode_order(entry.payload) for entry in fetched.entries]
    assert said == [(doing, letters.Order("count", OF)) for doing in (letters.REPLAY, letters.DROP)]
    sizes = sum(len(entry.payload) for entry in fetched.entries)
    gone = letters.removed("count", OF, pack((0, b"")))
    claimed = cluster.claims
    commit = Commit(
        ASH, claimed.generation, claimed.epoch, 2, 0, 1, offset=2, consumed_bytes=sizes, state=tuple(gone)
    )
    cluster.home.call(commit)
    told, errors = command.communicate(timeout=60)
    assert (command.returncode, told) == (0, "1 dropped, 0 stay\n"), errors
    assert cluster.answer("dead-letters", "list", "counting") == (0, "", "There is no dead letter.\n")


def test_state_in_a_cluster_is_asked_for_by_key(cluster: Cluster) -> None:
    assert cluster.answer("state", "list", "counting", "count") == (0, '["ash"]\n', "")
    code, told, errors = cluster.answer("state", "get", "counting", "count", "ash")
    assert code == 0, errors
    assert json.loads(told) == {"total": {"n": 3}}
    code, _, errors = cluster.answer("state", "get", "counting", "count", "elm")
    assert (code, errors) == (1, "penstock: count keeps nothing of elm\n")


def test_logs_of_the_workers_that_have_tasks_of_an_operator(cluster: Cluster) -> None:
    assert cluster.answer("logs", "counting", "count") == (0, "counting-w0  count/1: 3 rows\n", "")
    assert cluster.answer("logs", "counting", "--last", "1") == (0, "counting-w0  printed by code\n", "")
    code, _, errors = cluster.answer("logs", "counting", "nobody")
    assert code == 3
    assert "there is no operator 'nobody'; there are lines, count, totals" in errors


def test_who_may_not_start_processes_in_pods_is_told_which_right_it_takes(cluster: Cluster) -> None:
    found = cluster.server.containers[NAMESPACE, "counting-w0", "worker"]
    cluster.server.containers[NAMESPACE, "counting-w0", "worker"] = Container(found.environment, "", 403)
    code, _, errors = cluster.answer("dead-letters", "list", "counting")
    assert code == 3
    assert "the rights to get and create pods/exec in namespace streams, which the role edit has" in errors


def test_what_cannot_answer_is_told_by_its_last_words(cluster: Cluster) -> None:
    environment = {**os.environ, "PYTHONPATH": "", "PENSTOCK_STORE_URL": "redis://nobody@127.0.0.1:1"}
    cluster.server.containers[NAMESPACE, "counting-w0", "worker"] = Container(environment)
    code, _, errors = cluster.answer("dead-letters", "list", "counting")
    assert code == 3
    assert "penstock: " in errors
    assert "Traceback" not in errors


def test_a_finished_topology_gets_a_worker_for_as_long_as_one_asks(cluster: Cluster) -> None:
    cluster.loop.wait(cluster.be("Finished"))
    cluster.remove_pod()

    def asked() -> str:
        found = cluster.loop.wait(cluster.twin.get(TOPOLOGIES, "counting"))
        assert found is not None
        return str((found["metadata"].get("annotations") or {}).get(ANNOTATION_ASKED, ""))

    command = cluster.called("dead-letters", "replay", "counting", NAME)
    eventually(asked, "somebody asks")
    cluster.loop.wait(cluster.add_pod("counting-w1", is_ready=False))
    told, errors = command.communicate(timeout=60)
    assert (command.returncode, told) == (0, "1 will be worked on again by workers that it gets for that\n")
    assert "is finished and has no worker: waiting for the one that it gets for this" in errors
    assert asked() == ""
    assert cluster.counters().inbox_entries == 1


def test_without_a_worker_or_a_topology_it_is_said(cluster: Cluster) -> None:
    code, _, errors = cluster.answer("dead-letters", "list", "nobody")
    assert code == 3
    assert "there is no Topology nobody in namespace streams" in errors
    cluster.remove_pod()
    code, _, errors = cluster.answer("state", "list", "counting", "count")
    assert code == 3
    assert "no worker of Topology counting runs now (it is Running)" in errors


def test_a_topology_is_seen_with_the_homes_of_all_its_shards(cluster: Cluster) -> None:
    seen = cluster.loop.wait(seen_topology(cluster.twin, "counting"))
    assert seen.opening.homes == HOMES
    assert seen.opening.stores == {node: f"127.0.0.1:{port}" for node, port in cluster.ports.items()}
    assert seen.opening.topology_uid == UID
