"""The whole operator, from its Lease to its status, on the twin of the API and real stores."""

from __future__ import annotations

import asyncio
import copy
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any
from urllib.error import HTTPError

import pytest

from backends.store_fixtures import RedisBackend
from clocks.running import run
from penstock.store.lives import life_of
from penstock.store.port import Bounds, Measure
from penstock_operator.agent.schedule_memory import ScheduleMemory
from penstock_operator.cluster.accept_loss import accept_losses, told_losses
from penstock_operator.cluster.kubernetes_api.lease import LeaseTimes
from penstock_operator.cluster.kubernetes_api.loop_thread import LoopThread
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LATENCY_SLAS,
    LEASES,
    NODES,
    PODS,
    SCHEDULES,
    SECRETS,
    STATEFUL_SETS,
    TOPOLOGIES,
    VOLUME_CLAIMS,
    VOLUMES,
    Kind,
    Object,
    name_of,
    uid_of,
)
from penstock_operator.cluster.main import EXIT_LEASE_LOST, EXIT_STOPPED, Replica
from penstock_operator.cluster.stores import homeless
from penstock_simulation.twins.memory_cluster import MemoryCluster
from scenes.operator_stage import Stage, tell
from worlds.operator_world import NAMESPACE, NODE_NAMES, topology

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisBackend]:
    backend = RedisBackend(tmp_path_factory.mktemp("nodes"))
    yield backend
    backend.stop()


def test_an_applied_topology_comes_to_run_and_its_deletion_leaves_nothing(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        cluster = stage.cluster
        applied = await cluster.create(TOPOLOGIES, topology())
        assert isinstance(applied, dict)
        status = await stage.until_phase("Running")
        assert status["observedGeneration"] == 1
        assert {one["type"]: one["status"] for one in status["conditions"]}["Ready"] == "True"
        assert len((await cluster.list(STATEFUL_SETS)).items) == len(NODE_NAMES)
        assert await cluster.get(SECRETS, "pen-store-auth")
        (worker,) = await stage.workers()
        (schedule,) = (await cluster.list(SCHEDULES)).items
        assert schedule["spec"]["term"] == 1
        assert schedule["spec"]["workers"][0]["uid"] == uid_of(worker)
        assert (await cluster.list(EVENTS)).items
        assert await cluster.delete(TOPOLOGIES, "words", uid_of(applied)) is None

        async def all_gone() -> bool:
            left = (await cluster.list(SCHEDULES)).items + (await cluster.list(CONFIG_MAPS)).items
            return not left and not await stage.workers()

        await stage.until(all_gone)

    tell(nodes, story)


def test_a_scale_edit_resizes_the_pod_that_stays(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        applied = await stage.cluster.create(TOPOLOGIES, topology())
        assert isinstance(applied, dict)
        await stage.until_phase("Running")
        (before,) = await stage.workers()
        edited = await stage.cluster.get(TOPOLOGIES, "words")
        assert edited is not None
        edited["spec"]["operators"][0]["tasks"] = {"initial": 4}
        assert isinstance(await stage.cluster.replace(TOPOLOGIES, edited), dict)

        async def resized() -> bool:
            (pod,) = await stage.workers()
            (schedule,) = (await stage.cluster.list(SCHEDULES)).items
            requests = pod["spec"]["containers"][0]["resources"]["requests"]
            tasks = sum(one["tasks"] for one in schedule["spec"]["executors"])
            # A little below the limit, so that the pod keeps its QoS class.
            return tasks == 4 and requests["cpu"] == "3999m" and uid_of(pod) == uid_of(before)

        await stage.until(resized)

    tell(nodes, story)


def test_a_schedules_status_shows_what_agents_have_on_the_move_and_tasks_that_run(
    nodes: RedisBackend,
) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        await stage.cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")

        async def shown() -> tuple[int, int]:
            (schedule,) = (await stage.cluster.list(SCHEDULES)).items
            status = schedule.get("status") or {}
            return status.get("shardsMoving", -1), status.get("tasksReady", -1)

        async def settled() -> bool:
            return await shown() == (0, 2)

        async def moving() -> bool:
            return (await shown())[0] == 3

        async def report(count: int) -> None:
            (schedule,) = (await stage.cluster.list(SCHEDULES)).items
            (entry,) = schedule["status"]["applied"]
            told = {
                "metadata": schedule["metadata"],
                "status": {"applied": [{**entry, "shardsMoving": count}]},
            }
            stage.cluster.status_by(f"penstock-agent-{entry['node']}", SCHEDULES, told)

        await stage.until(settled)
        await report(3)
        await stage.until(moving)
        await report(0)
        await stage.until(settled)

    tell(nodes, story)


def test_a_store_of_an_outdated_template_is_replaced_once_no_schedule_names_it(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        cluster = stage.cluster
        await cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")

        async def homes() -> set[str]:
            (schedule,) = (await cluster.list(SCHEDULES)).items
            return {one["id"] for one in schedule["spec"]["stores"]}

        (home,) = await homes()
        (held,) = [one for one in (await cluster.list(STATEFUL_SETS)).items if home in name_of(one)]
        pod = await cluster.get(PODS, f"{name_of(held)}-0")
        assert pod is not None
        pod["metadata"]["labels"]["controller-revision-hash"] = "r1"
        cluster.put(PODS, pod)
        cluster.set_status(STATEFUL_SETS, name_of(held), {"observedGeneration": 1, "updateRevision": "r2"})

        async def replaced() -> bool:
            there = await cluster.get(PODS, name_of(pod))
            if there is not None:
                return False
            assert home not in await homes()
            return True

        await stage.until(replaced)
        other = next(one for one in (await cluster.list(STATEFUL_SETS)).items if home not in name_of(one))
        assert await cluster.get(PODS, f"{name_of(other)}-0") is not None

    tell(nodes, story)


def test_a_schedule_that_is_deleted_goes_on_where_its_state_is(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        cluster = stage.cluster
        await cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        (before,) = (await cluster.list(SCHEDULES)).items
        assert await cluster.delete(SCHEDULES, name_of(before), uid_of(before)) is None

        async def is_back() -> bool:
            there = (await cluster.list(SCHEDULES)).items
            return bool(there) and there[0]["spec"]["version"] > before["spec"]["version"]

        await stage.until(is_back)
        (after,) = (await cluster.list(SCHEDULES)).items
        assert [one["home"] for one in after["spec"]["shards"]] == [
            one["home"] for one in before["spec"]["shards"]
        ]
        assert not any(one.get("freshSince") for one in after["spec"]["shards"])
        assert uid_of(after) != uid_of(before)

        async def is_told() -> bool:
            return "ScheduleRebuilt" in {one["reason"] for one in (await cluster.list(EVENTS)).items}

        await stage.until(is_told)
        await stage.until_phase("Running")

    tell(nodes, story)


async def home_of(cluster: MemoryCluster) -> str:
    """The node whose store has all shards."""
    (schedule,) = (await cluster.list(SCHEDULES)).items
    (home,) = {one["home"] for one in schedule["spec"]["shards"]}
    return str(home)


async def remove_node(cluster: MemoryCluster, node: str) -> None:
    """Its object is deleted, and what ran there is removed by Kubernetes."""
    cluster.finish(NODES, node)
    for pod in (await cluster.list(PODS)).items:
        if pod["spec"].get("nodeName") == node:
            cluster.finish(PODS, name_of(pod))


def test_what_was_lost_with_a_node_begins_anew_on_another_one_once_that_is_accepted(
    nodes: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homeless, "GONE_AFTER_S", 0.5)

    async def story(stage: Stage, _: Replica) -> None:
        cluster = stage.cluster
        applied = await cluster.create(TOPOLOGIES, topology())
        assert isinstance(applied, dict)
        await stage.until_phase("Running")
        home = await home_of(cluster)
        (other,) = set(NODE_NAMES) - {home}
        await remove_node(cluster, home)

        async def is_told() -> bool:
            return bool((await stage.status()).get("lost"))

        await stage.until(is_told)
        (loss,) = await told_losses(cluster, "words")
        assert (loss.operator, loss.shards, loss.parts) == ("numbers", 4, "0-3")
        assert "emptyDir" in loss.why
        assert await home_of(cluster) == home
        await accept_losses(cluster, "words", [loss.id])

        async def is_whole() -> bool:
            (schedule,) = (await cluster.list(SCHEDULES)).items
            conditions = {one["type"]: one["status"] for one in (await stage.status())["conditions"]}
            return conditions["Ready"] == "True" and {one["id"] for one in schedule["spec"]["stores"]} == {
                other
            }

        await stage.until(is_whole)
        assert await home_of(cluster) == other
        store = nodes.open_store(other, uid_of(applied), Bounds())
        counters = store.call(Measure(tuple(f"numbers/{part}" for part in range(4))))
        assert [one is not None and life_of(one.epoch) for one in counters] == [1, 1, 1, 1]
        assert "lost" not in await stage.status()
        assert {one["reason"] for one in (await cluster.list(EVENTS)).items} >= {"StateLost", "LossAccepted"}

        async def is_removed() -> bool:
            return not any(home in name_of(one) for one in (await cluster.list(STATEFUL_SETS)).items)

        await stage.until(is_removed)

    tell(nodes, story)


def test_a_store_whose_node_is_gone_is_held_by_its_volume_alone(
    nodes: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homeless, "GONE_AFTER_S", 0.5)

    async def story(stage: Stage, _: Replica) -> None:
        cluster = stage.cluster
        await cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        home = await home_of(cluster)
        (other,) = set(NODE_NAMES) - {home}
        (stateful_set,) = [one for one in (await cluster.list(STATEFUL_SETS)).items if home in name_of(one)]
        claim = f"data-{name_of(stateful_set)}-0"
        zone = {"key": "zone", "operator": "In", "values": ["z1"]}
        affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
        cluster.put(VOLUME_CLAIMS, {"metadata": {"name": claim}, "spec": {"volumeName": "pv-1"}})
        cluster.put(VOLUMES, {"metadata": {"name": "pv-1"}, "spec": {"nodeAffinity": affinity}})
        left = await cluster.get(NODES, other)
        assert left is not None
        left["metadata"]["labels"]["zone"] = "z1"
        cluster.put(NODES, left)
        await remove_node(cluster, home)
        template = copy.deepcopy(stateful_set["spec"]["template"])
        pod = f"{name_of(stateful_set)}-0"
        template["metadata"]["name"] = pod
        template["metadata"]["labels"]["controller-revision-hash"] = "r1"
        stage.world.lazy_kubelets = True
        cluster.put(PODS, template)
        cluster.set_status(
            STATEFUL_SETS, name_of(stateful_set), {"observedGeneration": 99, "updateRevision": "r2"}
        )

        async def is_let_go() -> bool:
            held = await cluster.get(STATEFUL_SETS, name_of(stateful_set))
            is_free = held is not None and "affinity" not in held["spec"]["template"]["spec"]
            return is_free and await cluster.get(PODS, pod) is None

        await stage.until(is_let_go)
        template["spec"]["nodeName"] = other
        template["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
        cluster.put(PODS, template)
        stage.world.lazy_kubelets = False
        for worker in await stage.workers():
            if "nodeName" not in worker["spec"]:
                stage.world.run_pod(worker)

        async def goes_on() -> bool:
            return await home_of(cluster) == other

        await stage.until(goes_on)
        (schedule,) = (await cluster.list(SCHEDULES)).items
        assert not any(one.get("life") or one.get("freshSince") for one in schedule["spec"]["shards"])
        assert "lost" not in await stage.status()

    tell(nodes, story, volume="Claim")


def test_a_worker_that_is_deleted_is_made_again_and_scheduled_anew(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        await stage.cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        (before,) = await stage.workers()
        stage.cluster.finish(PODS, name_of(before))

        async def replaced() -> bool:
            (schedule,) = (await stage.cluster.list(SCHEDULES)).items
            uids = {one["uid"] for one in schedule["spec"]["workers"]}
            return bool(uids) and uids == {uid_of(pod) for pod in await stage.workers()} != {uid_of(before)}

        await stage.until(replaced)

    tell(nodes, story)


def test_a_topology_that_means_nothing_says_so_and_holds_up_no_other(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        stage.cluster.put(TOPOLOGIES, topology("huge", workers={"cores": {"min": "64", "max": "64"}}))
        await stage.cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        status = await stage.until_phase("Pending", "huge")
        told = " ".join(one["message"] for one in status["conditions"])
        assert "Insufficient cpu" in told

    tell(nodes, story)


def test_another_leader_goes_on_in_the_next_term(nodes: RedisBackend) -> None:
    async def told() -> None:
        stage = Stage(nodes)
        one, stop_one = stage.replica("one")
        first = asyncio.create_task(one.run(stop_one))
        await stage.cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        (worker,) = await stage.workers()
        two, stop_two = stage.replica("two")
        second = asyncio.create_task(two.run(stop_two))
        stop_one.set()
        assert await first == EXIT_STOPPED

        async def led() -> bool:
            lease = await stage.cluster.get(LEASES, "pen-operator")
            return lease is not None and lease["spec"]["holderIdentity"] == "two-start"

        await stage.until(led)
        edited = await stage.cluster.get(TOPOLOGIES, "words")
        assert edited is not None
        edited["spec"]["operators"][0]["tasks"] = {"initial": 1}
        await stage.cluster.replace(TOPOLOGIES, edited)

        async def rewritten() -> bool:
            (schedule,) = (await stage.cluster.list(SCHEDULES)).items
            return int(schedule["spec"]["term"]) == 2

        await stage.until(rewritten)
        assert [uid_of(pod) for pod in await stage.workers()] == [uid_of(worker)]
        stop_two.set()
        assert await second == EXIT_STOPPED

    try:
        run(told())
    finally:
        nodes.empty()


def test_a_leader_that_finds_a_later_term_in_a_schedule_ends_as_one_that_lost_its_lease(
    nodes: RedisBackend,
) -> None:
    async def told() -> None:
        stage = Stage(nodes)
        replica, stop = stage.replica("one")
        running = asyncio.create_task(replica.run(stop))
        await stage.cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        (schedule,) = (await stage.cluster.list(SCHEDULES)).items
        schedule["spec"]["term"] = 7
        assert isinstance(await stage.cluster.replace(SCHEDULES, schedule), dict)
        edited = await stage.cluster.get(TOPOLOGIES, "words")
        assert edited is not None
        edited["spec"]["operators"][0]["tasks"] = {"initial": 1}
        await stage.cluster.replace(TOPOLOGIES, edited)
        assert await running == EXIT_LEASE_LOST

    try:
        run(told())
    finally:
        nodes.empty()


def test_a_leader_of_an_earlier_term_than_the_stores_have_seen_ends_and_is_followed_in_a_later_one(
    nodes: RedisBackend,
) -> None:
    """An older state of the cluster was restored: Schedules and the Lease are of earlier days."""

    async def told() -> None:
        stage = Stage(nodes)
        cluster = stage.cluster
        replica, stop = stage.replica("one")
        running = asyncio.create_task(replica.run(stop))
        await cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        (before,) = (await cluster.list(SCHEDULES)).items
        (home,) = {one["home"] for one in before["spec"]["shards"]}
        memory = ScheduleMemory(nodes.open_wire(home))
        memory.keep({name_of(before): {**before, "spec": {**before["spec"], "version": 40, "term": 9}}})
        memory.close()
        assert await cluster.delete(SCHEDULES, name_of(before), uid_of(before)) is None
        assert await running == EXIT_LEASE_LOST
        replica, stop = stage.replica("two")
        running = asyncio.create_task(replica.run(stop))

        async def is_back() -> bool:
            there = (await cluster.list(SCHEDULES)).items
            return bool(there) and (there[0]["spec"]["term"], there[0]["spec"]["version"]) == (10, 41)

        await stage.until(is_back)
        stop.set()
        assert await running == EXIT_STOPPED

    try:
        run(told())
    finally:
        nodes.empty()


def test_health_and_metrics_are_told_over_http(nodes: RedisBackend) -> None:
    async def story(stage: Stage, replica: Replica) -> None:
        def fetch(path: str) -> tuple[int, str]:
            with urllib.request.urlopen(f"http://127.0.0.1:{stage.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()

        await stage.cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        status, text = await asyncio.to_thread(fetch, "/healthz")
        assert (status, json.loads(text)["role"]) == (200, "leader")
        assert (await asyncio.to_thread(fetch, "/readyz"))[0] == 200
        _, text = await asyncio.to_thread(fetch, "/metrics")
        assert "penstock_operator_leader 1.0" in text
        assert 'penstock_operator_topologies{phase="Running"} 1.0' in text
        assert 'penstock_operator_actions_total{action="CreatePod",outcome="done"} 1.0' in text
        assert replica.health().fault == ""

    tell(nodes, story)


def hang(monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster, method: str, kind: Kind) -> asyncio.Event:
    """From now on the method's calls about one kind have no answer, until the event is set."""
    let_go = asyncio.Event()
    answering = getattr(cluster, method)

    async def called(about: Kind, *arguments: Any) -> Any:
        if about == kind:
            await let_go.wait()
        return await answering(about, *arguments)

    monkeypatch.setattr(cluster, method, called)
    return let_go


async def until_told(replica: Replica, holds: Callable[[str], bool]) -> None:
    """Wait until what the replica says of its health is so."""
    async with asyncio.timeout(30):
        while not holds(replica.health().fault):
            await asyncio.sleep(0.02)


def test_a_loop_that_comes_to_no_end_makes_the_replica_unhealthy(
    nodes: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_operator.cluster.reconcile.STALLED_S", 1.0)
    monkeypatch.setattr("penstock_operator.cluster.reconcile._LOOK_S_MAX", 0.1)

    async def story(stage: Stage, replica: Replica) -> None:
        await stage.cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        let_go = hang(monkeypatch, stage.cluster, "apply_status", TOPOLOGIES)
        edited = await stage.cluster.get(TOPOLOGIES, "words")
        assert edited is not None
        edited["spec"]["paused"] = True
        assert isinstance(await stage.cluster.replace(TOPOLOGIES, edited), dict)
        await until_told(replica, lambda fault: "the loop of topology words has not ended a turn" in fault)
        with pytest.raises(HTTPError) as answer:
            await asyncio.to_thread(
                urllib.request.urlopen, f"http://127.0.0.1:{stage.port}/healthz", timeout=5
            )
        assert answer.value.code == 503
        assert "topology words" in json.loads(answer.value.read())["fault"]
        let_go.set()
        await until_told(replica, lambda fault: not fault)

    tell(nodes, story)


def test_a_standby_that_tries_for_the_lease_no_longer_is_unhealthy(
    nodes: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_operator.cluster.main.STALLED_S", 0.1)

    async def story(stage: Stage, replica: Replica) -> None:
        hang(monkeypatch, stage.cluster, "get", LEASES)
        await until_told(replica, lambda fault: "the Lease has not been tried" in fault)
        assert replica.health().role == "standby"

    tell(nodes, story)


def test_a_leader_whose_loop_comes_round_no_more_gives_up_the_lease_and_is_ended(
    nodes: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_operator.cluster.main.HUNG_S", 3.0)
    monkeypatch.setattr("penstock_operator.cluster.main._END_WITHIN_S", 0.01)
    leases = MemoryCluster(clock_s=time.time, namespace=NAMESPACE)
    lease_runs = LoopThread("lease")
    ended: SimpleQueue[int] = SimpleQueue()

    async def told() -> None:
        stage = Stage(nodes)
        replica, stop = stage.replica(
            "one",
            lease_cluster=leases,
            lease_runs=lease_runs,
            lease_times=LeaseTimes(duration_s=15.0, renew_deadline_s=2.0, retry_s=0.1),
            end=ended.put,
        )
        running = asyncio.create_task(replica.run(stop))
        await stage.cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        # Nothing else runs in this loop meanwhile.
        assert ended.get(timeout=30) == EXIT_LEASE_LOST
        assert not replica.elector.may_act()
        assert await running == EXIT_LEASE_LOST

    try:
        run(told())
    finally:
        lease_runs.stop()
        nodes.empty()


def test_an_api_server_that_is_away_for_a_while_costs_nothing(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        await stage.cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        before = [uid_of(pod) for pod in await stage.workers()]
        stage.cluster.is_away = True
        await asyncio.sleep(1.5)
        stage.cluster.is_away = False
        node = next(one for one in (await stage.cluster.list(NODES)).items if name_of(one) == "n2")
        stage.cluster.put(NODES, {**node, "spec": {"unschedulable": True}})
        await stage.until_phase("Running")
        assert [uid_of(pod) for pod in await stage.workers()] == before

    tell(nodes, story)


def test_a_write_that_is_never_taken_is_told_on_the_topology(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        stage.cluster.forbidden = {DISRUPTION_BUDGETS}
        await stage.cluster.create(TOPOLOGIES, topology())

        async def told() -> bool:
            reasons = [one["reason"] for one in (await stage.cluster.list(EVENTS)).items]
            return reasons.count("WriteRefused") == 1 and "phase" in await stage.status()

        await stage.until(told)
        stage.cluster.forbidden = set()
        await stage.until_phase("Running")

    tell(nodes, story)


def test_a_latency_sla_that_cannot_be_kept_says_so_on_itself(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        def sla(name: str, topology_name: str) -> Object:
            return {
                "apiVersion": LATENCY_SLAS.api_version,
                "kind": LATENCY_SLAS.kind,
                "metadata": {"name": name},
                "spec": {"topology": topology_name, "latency": "250ms"},
            }

        async def reason(name: str) -> str:
            found = await stage.cluster.get(LATENCY_SLAS, name) or {}
            conditions = (found.get("status") or {}).get("conditions") or []
            return next((one["reason"] for one in conditions if one["type"] == "Ready"), "")

        await stage.cluster.create(TOPOLOGIES, topology())
        await stage.until_phase("Running")
        await stage.cluster.create(LATENCY_SLAS, sla("lost", "no-such"))
        await stage.cluster.create(LATENCY_SLAS, sla("keyless", "words"))

        async def told() -> bool:
            return (await reason("lost"), await reason("keyless")) == ("TopologyMissing", "Invalid")

        async def events() -> list[Object]:
            of_all = (await stage.cluster.list(EVENTS)).items
            return [one for one in of_all if one["regarding"]["name"] == "lost"]

        async def has_events() -> bool:
            return bool(await events())

        await stage.until(told)
        await stage.until(has_events)
        (event, *_) = await events()
        assert (event["type"], event["reason"]) == ("Warning", "TopologyMissing")
        assert event["regarding"]["kind"] == "LatencySLA"

    tell(nodes, story)
