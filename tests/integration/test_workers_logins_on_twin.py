"""How the workers of a topology come by their login: the whole operator on the twin of the API and real
stores."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping

import pytest

from backends.store_fixtures import RedisBackend
from clocks.running import run
from penstock.store.port import Bounds
from penstock.store.redis.users import PROBE, USERS, hash_of, hashes_of, users_file
from penstock.store.redis.worker_users import read_worker_users
from penstock_operator.cluster import reconcile
from penstock_operator.cluster.kubernetes_api.loop_thread import ThisLoop
from penstock_operator.cluster.kubernetes_api.names import COMPONENT_WORKER, LABEL_COMPONENT
from penstock_operator.cluster.kubernetes_api.port import PODS, SECRETS, TOPOLOGIES, Kind, Object, uid_of
from penstock_operator.cluster.main import EXIT_STOPPED, Replica, Surroundings
from penstock_operator.cluster.turns import passwords_turn
from penstock_simulation.twins.memory_cluster import MemoryCluster
from processes.free_ports import free_port
from scenes.worker_logins import login_of, user_of
from worlds.operator_world import NAMESPACE, NODE_NAMES, OperatorWorld, fed_by, operator_config, topology

pytestmark = pytest.mark.integration

AUTH, WORKERS = "pen-store-auth", "pen-store-workers"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisBackend]:
    backend = RedisBackend(tmp_path_factory.mktemp("nodes"))
    yield backend
    backend.stop()


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other quickly."""
    monkeypatch.setattr(passwords_turn, "_LOOK_S", 0.05)
    monkeypatch.setattr(reconcile, "_LOOK_S_MAX", 0.2)


class Stage:
    """A world and one operator in it. `knows_topologies` are what stores answer who asks for topologies'
    users."""

    def __init__(self, nodes: RedisBackend) -> None:
        self.nodes = nodes
        self.cluster = MemoryCluster(clock_s=time.time, namespace=NAMESPACE)
        self.world = OperatorWorld(
            self.cluster, lambda node, uid: nodes.open_store(node, uid, Bounds()), nodes.open_wire
        )
        self.knows_topologies = True
        self.without_login: list[str] = []
        """Pods that were made before there was what they mount."""
        self._changes = asyncio.Event()
        self.cluster.subscribe(self._changed)

    def replica(self) -> Replica:
        around = Surroundings(
            self.cluster,
            self.world.open_store,
            self.world.open_wire,
            fed_by(self.cluster),
            "one-start",
            "one",
            lease_cluster=self.cluster,
            lease_runs=ThisLoop(),
            takes=lambda _, passwords: self.knows_topologies or not any(PROBE in one for one in passwords),
        )
        return Replica(operator_config(free_port()), around)

    def _changed(self, kind: Kind, change: str, thing: Object) -> None:
        self._changes.set()
        if kind == PODS and change == "ADDED" and COMPONENT_WORKER in thing["metadata"]["labels"].values():
            secret, keys = login_of(thing)
            if secret not in self.cluster.names(SECRETS) or not keys <= set(self.texts(secret)):
                self.without_login.append(secret)

    def texts(self, secret: str) -> Mapping[str, str]:
        data = self.cluster.held(SECRETS, secret)["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def told(self, node: str) -> Mapping[str, tuple[str, ...]]:
        wire = self.nodes.open_wire(node)
        try:
            return read_worker_users(wire)
        finally:
            wire.close()

    async def workers(self) -> list[Object]:
        return list((await self.cluster.list(PODS, {LABEL_COMPONENT: COMPONENT_WORKER})).items)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(30):
            while not await holds():
                self._changes.clear()
                # what is in the stores tells nobody when it changes
                try:
                    async with asyncio.timeout(0.05):
                        await self._changes.wait()
                except TimeoutError:
                    continue

    async def until_running(self, name: str) -> str:
        """The topology's uid."""

        async def reached() -> bool:
            there = await self.cluster.get(TOPOLOGIES, name) or {}
            return (there.get("status") or {}).get("phase") == "Running"

        await self.until(reached)
        return uid_of(await self.cluster.get(TOPOLOGIES, name) or {})


def tell(nodes: RedisBackend, story: Callable[[Stage], Awaitable[None]]) -> None:
    async def told() -> None:
        stage, stop = Stage(nodes), asyncio.Event()
        running = asyncio.create_task(stage.replica().run(stop))
        try:
            await story(stage)
        finally:
            stop.set()
            assert await running == EXIT_STOPPED

    try:
        run(told())
    finally:
        nodes.empty()


def test_each_topology_has_a_login_before_its_pods_and_loses_it_when_it_is_gone(nodes: RedisBackend) -> None:
    async def story(stage: Stage) -> None:
        uids = {}
        for name in ("words", "others"):
            await stage.cluster.create(TOPOLOGIES, topology(name))
            uids[name] = await stage.until_running(name)
        assert stage.without_login == []
        users = {user_of(pod): login_of(pod) for pod in await stage.workers()}
        assert users == {f"worker-{uid}": (WORKERS, {uid}) for uid in uids.values()}
        texts = stage.texts(WORKERS)
        wanted = {uid: (hash_of(texts[uid]),) for uid in uids.values()}

        async def are_told() -> bool:
            return all({**stage.told(node), **wanted} == stage.told(node) for node in NODE_NAMES)

        await stage.until(are_told)
        assert await stage.cluster.delete(TOPOLOGIES, "words", uids["words"]) is None

        async def is_over() -> bool:
            told = [set(stage.told(node)) for node in NODE_NAMES]
            left = {uids["others"], PROBE}
            return told == [left] * len(told) and uids["words"] not in stage.texts(WORKERS)

        await stage.until(is_over)
        assert texts[uids["others"]] == stage.texts(WORKERS)[uids["others"]]

    tell(nodes, story)


def test_after_an_upgrade_workers_are_made_anew_with_their_own_user_and_then_the_shared_password_is_replaced(
    nodes: RedisBackend,
) -> None:
    async def story(stage: Stage) -> None:
        there = {f"{user}-password": f"of {user}" for user in USERS}
        users = users_file({user: [hash_of(f"of {user}")] for user in USERS})
        data = {**there, "users.acl": users, "spark-key": "spark"}
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        stage.cluster.put(SECRETS, {"metadata": {"name": AUTH}, "type": "Opaque", "data": encoded})
        stage.knows_topologies = False
        await stage.cluster.create(TOPOLOGIES, topology())
        uid = await stage.until_running("words")
        (before,) = await stage.workers()
        assert (user_of(before), login_of(before)) == ("worker", (AUTH, {"worker-password"}))
        assert "worker" in hashes_of(stage.texts(AUTH)["users.acl"])

        stage.knows_topologies = True

        async def is_made_anew() -> bool:
            pods = await stage.workers()
            return bool(pods) and {user_of(one) for one in pods} == {f"worker-{uid}"}

        await stage.until(is_made_anew)

        async def shared_one_is_replaced() -> bool:
            return stage.texts(AUTH)["worker-password"] != "of worker"

        await stage.until(shared_one_is_replaced)
        assert stage.without_login == []

    tell(nodes, story)
