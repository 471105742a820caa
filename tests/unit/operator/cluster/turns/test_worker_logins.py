"""Who is let in to the stores from which namespace, and what each namespace's Secret has: on the twin."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import pytest

from clocks.running import run
from penstock.errors import PermanentError
from penstock.store.redis.users import PROBE, hash_of
from penstock.store.redis.worker_users import Hashes
from penstock_operator.cluster.kubernetes_api.port import SECRETS, NotAllowed, uid_of
from penstock_operator.cluster.observing.workers_seen import WorkersSeen
from penstock_operator.cluster.stores.store_passwords import StorePasswords, first_passwords
from penstock_operator.cluster.turns.worker_logins import WorkerLogins, WorkersPlace
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds.cluster_world import CONFIG

OWN, TEAM, OTHERS = "streams", "team-a", "team-b"
WORKERS = "pen-store-workers"


def made(root: str = "root") -> StorePasswords:
    return first_passwords({"worker": root, "operator": "o", "agent": "a"}, {}, "spark", lambda: "key")


class Scene:
    """Three namespaces, whose topologies go by the namespace's name, and one store."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.cluster = MemoryCluster(clock_s=lambda: self.now_s, namespace=OWN)
        self.seen: dict[str, WorkersSeen | None] = {name: seen(name) for name in (OWN, TEAM, OTHERS)}
        self.closed: set[str] = set()
        self.told: Hashes = {}
        self.passwords = made()
        self.logins = self.operator()

    def operator(self) -> WorkerLogins:
        """One that has just begun to lead."""
        return WorkerLogins(
            [self.place(name) for name in self.seen], CONFIG, self.tell, 1, lambda: self.now_s
        )

    def place(self, name: str) -> WorkersPlace:
        within = self.cluster if name == OWN else self.cluster.within(name)
        return WorkersPlace(name, within, lambda: self.seen[name], lambda: name not in self.closed)

    async def tell(
        self,
        addresses: Sequence[str],
        users: Hashes,
        term: int,
        others: Callable[[Iterable[str]], Hashes] | None = None,
    ) -> Mapping[str, str]:
        assert (list(addresses), term) == (["n1:6379"], 1)
        kept = others(self.told.keys() - users.keys()) if others is not None else {}
        self.told = {**kept, **users}
        return {}

    async def let_in(self) -> bool:
        return await self.logins.let_in(self.passwords, ["n1:6379"])

    async def admit(self, namespace: str, uid: str) -> None:
        await self.logins.admit(self.passwords, ["n1:6379"], namespace, uid)

    async def texts(self, namespace: str) -> dict[str, str]:
        """What pods of a namespace find."""
        held = await self.cluster.within(namespace).get(SECRETS, WORKERS)
        data = (held or {}).get("data") or {}
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    async def may_log_in(self, namespace: str, uid: str) -> bool:
        return hash_of((await self.texts(namespace))[uid]) in self.told.get(uid, ())


def seen(*uids: str, shares: bool = False) -> WorkersSeen:
    return WorkersSeen(frozenset(uids), shares_a_user=shares, own=frozenset(uids))


def tell(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def told() -> None:
        await story(Scene())

    run(told())


def test_each_namespace_has_the_logins_of_its_own_topologies_and_stores_know_all() -> None:
    async def story(scene: Scene) -> None:
        assert not await scene.let_in()
        for name in scene.seen:
            assert set(await scene.texts(name)) == {name, f"{name}.spark-key"}
            assert await scene.may_log_in(name, name)
            assert scene.logins.has_admitted(name, name)
        assert set(scene.told) == {OWN, TEAM, OTHERS, PROBE}
        held = await scene.cluster.within(TEAM).get(SECRETS, WORKERS)
        assert held is not None
        assert held["metadata"]["namespace"] == TEAM

    tell(story)


def test_a_topology_is_let_in_from_its_own_namespace_alone() -> None:
    async def story(scene: Scene) -> None:
        await scene.let_in()
        await scene.admit(TEAM, "new")
        assert await scene.may_log_in(TEAM, "new")
        assert scene.logins.has_admitted(TEAM, "new")
        for other in (OWN, OTHERS):
            assert "new" not in await scene.texts(other)
            assert not scene.logins.has_admitted(other, "new")
        assert {OWN, OTHERS} <= set(scene.told)

    tell(story)


def test_while_a_namespace_is_not_listed_stores_keep_whom_they_know_of_it_by_the_newest_passwords() -> None:
    async def story(scene: Scene) -> None:
        await scene.let_in()
        before = dict(scene.told)
        scene.logins = scene.operator()
        scene.seen |= {TEAM: None, OWN: seen("o2")}
        scene.closed = {TEAM}
        await scene.let_in()
        assert set(scene.told) == {*before, "o2"}, "whose they are that it knows no store can tell"
        assert await scene.texts(OWN) == {
            key: (await scene.texts(OWN))[key] for key in ("o2", "o2.spark-key")
        }
        assert set(await scene.texts(TEAM)) == {TEAM, f"{TEAM}.spark-key"}
        scene.passwords = made("another root")
        await scene.let_in()
        assert scene.told.keys() == {*before, "o2"}
        assert not set(scene.told[TEAM]) & set(before[TEAM]), "former passwords are good for nobody"
        scene.seen[TEAM], scene.closed = seen(TEAM), set()
        assert await scene.let_in(), "pods of the namespace get another password only now"
        assert set(scene.told) == {TEAM, OTHERS, "o2", PROBE}
        assert await scene.may_log_in(TEAM, TEAM)

    tell(story)


def test_a_secret_is_added_to_while_its_namespace_has_not_been_listed() -> None:
    async def story(scene: Scene) -> None:
        await scene.let_in()
        scene.logins = scene.operator()
        scene.seen[TEAM] = None
        await scene.admit(TEAM, "new")
        await scene.let_in()
        assert set(await scene.texts(TEAM)) == {TEAM, f"{TEAM}.spark-key", "new", "new.spark-key"}
        assert set(scene.told) == {OWN, TEAM, OTHERS, PROBE, "new"}

    tell(story)


def test_a_closed_namespace_counts_as_it_was_known_last_and_is_not_written() -> None:
    async def story(scene: Scene) -> None:
        await scene.let_in()
        scene.closed = {TEAM}
        scene.cluster.closed.add(TEAM)
        scene.seen[OTHERS] = seen()
        await scene.let_in()
        assert set(scene.told) == {OWN, TEAM, PROBE}

    tell(story)


def test_what_goes_wrong_in_a_further_namespace_is_told_once_and_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(scene: Scene) -> None:
        scene.cluster.closed.add(TEAM)
        for scene.now_s in (0.0, 5.0, 20.0):
            await scene.let_in()
        assert scene.logins.has_admitted(OTHERS, OTHERS)
        assert not scene.logins.has_admitted(TEAM, TEAM)
        with pytest.raises(NotAllowed):
            await scene.admit(TEAM, TEAM)
        assert caplog.text.count(f"workers of namespace {TEAM} cannot be given their passwords") == 1
        scene.cluster.closed.clear()
        scene.now_s = 25.0
        await scene.let_in()
        assert not scene.logins.has_admitted(TEAM, TEAM), "it is left alone for a while"
        scene.now_s = 40.0
        await scene.let_in()
        assert await scene.may_log_in(TEAM, TEAM)

    tell(story)


def test_what_goes_wrong_beside_the_stores_is_raised() -> None:
    async def story(scene: Scene) -> None:
        scene.cluster.closed.add(OWN)
        with pytest.raises(NotAllowed):
            await scene.let_in()

    tell(story)


def test_pods_share_a_user_beside_the_stores_alone() -> None:
    async def story(scene: Scene) -> None:
        scene.seen[TEAM] = seen(TEAM, shares=True)
        assert scene.logins.shares_a_user() is False
        scene.seen[OWN] = seen(OWN, shares=True)
        assert scene.logins.shares_a_user() is True
        scene.seen[OWN] = None
        assert scene.logins.shares_a_user() is None

    tell(story)


def test_a_secret_that_somebody_deletes_or_writes_into_is_made_as_it_was() -> None:
    async def story(scene: Scene) -> None:
        await scene.let_in()
        before, team = await scene.texts(TEAM), scene.cluster.within(TEAM)
        held = await team.get(SECRETS, WORKERS)
        assert held is not None
        other = (await scene.cluster.get(SECRETS, WORKERS) or {})["data"]
        await team.replace(SECRETS, {**held, "data": {**held["data"], **other}})
        await scene.let_in()
        assert await scene.texts(TEAM) == before
        await team.delete(SECRETS, WORKERS, uid_of(held))
        await scene.let_in()
        assert await scene.texts(TEAM) == before

    tell(story)


def test_what_only_a_status_says_opens_nothing_of_another_namespace() -> None:
    """Who may write a Topology's status could write another one's uid there."""

    async def story(scene: Scene) -> None:
        uids = frozenset({TEAM, OTHERS, "kept"})
        scene.seen[TEAM] = WorkersSeen(uids, shares_a_user=False, own=frozenset({TEAM}))
        kept = frozenset({OTHERS, "kept"})
        scene.seen[OTHERS] = WorkersSeen(kept, False, own=frozenset({OTHERS}), scheduled=frozenset({"kept"}))
        await scene.let_in()
        assert set(await scene.texts(TEAM)) == {TEAM, f"{TEAM}.spark-key"}
        assert await scene.may_log_in(OTHERS, OTHERS)
        assert await scene.may_log_in(OTHERS, "kept")
        for uid in (OTHERS, "kept"):
            with pytest.raises(PermanentError, match="of another namespace"):
                await scene.admit(TEAM, uid)
        assert set(await scene.texts(TEAM)) == {TEAM, f"{TEAM}.spark-key"}

    tell(story)
