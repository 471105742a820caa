"""One operator, one set of stores, and Topologies in several namespaces: on the twin, with real stores."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import pytest

from backends.store_fixtures import RedisBackend
from penstock.store.port import Bounds, Measure
from penstock.store.redis.users import USERS, hash_of, topology_rules, topology_user, users_file
from penstock.store.redis.worker_users import Hashes, read_worker_users
from penstock_operator.cluster import reconcile
from penstock_operator.cluster.accept_loss import accept_losses, told_losses
from penstock_operator.cluster.kubernetes_api import followed_namespace
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LATENCY_SLAS,
    NODES,
    PODS,
    SCHEDULES,
    SECRETS,
    STATEFUL_SETS,
    TOPOLOGIES,
    Object,
    name_of,
    uid_of,
)
from penstock_operator.cluster.main import Replica
from penstock_operator.cluster.stores import homeless
from penstock_operator.cluster.turns import passwords_turn
from scenes.operator_stage import Stage, tell
from scenes.worker_logins import login_of, user_of
from worlds.operator_world import NAMESPACE, NODE_NAMES, topology

pytestmark = pytest.mark.integration

TEAM = "team-a"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisBackend]:
    backend = RedisBackend(tmp_path_factory.mktemp("nodes"))
    yield backend
    backend.stop()


async def apply(stage: Stage, namespace: str, **spec: object) -> Object:
    """The Topology `words` of a namespace."""
    made = await stage.cluster.within(namespace).create(TOPOLOGIES, topology(**spec))  # type: ignore[arg-type]
    assert isinstance(made, dict)
    return made


async def schedule_of(stage: Stage, namespace: str) -> Object:
    (found,) = (await stage.cluster.within(namespace).list(SCHEDULES)).items
    return found


async def until_both_run(stage: Stage) -> None:
    for namespace in (NAMESPACE, TEAM):
        await stage.until_phase("Running", namespace=namespace)


def test_two_topologies_of_one_name_run_beside_each_other_and_do_not_meet(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        here, there = await apply(stage, NAMESPACE), await apply(stage, TEAM)
        await until_both_run(stage)
        assert len((await stage.cluster.list(STATEFUL_SETS)).items) == len(NODE_NAMES)
        team = stage.cluster.within(TEAM)
        assert not (await team.list(STATEFUL_SETS)).items
        for applied, namespace in ((here, NAMESPACE), (there, TEAM)):
            (worker,) = await stage.workers(namespace)
            schedule = await schedule_of(stage, namespace)
            assert schedule["spec"]["topologyUid"] == uid_of(applied)
            assert [one["uid"] for one in schedule["spec"]["workers"]] == [uid_of(worker)]
            within = stage.cluster.within(namespace)
            made = [worker, schedule]
            for kind in (CONFIG_MAPS, DISRUPTION_BUDGETS):
                made += (await within.list(kind)).items
            assert len(made) == 4
            assert {owner["uid"] for one in made for owner in one["metadata"]["ownerReferences"]} == {
                uid_of(applied)
            }
            events = (await within.list(EVENTS)).items
            assert uid_of(applied) in {one["regarding"]["uid"] for one in events}
            (home,) = {one["home"] for one in schedule["spec"]["shards"]}
            store = nodes.open_store(home, uid_of(applied), Bounds())
            assert None not in store.call(Measure(tuple(f"numbers/{part}" for part in range(4))))
        assert await team.delete(TOPOLOGIES, "words", uid_of(there)) is None

        async def all_gone() -> bool:
            return not (await team.list(SCHEDULES)).items and not await stage.workers(TEAM)

        await stage.until(all_gone)
        assert len(await stage.workers()) == 1
        assert (await stage.status())["phase"] == "Running"

    tell(nodes, story, namespaces=[TEAM])


def texts_of(secret: Object | None) -> dict[str, str]:
    data = (secret or {}).get("data") or {}
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def told(nodes: RedisBackend, node: str) -> Hashes:
    wire = nodes.open_wire(node)
    try:
        return read_worker_users(wire)
    finally:
        wire.close()


async def until_all_told(nodes: RedisBackend, *uids: str) -> None:
    """Until each store knows these topologies; what is in a store tells nobody when it changes."""
    async with asyncio.timeout(20):
        while not all(set(uids) <= told(nodes, node).keys() for node in NODE_NAMES):
            await asyncio.sleep(0.05)


def lets_in(nodes: RedisBackend, node: str, user: str, password: str) -> bool:
    """Whether a server that has the users whom the operator told its store of, as its agent makes them, lets
    this one in."""
    wire = nodes.open_wire(node)
    try:
        for uid, hashes in told(nodes, node).items():
            rules = ("reset", *topology_rules(uid, hashes))
            wire.exchange([(b"ACL", b"SETUSER", topology_user(uid), *rules)])
        (answer,) = wire.exchange([(b"AUTH", user, password)])
        return answer == b"OK"
    finally:
        wire.close()


def test_topologies_of_one_name_log_in_each_as_its_own_user_with_what_its_namespace_alone_has(
    nodes: RedisBackend,
) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        applied = {namespace: await apply(stage, namespace) for namespace in (NAMESPACE, TEAM)}
        await until_both_run(stage)
        texts = {}
        for namespace, one in applied.items():
            (worker,) = await stage.workers(namespace)
            assert user_of(worker) == topology_user(uid_of(one))
            name, keys = login_of(worker)
            assert keys == {uid_of(one)}
            texts[namespace] = texts_of(await stage.cluster.within(namespace).get(SECRETS, name))
            assert set(texts[namespace]) == {uid_of(one), f"{uid_of(one)}.spark-key"}
        here, there = uid_of(applied[NAMESPACE]), uid_of(applied[TEAM])
        assert here != there
        await until_all_told(nodes, here, there)
        for node in NODE_NAMES:
            assert lets_in(nodes, node, topology_user(here), texts[NAMESPACE][here])
            assert lets_in(nodes, node, topology_user(there), texts[TEAM][there])
            assert not lets_in(nodes, node, topology_user(here), texts[TEAM][there])
            assert not lets_in(nodes, node, topology_user(there), texts[NAMESPACE][here])
        team = stage.cluster.within(TEAM)
        assert team.names(SECRETS) == ("pen-store-workers",), "nothing of the stores' own"

    tell(nodes, story, namespaces=[TEAM])


def test_logins_elsewhere_follow_a_rotation_and_are_made_again_when_they_are_deleted(
    nodes: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords_turn, "_LOOK_S", 0.05)
    monkeypatch.setattr(reconcile, "_LOOK_S_MAX", 0.2)

    async def story(stage: Stage, _: Replica) -> None:
        uid = uid_of(await apply(stage, TEAM))
        await stage.until_phase("Running", namespace=TEAM)
        team = stage.cluster.within(TEAM)
        held = await team.get(SECRETS, "pen-store-workers")
        assert held is not None
        await team.delete(SECRETS, "pen-store-workers", uid_of(held))

        async def is_back() -> bool:
            return texts_of(await team.get(SECRETS, "pen-store-workers")) == texts_of(held)

        await stage.until(is_back)
        whole = await stage.cluster.get(SECRETS, "pen-store-auth")
        assert whole is not None
        new = base64.b64encode(b"another-password").decode()
        stage.cluster.put(SECRETS, {**whole, "data": {**whole["data"], "worker-password": new}})

        async def follows() -> bool:
            there = texts_of(await team.get(SECRETS, "pen-store-workers"))
            return there.get(uid) not in (None, texts_of(held)[uid])

        await stage.until(follows)

    tell(nodes, story, namespaces=[TEAM])


def test_a_topology_elsewhere_has_its_own_user_where_stores_are_new_though_others_still_share_one(
    nodes: RedisBackend,
) -> None:
    """As right after an upgrade: one store's agent does not know the users yet."""

    async def story(stage: Stage, _: Replica) -> None:
        here, there = await apply(stage, NAMESPACE), await apply(stage, TEAM)
        await until_both_run(stage)
        ((ours,), (worker,)) = await stage.workers(), await stage.workers(TEAM)
        assert user_of(ours) == "worker"
        assert uid_of(here) != uid_of(there)
        assert user_of(worker) == topology_user(uid_of(there))
        assert login_of(worker) == ("pen-store-workers", {uid_of(there)})

    users = users_file({user: [hash_of(f"of {user}")] for user in USERS})
    texts = {**{f"{user}-password": f"of {user}" for user in USERS}, "users.acl": users, "spark-key": "spark"}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    earlier = {"metadata": {"name": "pen-store-auth"}, "type": "Opaque", "data": data}
    tell(nodes, story, namespaces=[TEAM], held=[(SECRETS, earlier)])


def test_a_topology_in_a_namespace_that_is_not_served_stays_as_it_is(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        await apply(stage, "elsewhere")
        await apply(stage, TEAM)
        await stage.until_phase("Running", namespace=TEAM)
        assert "phase" not in await stage.status(namespace="elsewhere")
        assert not await stage.workers("elsewhere")
        assert not (await stage.cluster.within("elsewhere").list(SECRETS)).items

    tell(nodes, story, namespaces=[TEAM])


def test_a_latency_sla_is_about_the_topology_of_its_own_namespace(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        await apply(stage, NAMESPACE)
        await stage.until_phase("Running")
        team = stage.cluster.within(TEAM)
        sla = {
            "apiVersion": LATENCY_SLAS.api_version,
            "kind": LATENCY_SLAS.kind,
            "metadata": {"name": "fast"},
            "spec": {"topology": "words", "latency": "200ms"},
        }
        assert isinstance(await team.create(LATENCY_SLAS, sla), dict)

        async def told(text: str) -> bool:
            there = await team.get(LATENCY_SLAS, "fast") or {}
            return text in str((there.get("status") or {}).get("conditions"))

        async def is_missing() -> bool:
            return await told("there is no Topology 'words' in this namespace")

        async def is_there() -> bool:
            return not await told("there is no Topology") and await told("Ready")

        await stage.until(is_missing)
        await apply(stage, TEAM)
        await stage.until(is_there)

    tell(nodes, story, namespaces=[TEAM])


def test_a_drained_node_gives_up_the_shards_of_all_namespaces(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        await apply(stage, NAMESPACE)
        await apply(stage, TEAM)
        await until_both_run(stage)
        home = (await schedule_of(stage, TEAM))["spec"]["shards"][0]["home"]
        (other,) = set(NODE_NAMES) - {home}
        node = await stage.cluster.get(NODES, home)
        assert node is not None
        node["spec"]["unschedulable"] = True
        stage.cluster.put(NODES, node)

        async def have_left() -> bool:
            schedules = [await schedule_of(stage, namespace) for namespace in (NAMESPACE, TEAM)]
            homes = {one["home"] for schedule in schedules for one in schedule["spec"]["shards"]}
            return homes == {other}

        await stage.until(have_left)

    tell(nodes, story, namespaces=[TEAM])


def test_a_schedule_that_is_deleted_elsewhere_goes_on_where_its_state_is(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        await apply(stage, NAMESPACE)
        await apply(stage, TEAM)
        await until_both_run(stage)
        before, team = await schedule_of(stage, TEAM), stage.cluster.within(TEAM)
        assert await team.delete(SCHEDULES, name_of(before), uid_of(before)) is None

        async def is_back() -> bool:
            there = (await team.list(SCHEDULES)).items
            return bool(there) and there[0]["spec"]["version"] > before["spec"]["version"]

        await stage.until(is_back)
        after = await schedule_of(stage, TEAM)
        assert after["spec"]["topologyUid"] == before["spec"]["topologyUid"]
        assert not any(one.get("freshSince") for one in after["spec"]["shards"])

    tell(nodes, story, namespaces=[TEAM])


def test_a_namespace_that_is_closed_holds_up_no_other_and_goes_on_when_it_is_open_again(
    nodes: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_namespace, "RELIST_S", 0.2)
    monkeypatch.setattr(followed_namespace, "AGAIN_S_MIN", 0.2)

    async def story(stage: Stage, replica: Replica) -> None:
        stage.cluster.closed.add(TEAM)
        await apply(stage, NAMESPACE)
        await stage.until_phase("Running")
        assert 'namespace_served{topology_namespace="team-a"} 0.0' in replica.metrics.text().decode()
        stage.cluster.closed.clear()
        await apply(stage, TEAM)
        await stage.until_phase("Running", namespace=TEAM)
        stage.cluster.closed.add(TEAM)

        async def is_told() -> bool:
            return 'namespace_served{topology_namespace="team-a"} 0.0' in replica.metrics.text().decode()

        async with asyncio.timeout(10):
            while not await is_told():
                await asyncio.sleep(0)
        for pod in await stage.workers():
            stage.cluster.finish(PODS, name_of(pod))

        async def is_made_anew() -> bool:
            return len(await stage.workers()) == 1

        await stage.until(is_made_anew)
        stage.cluster.closed.clear()
        (worker,) = await stage.workers(TEAM)
        stage.cluster.within(TEAM).finish(PODS, name_of(worker))

        async def is_made_there() -> bool:
            return len(await stage.workers(TEAM)) == 1

        await stage.until(is_made_there)

    tell(nodes, story, namespaces=[TEAM])


def test_a_scale_edit_elsewhere_resizes_the_pod_that_stays(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        await apply(stage, NAMESPACE)
        await apply(stage, TEAM)
        await until_both_run(stage)
        ours, (before,) = await schedule_of(stage, NAMESPACE), await stage.workers(TEAM)
        team = stage.cluster.within(TEAM)
        edited = await team.get(TOPOLOGIES, "words")
        assert edited is not None
        edited["spec"]["operators"][0]["tasks"] = {"initial": 4}
        assert isinstance(await team.replace(TOPOLOGIES, edited), dict)

        async def resized() -> bool:
            (pod,) = await stage.workers(TEAM)
            executors = (await schedule_of(stage, TEAM))["spec"]["executors"]
            cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            return sum(one["tasks"] for one in executors) == 4 and cpu == "3999m" and uid_of(pod) == was

        was = uid_of(before)
        await stage.until(resized)
        assert (await schedule_of(stage, NAMESPACE))["spec"] == ours["spec"]

    tell(nodes, story, namespaces=[TEAM])


def test_state_that_is_retained_elsewhere_leaves_a_drained_node_and_is_gone_on_with(
    nodes: RedisBackend,
) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        first = await apply(stage, TEAM, deletionPolicy="Retain")
        await stage.until_phase("Running", namespace=TEAM)
        team = stage.cluster.within(TEAM)
        await team.delete(TOPOLOGIES, "words", uid_of(first))

        async def is_ended() -> bool:
            return not await stage.workers(TEAM)

        await stage.until(is_ended)
        (home,) = {one["home"] for one in (await schedule_of(stage, TEAM))["spec"]["shards"]}
        node = await stage.cluster.get(NODES, home)
        assert node is not None
        node["spec"]["unschedulable"] = True
        stage.cluster.put(NODES, node)

        async def has_left() -> bool:
            return home not in {one["home"] for one in (await schedule_of(stage, TEAM))["spec"]["shards"]}

        await stage.until(has_left)
        # One of the same name in another namespace begins anew.
        ours = await apply(stage, NAMESPACE)
        await stage.until_phase("Running")
        assert (await stage.status())["stateUid"] == uid_of(ours)
        await apply(stage, TEAM, deletionPolicy="Retain")

        async def goes_on() -> bool:
            return (await stage.status(namespace=TEAM)).get("stateUid") == uid_of(first)

        await stage.until(goes_on)

    tell(nodes, story, namespaces=[TEAM])


def test_what_a_topology_elsewhere_lost_with_a_node_is_accepted_there(
    nodes: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homeless, "GONE_AFTER_S", 0.5)

    async def story(stage: Stage, _: Replica) -> None:
        await apply(stage, TEAM)
        await stage.until_phase("Running", namespace=TEAM)
        team = stage.cluster.within(TEAM)
        (home,) = {one["home"] for one in (await schedule_of(stage, TEAM))["spec"]["shards"]}
        stage.cluster.finish(NODES, home)
        for within in (stage.cluster, team):
            for pod in (await within.list(PODS)).items:
                if pod["spec"].get("nodeName") == home:
                    within.finish(PODS, name_of(pod))

        async def is_told() -> bool:
            return bool((await stage.status(namespace=TEAM)).get("lost"))

        await stage.until(is_told)
        conditions = (await stage.status(namespace=TEAM))["conditions"]
        told = " ".join(one["message"] for one in conditions)
        assert f"penstock accept-loss words --namespace {TEAM}" in told
        (loss,) = await told_losses(team, "words")
        await accept_losses(team, "words", [loss.id])

        async def is_whole() -> bool:
            homes = {one["home"] for one in (await schedule_of(stage, TEAM))["spec"]["shards"]}
            return homes == set(NODE_NAMES) - {home} and "lost" not in await stage.status(namespace=TEAM)

        await stage.until(is_whole)

    tell(nodes, story, namespaces=[TEAM])
