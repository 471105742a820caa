"""A password rotated: the operator's turns on the twin of the API, a real redis-server, its agent's keeper.

The kubelet is played by hand: it brings what the Secret says to the files that containers have mounted, when
the test lets it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from backends.guarded_store import GuardedStore, running
from clocks.eventually import eventually
from clocks.running import run
from penstock.store.port import ReadMetrics, StoreUnreachable
from penstock.store.redis.connection import PASSWORD_FILE
from penstock.store.redis.store import RedisStore, load_functions
from penstock.store.redis.users import USERS
from penstock_operator.agent.store_keeper import OpenedStore, StoreKeeper
from penstock_operator.agent.store_server import StoreServer
from penstock_operator.cluster.kubernetes_api.port import SECRETS
from penstock_operator.cluster.observing.observed import ObservedStore
from penstock_operator.cluster.stores.password_secret import ANNOTATION_ROTATE
from penstock_operator.cluster.stores.store_passwords import Passwords
from penstock_operator.cluster.turns.passwords_turn import (
    PasswordsTurns,
    StoreLogin,
    StoreLogins,
    takes,
)
from penstock_operator.cluster.turns.work import Clocks, Leadership
from penstock_simulation.twins.memory_cluster import MemoryCluster
from processes.free_ports import free_port
from worlds.cluster_world import CONFIG

pytestmark = pytest.mark.integration

NAME = CONFIG.store.auth_secret


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
        self.turns = PasswordsTurns(
            self.cluster,
            CONFIG,
            StoreLogins(self.login, self._refusing),
            Leadership(1, "pen"),
            Clocks(lambda: self.now_s, lambda: self.now_s),
        )
        monkeypatch.setenv(PASSWORD_FILE, str(self.mounted / "agent-password"))
        self.openings: list[OpenedStore | None] = []
        self.server = ExitStack()

    async def _refusing(self, addresses: Sequence[str], passwords: Passwords) -> Sequence[str]:
        return [one for one in addresses if not takes(one, passwords)]

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
        return {user: self.secret(f"{user}-password") for user in USERS}

    def bring(self, *keys: str) -> None:
        """What a kubelet does, in one step as it does."""
        for key in keys:
            fresh = self.mounted / "fresh"
            fresh.write_text(self.secret(key), encoding="utf-8")
            fresh.rename(self.mounted / key)

    def start_server(self) -> None:
        self.server.enter_context(running(self.store, "--port", str(self.port), "--bind", "127.0.0.1"))

    def kill_server(self) -> None:
        self.server.close()

    def keeper(self) -> StoreKeeper:
        server = StoreServer(f"redis://agent@{self.address}", "n")
        users = str(self.mounted / "users.acl")
        return StoreKeeper(server, 0, self.openings.append, users_file=users)

    def client(self, user: str) -> RedisStore:
        """As a pod has one that logs in by the file that it has mounted."""
        file = self.mounted / f"{user}-password"
        return RedisStore(f"redis://{user}@{self.address}", "t1", password=file.read_text)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node(tmp_path, monkeypatch)
    node.turn()
    everything = (*(f"{user}-password" for user in USERS), "users.acl")
    node.bring(*everything)
    (node.store.folder / "users.acl").write_text(node.secret("users.acl"), encoding="utf-8")
    node.start_server()
    load_functions(f"redis://agent@{node.address}")
    keeper = node.keeper()
    keeper.start()
    eventually(lambda: node.openings, "the agent's keeper opened the store")
    yield node
    keeper.stop()
    node.kill_server()


def test_a_rotated_password_keeps_nobody_out_and_the_former_one_lets_nobody_in(node: Node) -> None:
    worker, operator = node.client("worker"), RedisStore(
        f"redis://operator@{node.address}", "t1", password=node.login
    )  # fmt: skip
    worker.call(ReadMetrics())
    operator.call(ReadMetrics())
    former = node.passwords()
    node.rotate()
    node.turn()
    coming = {user: node.secret(f"coming-{user}-password") for user in USERS}
    node.turn()
    assert node.passwords() == former, "the store does not take the new ones yet"

    node.bring("users.acl")
    eventually(lambda: takes(node.address, coming), "the agent told the store")
    eventually(lambda: takes(node.address, former), "the former passwords are good")
    worker.call(ReadMetrics())
    assert None not in node.openings, "nobody was sent away"

    eventually(lambda: node.turn() or node.passwords() == coming, "pods are given the new passwords")
    slow, quick = node.client("worker"), node.client("worker")
    slow.call(ReadMetrics())  # whose kubelet has not brought the new one yet
    node.bring("agent-password", "worker-password")
    quick.call(ReadMetrics())
    node.turn(CONFIG.store.former_password_seconds)
    node.bring("users.acl")
    eventually(lambda: not takes(node.address, former), "the former passwords are over")
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
    coming = {user: node.secret(f"coming-{user}-password") for user in USERS}
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
    worker = node.client("worker")
    worker.call(ReadMetrics())
    node.rotate()
    node.turn()
    node.bring("users.acl")
    coming = {user: node.secret(f"coming-{user}-password") for user in USERS}
    eventually(lambda: takes(node.address, coming), "the next good file is taken")
    eventually(lambda: takes(node.address, passwords), "the present passwords are good")
    assert None not in node.openings
    worker.close()
