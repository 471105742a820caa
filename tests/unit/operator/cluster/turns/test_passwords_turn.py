"""The operator's look at the stores' passwords, on the twin of the API: which Secret says what, and when."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

import pytest

from clocks.running import run
from penstock.api.operator_config import OperatorConfig
from penstock.errors import PermanentError
from penstock.store.port import StoreUnreachable
from penstock.store.redis.users import PROBE, USERS, hash_of, hashes_of, topology_user, users_file
from penstock.store.redis.worker_users import Hashes
from penstock_operator.cluster.kubernetes_api.lease import TermBehind
from penstock_operator.cluster.kubernetes_api.port import EVENTS, SECRETS, Object, uid_of
from penstock_operator.cluster.observing.observed import ObservedStore
from penstock_operator.cluster.observing.workers_seen import WorkersSeen
from penstock_operator.cluster.stores.password_secret import ANNOTATION_ROTATE
from penstock_operator.cluster.stores.store_passwords import Passwords
from penstock_operator.cluster.turns.passwords_turn import PasswordsTurns, StoreLogin, StoreLogins
from penstock_operator.cluster.turns.work import Clocks, Leadership
from penstock_operator.cluster.turns.worker_logins import WorkersPlace
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds.cluster_world import CONFIG

NAME = "pen-store-auth"
WORKERS = "pen-store-workers"
GIVEN = "vault"
STORES = tuple(
    ObservedStore(node, node, f"{node}:6379", ready, "Disk", True, f"pen-store-{node}", node)
    for node, ready in (("a", True), ("b", True), ("c", False))
)


class Scene:
    """A namespace, an operator's turns in it, and stores that take the users' file when they are told to."""

    def __init__(self, given: str | None = None) -> None:
        self.now_s = 0.0
        self.cluster = MemoryCluster(clock_s=lambda: self.now_s, namespace="streams")
        self.config = CONFIG.model_copy(
            update={"store": CONFIG.store.model_copy(update={"passwords_secret": given})}
        )
        self.login = StoreLogin()
        self.numbers = count()
        self.taken: dict[str, str] = {}
        self.seen: WorkersSeen | None = WorkersSeen(frozenset({"u1"}), shares_a_user=False)
        self.stores = STORES
        self.told: dict[str, tuple[Hashes, int]] = {}
        self.away: set[str] = set()
        """Addresses of stores that do not answer."""
        self.old_agents: set[str] = set()
        """Of stores whose agents know no users of topologies."""
        self.turns = self.operator(self.config)

    def operator(self, config: OperatorConfig, term: int = 1) -> PasswordsTurns:
        """One that has just begun to lead."""
        return PasswordsTurns(
            self.cluster,
            config,
            StoreLogins(self.login, self.refusing, self.tell),
            Leadership(term, "pen"),
            Clocks(lambda: self.now_s, lambda: 1000 + self.now_s),
            [WorkersPlace("streams", self.cluster, lambda: self.seen, lambda: True)],
            lambda: f"made {next(self.numbers)}",
        )

    async def refusing(self, addresses: Sequence[str], passwords: Passwords) -> Sequence[str]:
        def takes(address: str) -> bool:
            known = {**hashes_of(self.taken.get(address, "")), **self.users_of_topologies(address)}
            return all(hash_of(password) in known.get(user, ()) for user, password in passwords.items())

        return [address for address in addresses if not takes(address)]

    def users_of_topologies(self, address: str) -> dict[str, tuple[str, ...]]:
        if address in self.old_agents or address not in self.told:
            return {}
        return {topology_user(uid): hashes for uid, hashes in self.told[address][0].items()}

    async def tell(
        self,
        addresses: Sequence[str],
        users: Hashes,
        term: int,
        others: Callable[[Iterable[str]], Hashes] | None = None,
    ) -> Mapping[str, str]:
        for address in addresses:
            if address in self.away:
                continue
            known, latest = self.told.get(address, ({}, 0))
            if latest > term:
                raise TermBehind("later", latest)
            kept = others(known.keys() - users.keys()) if others is not None else {}
            self.told[address] = {**kept, **users}, term
        return {address: "away" for address in addresses if address in self.away}

    def takes_workers(self, address: str, uid: str, password: str) -> bool:
        return hash_of(password) in self.users_of_topologies(address).get(topology_user(uid), ())

    def workers_texts(self) -> Mapping[str, str]:
        """What pods of workers find."""
        data = self.cluster.held(SECRETS, WORKERS)["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    async def turn(self, seconds: float = 5.0) -> None:
        self.now_s += seconds
        await self.turns.turn(self.stores)

    def tell_stores(self, *addresses: str) -> None:
        self.taken |= dict.fromkeys(addresses, self.texts()["users.acl"])

    def texts(self) -> Mapping[str, str]:
        data = self.cluster.held(SECRETS, NAME)["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def passwords(self) -> dict[str, str]:
        return {user: self.texts()[f"{user}-password"] for user in USERS}

    def give(self, **passwords: str) -> None:
        self.cluster.put(SECRETS, secret(GIVEN, {f"{user}-password": one for user, one in passwords.items()}))

    async def annotate(self, value: str) -> None:
        thing = await self.cluster.get(SECRETS, NAME)
        assert thing is not None
        thing["metadata"].setdefault("annotations", {})[ANNOTATION_ROTATE] = value
        await self.cluster.replace(SECRETS, thing)

    async def told_of(self) -> list[str]:
        return [one["reason"] for one in (await self.cluster.list(EVENTS)).items]


def secret(name: str, texts: Mapping[str, str]) -> Object:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": data}


def tell(scene: Scene, story: Callable[[Scene], Awaitable[None]]) -> None:
    async def told() -> None:
        await story(scene)

    run(told())


def test_the_first_look_makes_the_secret_that_pods_mount_and_later_ones_leave_it_alone() -> None:
    async def story(scene: Scene) -> None:
        with pytest.raises(StoreUnreachable, match="has not read"):
            scene.login()
        await scene.turn()
        made = scene.cluster.held(SECRETS, NAME)
        ours = {"users.acl", "spark-key", "workers-key", "worker-roots"}
        assert set(scene.texts()) == {*(f"{user}-password" for user in USERS), *ours}
        assert scene.login() == scene.passwords()["operator"]
        for _ in range(3):
            await scene.turn()
        scene.turns = scene.operator(scene.config)
        await scene.turn()
        assert scene.cluster.held(SECRETS, NAME) == made
        assert scene.login() == scene.passwords()["operator"]

    tell(Scene(), story)


def test_an_earlier_chart_may_take_the_secret_over_and_a_later_one_leaves_it() -> None:
    """Helm takes what says that it is of its release, and keeps what says that it stays."""

    async def story(scene: Scene) -> None:
        scene.turns = scene.operator(scene.config.model_copy(update={"release": "prod"}))
        await scene.turn()
        metadata = scene.cluster.held(SECRETS, NAME)["metadata"]
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        assert metadata["annotations"] == {
            "penstock.dev/workers-users": "own",
            "helm.sh/resource-policy": "keep",
            "meta.helm.sh/release-name": "prod",
            "meta.helm.sh/release-namespace": "streams",
        }

    tell(Scene(), story)


def test_a_secret_of_an_earlier_chart_keeps_its_passwords_and_what_else_is_in_it() -> None:
    async def story(scene: Scene) -> None:
        before = {f"{user}-password": f"of {user}" for user in USERS}
        there = secret(NAME, {**before, "users.acl": "older", "mine": "too"})
        there["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
        scene.cluster.put(SECRETS, there)
        await scene.turn()
        assert {key: scene.texts()[key] for key in (*before, "mine")} == {**before, "mine": "too"}
        assert scene.texts()["spark-key"] == "of worker"
        assert hashes_of(scene.texts()["users.acl"])["agent"] == (hash_of("of agent"),)
        annotations = scene.cluster.held(SECRETS, NAME)["metadata"]["annotations"]
        assert annotations["helm.sh/resource-policy"] == "keep"

    tell(Scene(), story)


def test_a_secret_that_somebody_deletes_or_cuts_is_made_again_as_it_was() -> None:
    async def story(scene: Scene) -> None:
        await scene.turn()
        before = scene.texts()
        await scene.cluster.delete(SECRETS, NAME, uid_of(scene.cluster.held(SECRETS, NAME)))
        await scene.turn()
        assert scene.texts() == before
        for keys in (("agent-password", "spark-key", "users.acl"), ("workers-key",), ("worker-roots",)):
            cut = scene.cluster.held(SECRETS, NAME)
            for key in keys:
                del cut["data"][key]
            scene.cluster.put(SECRETS, cut)
            await scene.turn()
            assert scene.texts() == before

    tell(Scene(), story)


def test_passwords_are_rotated_once_every_ready_store_takes_them() -> None:
    async def story(scene: Scene) -> None:
        await scene.turn()
        scene.tell_stores("a:6379", "b:6379")
        before = scene.passwords()
        await scene.annotate("now")
        await scene.turn()
        scene.tell_stores("a:6379")
        await scene.turn(400)
        await scene.turn()
        assert scene.passwords() == before, "b does not take the new ones"
        scene.turns = scene.operator(scene.config)  # another process goes on with it
        scene.tell_stores("b:6379")
        await scene.turn()
        after = scene.passwords()
        assert not {*after.values()} & {*before.values()}
        assert scene.login() == after["operator"]
        known = hashes_of(scene.texts()["users.acl"])
        assert set(known["agent"]) == {hash_of(before["agent"]), hash_of(after["agent"])}
        await scene.turn(299)
        assert hashes_of(scene.texts()["users.acl"]) == known
        await scene.turn()
        assert hashes_of(scene.texts()["users.acl"])["agent"] == (hash_of(after["agent"]),)
        assert not [key for key in scene.texts() if key.startswith("coming")]
        assert await scene.told_of() == ["PasswordsRotating", "PasswordsGiven", "PasswordsRotated"]
        assert scene.passwords() == after

    tell(Scene(), story)


def test_a_store_that_does_not_take_new_passwords_for_long_is_told_of_once() -> None:
    async def story(scene: Scene) -> None:
        await scene.turn()
        await scene.annotate("now")
        for _ in range(70):
            await scene.turn()
        (told,) = [one for one in (await scene.cluster.list(EVENTS)).items if one["type"] == "Warning"]
        assert told["reason"] == "PasswordsWait"
        assert told["note"].endswith("pen-store-a, pen-store-b")

    tell(Scene(), story)


def test_somebody_elses_secret_is_followed() -> None:
    async def story(scene: Scene) -> None:
        scene.give(worker="w1", operator="o1", agent="a1\n")
        await scene.turn()
        assert scene.passwords() == {"worker": "w1", "operator": "o1", "agent": "a1"}
        scene.tell_stores("a:6379", "b:6379")
        scene.give(worker="w2", operator="o1", agent="a1")
        await scene.turn()
        assert scene.passwords()["worker"] == "w1"
        scene.tell_stores("a:6379", "b:6379")
        await scene.turn()
        assert scene.passwords() == {"worker": "w2", "operator": "o1", "agent": "a1"}

    tell(Scene(GIVEN), story)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (None, "there is no Secret vault, which store.auth.existingSecret of the chart names"),
        ({"worker": "w", "operator": "o"}, "lacks agent-password"),
        ({"worker": "w", "operator": "\n", "agent": "a"}, "lacks operator-password"),
        ({"worker": "same", "operator": "o", "agent": "same"}, "gives two users one password"),
    ],
)
def test_somebody_elses_secret_that_lacks_something_is_refused_and_the_stores_go_on(
    given: dict[str, str] | None, complaint: str
) -> None:
    async def story(scene: Scene) -> None:
        if given is not None:
            scene.give(**given)
        with pytest.raises(PermanentError, match=complaint):
            await scene.turn()
        assert NAME not in scene.cluster.names(SECRETS)
        there = {f"{user}-password": user for user in USERS}
        scene.cluster.put(SECRETS, secret(NAME, {**there, "users.acl": "any", "spark-key": "any"}))
        with pytest.raises(PermanentError, match=complaint):
            await scene.turn()
        assert scene.login() == "operator"

    tell(Scene(GIVEN), story)


# --- a user for the workers of each topology


def test_workers_of_each_topology_find_a_password_of_their_own_that_all_stores_take() -> None:
    async def story(scene: Scene) -> None:
        scene.seen = WorkersSeen(frozenset({"u1", "u2"}), shares_a_user=False)
        await scene.turn()
        texts = scene.workers_texts()
        assert set(texts) == {"u1", "u1.spark-key", "u2", "u2.spark-key"}
        assert len(set(texts.values())) == 4
        assert set(scene.told) == {"a:6379", "b:6379"}, "the ready ones"
        for address in scene.told:
            assert scene.takes_workers(address, "u1", texts["u1"])
            assert not scene.takes_workers(address, "u1", texts["u2"])
        assert scene.passwords()["worker"] not in texts.values(), "no pod has what an earlier version shares"
        assert scene.turns.own_users_in("streams")
        held = scene.cluster.held(SECRETS, WORKERS)
        scene.turns = scene.operator(scene.config)
        await scene.turn()
        assert scene.cluster.held(SECRETS, WORKERS) == held, "another operator makes the same"

    tell(Scene(), story)


def test_a_new_topology_is_let_in_before_its_pods_are_made_and_a_gone_one_no_more() -> None:
    async def story(scene: Scene) -> None:
        with pytest.raises(StoreUnreachable, match="has not read"):
            await scene.turns.admit("streams", "u2")
        with pytest.raises(StoreUnreachable, match="has not read"):
            scene.turns.own_users_in("team-a")
        await scene.turn()
        await scene.turns.admit("streams", "u2")
        assert scene.takes_workers("a:6379", "u2", scene.workers_texts()["u2"])
        scene.seen = WorkersSeen(frozenset({"u2"}), shares_a_user=False)
        await scene.turn()
        assert set(scene.workers_texts()) == {"u2", "u2.spark-key"}
        assert set(scene.told["b:6379"][0]) == {"u2", PROBE}

    tell(Scene(), story)


def test_topologies_that_come_together_are_let_in_together() -> None:
    async def story(scene: Scene) -> None:
        await scene.turn()
        uids = [f"new-{number}" for number in range(20)]
        scene.seen = WorkersSeen(frozenset(uids), shares_a_user=False)
        before = int(scene.cluster.held(SECRETS, WORKERS)["metadata"]["resourceVersion"])
        await asyncio.gather(*(scene.turns.admit("streams", uid) for uid in uids))
        after = int(scene.cluster.held(SECRETS, WORKERS)["metadata"]["resourceVersion"])
        assert after == before + 1, "one write"
        assert set(uids) <= set(scene.told["a:6379"][0])

    tell(Scene(), story)


def test_nobody_is_taken_for_gone_while_not_everything_has_been_listed() -> None:
    async def story(scene: Scene) -> None:
        await scene.turn()
        told, texts = dict(scene.told), scene.workers_texts()
        scene.seen = None
        scene.turns = scene.operator(scene.config)
        await scene.turn()
        assert scene.told == told
        await scene.turns.admit("streams", "u2")
        for address, (users, _) in told.items():
            assert set(scene.told[address][0]) == {*users, "u2"}
        assert {key: scene.workers_texts()[key] for key in texts} == texts
        assert "u2" in scene.workers_texts()

    tell(Scene(), story)


def test_a_store_that_is_new_emptied_or_was_away_is_told_at_the_next_look() -> None:
    async def story(scene: Scene) -> None:
        scene.away = {"b:6379"}
        await scene.turn()
        assert "b:6379" not in scene.told
        scene.away = set()
        await scene.turn()
        assert "u1" in scene.told["b:6379"][0]
        del scene.told["a:6379"]
        await scene.turn()
        assert "u1" in scene.told["a:6379"][0]
        scene.stores = tuple(replace(one, ready=True) for one in STORES)
        await scene.turn(0.1)
        assert "u1" in scene.told["c:6379"][0], "at once: workers wait for it"

    tell(Scene(), story)


def test_the_workers_secret_is_made_again_as_it_was_whatever_somebody_did_to_it() -> None:
    async def story(scene: Scene) -> None:
        await scene.turn()
        before = scene.workers_texts()
        await scene.cluster.delete(SECRETS, WORKERS, uid_of(scene.cluster.held(SECRETS, WORKERS)))
        await scene.turn()
        assert scene.workers_texts() == before
        scene.cluster.put(SECRETS, secret(WORKERS, {"u1": "guessed", "u9": "more"}))
        await scene.turn()
        assert scene.workers_texts() == before

    tell(Scene(), story)


def test_somebody_elses_secret_that_is_gone_keeps_no_worker_out() -> None:
    async def story(scene: Scene) -> None:
        scene.give(worker="w1", operator="o1", agent="a1")
        await scene.turn()
        await scene.cluster.delete(SECRETS, GIVEN, uid_of(scene.cluster.held(SECRETS, GIVEN)))
        scene.told.clear()
        with pytest.raises(PermanentError, match="there is no Secret vault"):
            await scene.turn()
        assert "u1" in scene.told["a:6379"][0]
        await scene.turns.admit("streams", "u2")
        assert "u2" in scene.told["a:6379"][0]

    tell(Scene(GIVEN), story)


def test_a_rotation_holds_for_topologies_users_too() -> None:
    async def story(scene: Scene) -> None:
        await scene.turn()
        scene.tell_stores("a:6379", "b:6379")
        before = scene.workers_texts()
        await scene.annotate("now")
        await scene.turn()
        assert scene.workers_texts() == before, "pods have the former ones"
        scene.old_agents = {"b:6379"}
        scene.tell_stores("a:6379", "b:6379")
        await scene.turn()
        assert scene.workers_texts() == before, "the agent of b made no users of what it was told"
        scene.old_agents = set()
        await scene.turn()
        after = scene.workers_texts()
        assert after["u1"] != before["u1"]
        assert after["u1.spark-key"] == before["u1.spark-key"], "a running master knows no other"
        for one in (before, after):
            assert scene.takes_workers("a:6379", "u1", one["u1"])
        await scene.turn(300)
        assert scene.takes_workers("a:6379", "u1", after["u1"])
        assert not scene.takes_workers("a:6379", "u1", before["u1"])

    tell(Scene(), story)


def test_an_operator_that_dies_between_the_two_secrets_takes_no_time_from_pods() -> None:
    """The stores' Secret says that pods are given new passwords, and workers' pods were not."""

    async def story(scene: Scene) -> None:
        await scene.turn()
        scene.tell_stores("a:6379", "b:6379")
        before = scene.cluster.held(SECRETS, WORKERS)
        await scene.annotate("now")
        await scene.turn()
        scene.tell_stores("a:6379", "b:6379")
        await scene.turn()
        after = scene.workers_texts()
        scene.cluster.put(SECRETS, before)
        scene.turns = scene.operator(scene.config)
        await scene.turn(400)
        assert scene.workers_texts() == after
        former = base64.b64decode(before["data"]["u1"]).decode()
        await scene.turn(290)
        assert scene.takes_workers("a:6379", "u1", former), "a kubelet brings the new one meanwhile"
        await scene.turn(20)
        assert not scene.takes_workers("a:6379", "u1", former)

    tell(Scene(), story)


def test_a_leader_of_before_writes_nothing_into_a_store_that_knows_a_later_one() -> None:
    async def story(scene: Scene) -> None:
        await scene.turn()
        before = scene.turns
        scene.turns = scene.operator(scene.config, term=2)
        scene.seen = WorkersSeen(frozenset({"u1", "u2"}), shares_a_user=False)
        await scene.turn()
        scene.turns = before
        scene.seen = WorkersSeen(frozenset({"u1"}), shares_a_user=False)
        with pytest.raises(TermBehind):
            await scene.turn()
        assert "u2" in scene.told["a:6379"][0]

    tell(Scene(), story)


def earlier_secret() -> Object:
    """As the version before has it."""
    there = {f"{user}-password": f"of {user}" for user in USERS}
    users = users_file({user: [hash_of(there[f"{user}-password"])] for user in USERS})
    return secret(NAME, {**there, "users.acl": users, "spark-key": "spark"})


def test_after_an_upgrade_all_share_a_user_until_every_store_knows_others_and_no_pod_has_it() -> None:
    async def story(scene: Scene) -> None:
        scene.cluster.put(SECRETS, earlier_secret())
        scene.old_agents = {"b:6379"}
        scene.seen = WorkersSeen(frozenset({"u1"}), shares_a_user=True)
        scene.stores = tuple(replace(one, is_outdated=one.id == "c") for one in STORES)
        for _ in range(3):
            await scene.turn()
            assert not scene.turns.own_users_in("streams"), "b's agent is of the version before"
            assert scene.turns.own_users_in("team-a"), "the shared one's password cannot be mounted there"
        scene.old_agents = set()
        await scene.turn()
        assert not scene.turns.own_users_in("streams"), "c's pod is, and may be back as it is"
        scene.stores = STORES
        await scene.turn()
        assert scene.turns.own_users_in("streams")
        scene.turns = scene.operator(scene.config)
        await scene.turn()
        assert scene.turns.own_users_in("streams")
        known = hashes_of(scene.texts()["users.acl"])
        assert known["worker"] == (hash_of("of worker"),), "pods of before have it"
        assert scene.passwords()["worker"] == "of worker"
        before = scene.passwords()
        scene.seen = WorkersSeen(frozenset({"u1"}), shares_a_user=False)
        await scene.turn()
        scene.tell_stores("a:6379", "b:6379")
        await scene.turn()
        await scene.turn(300)
        after = scene.passwords()
        assert after["worker"] != before["worker"], "what pods had is good no more"
        assert {**after, "worker": ""} == {**before, "worker": ""}
        known = hashes_of(scene.texts()["users.acl"])
        assert known["worker"] == (hash_of(after["worker"]),), "and the user is there for a downgrade"
        held = scene.cluster.held(SECRETS, NAME)
        await scene.turn()
        assert scene.cluster.held(SECRETS, NAME) == held
        said = ["OwnUsers", "PasswordsRotating", "PasswordsGiven", "PasswordsRotated"]
        assert await scene.told_of() == said

    tell(Scene(), story)


def test_what_pods_shared_and_somebody_else_says_is_taken_away_until_it_is_another() -> None:
    async def story(scene: Scene) -> None:
        scene.cluster.put(SECRETS, earlier_secret())
        scene.give(**{user: f"of {user}" for user in USERS})
        for _ in range(3):
            await scene.turn()
        assert scene.turns.own_users_in("streams")
        assert "worker" not in hashes_of(scene.texts()["users.acl"])
        scene.give(worker="another", operator="of operator", agent="of agent")
        for seconds in (5, 5, 300, 5):
            scene.tell_stores("a:6379", "b:6379")
            await scene.turn(seconds)
        assert hashes_of(scene.texts()["users.acl"])["worker"] == (hash_of("another"),)

    tell(Scene(GIVEN), story)


def test_an_upgrade_in_the_middle_of_a_rotation_goes_on_with_it() -> None:
    async def story(scene: Scene) -> None:
        there = earlier_secret()
        coming = {user: f"coming {user}" for user in USERS}
        for user in USERS:
            there["data"][f"coming-{user}-password"] = base64.b64encode(coming[user].encode()).decode()
        both = {user: [hash_of(f"of {user}"), hash_of(coming[user])] for user in USERS}
        there["data"]["users.acl"] = base64.b64encode(users_file(both).encode()).decode()
        scene.cluster.put(SECRETS, there)
        scene.seen = WorkersSeen(frozenset({"u1"}), shares_a_user=True)
        scene.tell_stores("a:6379", "b:6379")
        await scene.turn()
        await scene.turn()
        assert scene.passwords() == coming
        assert scene.takes_workers("a:6379", "u1", scene.workers_texts()["u1"])

    tell(Scene(), story)


def test_pods_of_a_version_before_that_come_back_share_a_user_until_they_are_gone_again() -> None:
    """An operator of the version before made them, after a downgrade."""

    async def story(scene: Scene) -> None:
        await scene.turn()
        before = scene.passwords()
        known = hashes_of(scene.texts()["users.acl"])
        assert known["worker"] == (hash_of(before["worker"]),), "they are let in at once"
        scene.seen = WorkersSeen(frozenset({"u1"}), shares_a_user=True)
        for _ in range(3):
            await scene.turn()
        assert scene.passwords() == before
        scene.seen = WorkersSeen(frozenset({"u1"}), shares_a_user=False)
        for seconds in (5, 5, 300):
            await scene.turn(seconds)
            scene.tell_stores("a:6379", "b:6379")
        assert scene.passwords()["worker"] != before["worker"]

    tell(Scene(), story)


def test_an_upgrade_after_a_downgrade_waits_for_the_stores_once_more() -> None:
    """The Secret says that pods have their own users; those that are there do not, and the stores know
    none."""

    async def story(scene: Scene) -> None:
        await scene.turn()
        assert scene.turns.own_users_in("streams")
        scene.seen = WorkersSeen(frozenset({"u1"}), shares_a_user=True)
        scene.old_agents = {"a:6379"}
        scene.turns = scene.operator(scene.config)
        for _ in range(3):
            await scene.turn()
            assert not scene.turns.own_users_in("streams")
        scene.old_agents = set()
        await scene.turn()
        assert scene.turns.own_users_in("streams")
        scene.old_agents = {"a:6379"}
        await scene.turn()
        assert scene.turns.own_users_in("streams"), (
            "what was decided stays: pods are not made anew back and forth"
        )

    tell(Scene(), story)
