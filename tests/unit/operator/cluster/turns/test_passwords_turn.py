"""The operator's look at the stores' passwords, on the twin of the API: which Secret says what, and when."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count

import pytest

from clocks.running import run
from penstock.api.operator_config import OperatorConfig
from penstock.errors import PermanentError
from penstock.store.port import StoreUnreachable
from penstock.store.redis.users import USERS, hash_of, hashes_of
from penstock_operator.cluster.kubernetes_api.port import EVENTS, SECRETS, Object, uid_of
from penstock_operator.cluster.observing.observed import ObservedStore
from penstock_operator.cluster.stores.password_secret import ANNOTATION_ROTATE
from penstock_operator.cluster.stores.store_passwords import Passwords
from penstock_operator.cluster.turns.passwords_turn import PasswordsTurns, StoreLogin, StoreLogins
from penstock_operator.cluster.turns.work import Clocks, Leadership
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds.cluster_world import CONFIG

NAME = "pen-store-auth"
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
        self.turns = self.operator(self.config)

    def operator(self, config: OperatorConfig) -> PasswordsTurns:
        """One that has just begun to lead."""
        return PasswordsTurns(
            self.cluster,
            config,
            StoreLogins(self.login, self.refusing),
            Leadership(1, "pen"),
            Clocks(lambda: self.now_s, lambda: 1000 + self.now_s),
            lambda: f"made {next(self.numbers)}",
        )

    async def refusing(self, addresses: Sequence[str], passwords: Passwords) -> Sequence[str]:
        def takes(address: str) -> bool:
            known = hashes_of(self.taken.get(address, ""))
            return all(hash_of(password) in known.get(user, ()) for user, password in passwords.items())

        return [address for address in addresses if not takes(address)]

    async def turn(self, seconds: float = 5.0) -> None:
        self.now_s += seconds
        await self.turns.turn(STORES)

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

    async def told(self) -> list[str]:
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
        assert set(scene.texts()) == {*(f"{user}-password" for user in USERS), "users.acl", "spark-key"}
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
        cut = scene.cluster.held(SECRETS, NAME)
        for key in ("agent-password", "spark-key", "users.acl"):
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
        assert set(known["worker"]) == {hash_of(before["worker"]), hash_of(after["worker"])}
        await scene.turn(299)
        assert hashes_of(scene.texts()["users.acl"]) == known
        await scene.turn()
        assert hashes_of(scene.texts()["users.acl"])["worker"] == (hash_of(after["worker"]),)
        assert not [key for key in scene.texts() if key.startswith("coming")]
        assert await scene.told() == ["PasswordsRotating", "PasswordsGiven", "PasswordsRotated"]
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
