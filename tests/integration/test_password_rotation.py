"""A password rotated: the operator's turns on the twin of the API, a real redis-server, its agent's keeper.

The kubelet is played by hand: it brings what the Secret says to the files that containers have mounted, when
the test lets it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from backends.guarded_store import GuardedStore, running
from clocks.eventually import eventually
from clocks.running import run
from penstock.store.port import ReadMetrics, StoreUnreachable
from penstock.store.redis.connection import PASSWORD_FILE, Wire
from penstock.store.redis.store import RedisStore, load_functions
from penstock.store.redis.users import USERS, topology_user
from penstock_operator.agent.store_keeper import OpenedStore, StoreKeeper
from penstock_operator.agent.store_server import StoreServer
from penstock_operator.cluster.kubernetes_api.names import workers_secret_name
from penstock_operator.cluster.kubernetes_api.port import SECRETS
from penstock_operator.cluster.observing.observed import ObservedStore
from penstock_operator.cluster.observing.workers_seen import WorkersSeen
from penstock_operator.cluster.stores.password_secret import ANNOTATION_ROTATE
from penstock_operator.cluster.stores.store_passwords import Passwords
from penstock_operator.cluster.stores.telling_stores import StoreTelling
from penstock_operator.cluster.stores.worker_passwords import worker_password
from penstock_operator.cluster.turns.passwords_turn import (
    PasswordsTurns,
    StoreLogin,
    StoreLogins,
    takes,
)
from penstock_operator.cluster.turns.work import Clocks, Leadership
from penstock_operator.cluster.turns.worker_logins import WorkersPlace
from penstock_simulation.twins.memory_cluster import MemoryCluster
from processes.free_ports import free_port
from worlds.cluster_world import CONFIG

pytestmark = pytest.mark.integration

NAME = CONFIG.store.auth_secret
TOPOLOGY = "t1"
WORKER = topology_user(TOPOLOGY)
WORKERS = workers_secret_name(CONFIG.fullname)


class Node:
    """A node with a store and its agent's keeper, and the operator. `server/users.acl` is what the server
    reads at its start; all other files are as containers have them mounted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.port = free_port()
        self.mounted = folder / "mounted"
        self.mounted.mkdir()
        (folder / "server").mkdir()
        self.store = GuardedStore(folder / "server")
        self.address = f"127.0.0.1:{self.port}"
        self.cluster = MemoryCluster(clock_s=lambda: self.now_s, namespace=CONFIG.namespace)
        self.login = StoreLogin()
        self.threads = ThreadPoolExecutor(1)
        self.seen = WorkersSeen(frozenset({TOPOLOGY}), shares_a_user=False)
        self.turns = PasswordsTurns(
            self.cluster,
            CONFIG,
            StoreLogins(self.login, self._refusing, StoreTelling(self._wire, self.threads)),
            Leadership(1, "pen"),
            Clocks(lambda: self.now_s, lambda: self.now_s),
            [WorkersPlace(CONFIG.namespace, self.cluster, lambda: self.seen, lambda: True)],
        )
        monkeypatch.setenv(PASSWORD_FILE, str(self.mounted / "agent-password"))
        self.openings: list[OpenedStore | None] = []
        self.server = ExitStack()

    async def _refusing(self, addresses: Sequence[str], passwords: Passwords) -> Sequence[str]:
        return [one for one in addresses if not takes(one, passwords)]

    def _wire(self, address: str) -> Wire:
        return Wire(f"redis://operator@{address}", 5.0, self.login)

    def turn(self, seconds: float = 5.0) -> None:
        self.now_s += seconds
        store = ObservedStore("n", "n", self.address, True, "Disk", True, "pen-store-n", "uid")
        run(self.turns.turn([store]))

    def rotate(self) -> None:
        thing = self.cluster.held(SECRETS, NAME)
        thing["metadata"]["annotations"] = {ANNOTATION_ROTATE: "now"}
        self.cluster.put(SECRETS, thing)

    def secret(self, key: str) -> str:
        return base64.b64decode(self.cluster.held(SECRETS, NAME)["data"][key]).decode()

    def passwords(self) -> dict[str, str]:
        """User -> what pods are given."""
        held = {user: self.secret(f"{user}-password") for user in USERS if user != "worker"}
        return {**held, WORKER: self.workers_password()}

    def coming(self) -> dict[str, str]:
        """User -> what pods will be given."""
        held = {user: self.secret(f"coming-{user}-password") for user in USERS}
        worker = worker_password(self.secret("workers-key"), held.pop("worker"), TOPOLOGY)
        return {**held, WORKER: worker}

    def workers_password(self) -> str:
        return base64.b64decode(self.cluster.held(SECRETS, WORKERS)["data"][TOPOLOGY]).decode()

    def bring(self, *keys: str) -> None:
        """What a kubelet does, in one step as it does."""
        for key in keys:
            text = self.workers_password() if key == f"{WORKER}-password" else self.secret(key)
            fresh = self.mounted / "fresh"
            fresh.write_text(text, encoding="utf-8")
            fresh.rename(self.mounted / key)

    def start_server(self) -> None:
        settings = ("--port", str(self.port), "--bind", "127.0.0.1", "--appendonly", "yes")
        self.server.enter_context(running(self.store, *settings))

    def kill_server(self) -> None:
        self.server.close()

    def keeper(self) -> StoreKeeper:
        server = StoreServer(f"redis://agent@{self.address}", "n")
        users = str(self.mounted / "users.acl")
        return StoreKeeper(server, 0, self.openings.append, users_file=users)

    def client(self, user: str) -> RedisStore:
        """As a pod has one that logs in by the file that it has mounted."""
        file = self.mounted / f"{user}-password"
        return RedisStore(f"redis://{user}@{self.address}", TOPOLOGY, password=file.read_text)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node(tmp_path, monkeypatch)
    node.turn()
    node.bring("agent-password", "operator-password", f"{WORKER}-password", "users.acl")
    (node.store.folder / "users.acl").write_text(node.secret("users.acl"), encoding="utf-8")
    node.start_server()
    load_functions(f"redis://agent@{node.address}")
    keeper = node.keeper()
    keeper.start()
    eventually(lambda: node.openings, "the agent's keeper opened the store")
    node.turn()
    eventually(lambda: takes(node.address, node.passwords()), "the agent made the topology's user")
    yield node
    keeper.stop()
    node.kill_server()
    node.threads.shutdown()


def test_a_rotated_password_keeps_nobody_out_and_the_former_one_lets_nobody_in(node: Node) -> None:
    worker, operator = node.client(WORKER), RedisStore(
        f"redis://operator@{node.address}", TOPOLOGY, password=node.login
    )  # fmt: skip
    worker.call(ReadMetrics())
    operator.call(ReadMetrics())
    former = node.passwords()
    node.rotate()
    node.turn()
    coming = node.coming()
    node.turn()
    assert node.passwords() == former, "the store does not take the new ones yet"

    node.bring("users.acl")
    eventually(lambda: takes(node.address, coming), "the agent told the store")
    eventually(lambda: takes(node.address, former), "the former passwords are good")
    worker.call(ReadMetrics())
    assert None not in node.openings, "nobody was sent away"

    eventually(lambda: node.turn() or node.passwords() == coming, "pods are given the new passwords")
    slow, quick = node.client(WORKER), node.client(WORKER)
    slow.call(ReadMetrics())  # whose kubelet has not brought the new one yet
    node.bring("agent-password", f"{WORKER}-password")
    quick.call(ReadMetrics())
    node.turn(CONFIG.store.former_password_seconds)
    node.bring("users.acl")
    # In any order: the agent sees the file, and what the operator tells it, each by itself.
    for user, password in former.items():
        is_over = lambda one={user: password}: not takes(node.address, one)  # noqa: E731
        eventually(is_over, f"the former password of {user} is over")
    # An agent that ends connections may end the one that asks.
    eventually(lambda: takes(node.address, coming), "the new passwords are good")

    for client in (worker, operator, slow):
        # Who came in with a password that may have been stolen comes in again, with the new one.
        eventually(lambda one=client: _is_ended(one), "its connection is ended")
        client.call(ReadMetrics())
    eventually(lambda: node.openings[-1] is not None, "the agent looks after the store")
    for client in (worker, operator, slow, quick):
        client.close()


def _is_ended(client: RedisStore) -> bool:
    try:
        client.call(ReadMetrics())
    except StoreUnreachable:
        return True
    return False


def test_a_store_that_starts_with_an_older_file_is_brought_to_the_newest_by_its_agent(node: Node) -> None:
    former = node.passwords()
    node.rotate()
    node.turn()
    node.bring("users.acl")
    coming = node.coming()
    eventually(lambda: takes(node.address, coming), "the agent told the store")
    node.kill_server()
    eventually(lambda: node.openings[-1] is None, "the agent misses the store")
    node.start_server()  # what it reads is of before the rotation
    eventually(lambda: takes(node.address, coming), "the agent told the store again")
    eventually(lambda: takes(node.address, former), "the former passwords are good")
    eventually(lambda: node.turn() or node.passwords() == coming, "pods are given the new passwords")


def test_a_broken_users_file_leaves_the_store_as_it_is(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    passwords = node.passwords()
    (node.mounted / "users.acl").write_text("user worker on nopass\n", encoding="utf-8")
    eventually(lambda: "the store keeps the users that it has" in caplog.text, "the agent saw it")
    worker = node.client(WORKER)
    worker.call(ReadMetrics())
    node.rotate()
    node.turn()
    node.bring("users.acl")
    coming = node.coming()
    eventually(lambda: takes(node.address, coming), "the next good file is taken")
    eventually(lambda: takes(node.address, passwords), "the present passwords are good")
    assert None not in node.openings
    worker.close()
