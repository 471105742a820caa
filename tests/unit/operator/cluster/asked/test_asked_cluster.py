"""Which Topology, which workers, and who asks: what a user's command reads and writes in a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.api.schedule_object import to_spec
from penstock.errors import PermanentError
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock_operator.cluster.asked.asked_cluster import seen_topology, write_asked
from penstock_operator.cluster.asked.reached import is_ready, runs, workers_of
from penstock_operator.cluster.asked.worker_logs import workers_with
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_ACCEPT_LOSS, ANNOTATION_ASKED
from penstock_operator.cluster.kubernetes_api.pod_access import how_it_ended
from penstock_operator.cluster.kubernetes_api.port import PODS, SCHEDULES, TOPOLOGIES, Kind, Object, Refusal
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds import cluster_objects as objects
from worlds.cluster_world import manifest

LABELS = {"penstock.dev/topology": "words", "app.kubernetes.io/component": "worker"}


def schedule(operator: str, uid: str, *workers: str) -> Object:
    """One shard of the operator on each worker; the last one has no task."""
    record = OperatorSchedule(
        operator,
        1,
        1,
        tuple(WorkerPlace(name, "a", "host", "u") for name in workers),
        tuple(ExecutorPlace(f"{operator}-{name}", name, int(name != workers[-1])) for name in workers),
        {f"{operator}/{n}": ShardPlace(f"{operator}-{name}", "a") for n, name in enumerate(workers)},
        (StorePlace("a", "a", "store-a:6379"),),
    )
    head = {"apiVersion": SCHEDULES.api_version, "kind": SCHEDULES.kind}
    metadata = {"name": f"words-{operator}-{uid}", "labels": {"penstock.dev/topology": "words"}}
    return {**head, "metadata": metadata, "spec": to_spec(record, "words", uid)}


async def words(*schedules: Object, phase: str = "Running") -> MemoryCluster:
    cluster = MemoryCluster(lambda: 0.0, "streams")
    document = manifest()
    del document["metadata"]["uid"]
    await cluster.create(TOPOLOGIES, document)
    cluster.set_status(TOPOLOGIES, "words", {"phase": phase, "stateUid": "state"})
    for one in schedules:
        await cluster.create(SCHEDULES, one)
    return cluster


async def annotations(cluster: MemoryCluster) -> dict[str, str]:
    found = await cluster.get(TOPOLOGIES, "words")
    assert found is not None
    return dict(found["metadata"].get("annotations") or {})


def test_a_topology_is_seen_by_the_schedules_of_its_own_state() -> None:
    async def play() -> None:
        cluster = await words(
            schedule("lines", "state", "w0", "w1"),
            schedule("count", "state", "w1", "w2"),
            schedule("count", "retained", "w9", "w9b"),
        )
        seen = await seen_topology(cluster, "words")
        assert seen.opening.homes == {"lines/0": "a", "lines/1": "a", "count/0": "a", "count/1": "a"}
        assert seen.opening.stores == {"a": "store-a:6379"}
        assert (seen.opening.topology_uid, seen.phase) == ("state", "Running")
        fused = next(iter(seen.plan.stage("lines").out.fused))
        assert workers_with(seen, "lines") == workers_with(seen, fused) == {"w0"}
        assert workers_with(seen, "count") == {"w1"}
        with pytest.raises(PermanentError, match="there is no operator 'counts'; there are lines"):
            workers_with(seen, "counts")

    asyncio.run(play())


def test_a_topology_that_has_not_begun_or_is_none_is_told() -> None:
    async def play() -> None:
        cluster = await words(phase="Pending")
        with pytest.raises(PermanentError, match="Topology words has not begun"):
            await seen_topology(cluster, "words")
        with pytest.raises(PermanentError, match="no Topology word in namespace streams"):
            await seen_topology(cluster, "word")

    asyncio.run(play())


def test_workers_are_told_apart_by_whether_they_run_and_are_ready() -> None:
    async def play() -> None:
        cluster = await words()
        states: dict[str, dict[str, Any]] = {
            "w0": {"ready": True, "state": {"running": {}}},
            "w1": {"ready": False, "state": {"running": {}}},
            "w2": {"ready": False, "state": {"waiting": {"reason": "ContainerCreating"}}},
        }
        for name, state in states.items():
            await cluster.create(PODS, objects.pod(name, **LABELS))
            cluster.set_status(PODS, name, {"containerStatuses": [{"name": "worker", **state}]})
        await cluster.create(PODS, objects.pod("other", **{**LABELS, "penstock.dev/topology": "others"}))
        pods = await workers_of(cluster, "words")
        assert [(runs(pod), is_ready(pod)) for pod in pods] == [(True, True), (True, False), (False, False)]
        leaving = {**pods[0], "metadata": {**pods[0]["metadata"], "deletionTimestamp": "now"}}
        assert not runs(leaving)

    asyncio.run(play())


class OthersWrite(MemoryCluster):
    """Somebody changes the Topology before each of the first writes."""

    others = 2

    async def replace(self, kind: Kind, changed: Object) -> Object | Refusal:
        if self.others:
            type(self).others -= 1
            self.set_status(TOPOLOGIES, "words", {"phase": f"Changed{self.others}"})
        return await super().replace(kind, changed)


def test_who_asks_puts_a_note_on_the_topology_and_takes_no_other_one_off() -> None:
    async def play() -> None:
        cluster = OthersWrite(lambda: 0.0, "streams")
        document = manifest()
        del document["metadata"]["uid"]
        document["metadata"]["annotations"] = {ANNOTATION_ACCEPT_LOSS: "count-1"}
        await cluster.create(TOPOLOGIES, document)
        before = await cluster.get(TOPOLOGIES, "words")
        await write_asked(cluster, "words", "mine")
        assert await annotations(cluster) == {ANNOTATION_ACCEPT_LOSS: "count-1", ANNOTATION_ASKED: "mine"}
        await write_asked(cluster, "words", None, only="another's")
        assert (await annotations(cluster))[ANNOTATION_ASKED] == "mine"
        await write_asked(cluster, "words", None, only="mine")
        assert await annotations(cluster) == {ANNOTATION_ACCEPT_LOSS: "count-1"}
        after = await cluster.get(TOPOLOGIES, "words")
        assert before is not None
        assert after is not None
        assert after["spec"] == before["spec"]
        await write_asked(cluster, "gone", "mine")

    asyncio.run(play())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b'{"status":"Success"}', ""),
        (b'{"status":"Failure","message":"exit status 1"}', "exit status 1"),
        (b'{"status":"Failure","reason":"InternalError"}', "InternalError"),
        (b"torn", "torn"),
    ],
)
def test_how_a_process_in_a_pod_ended_is_told_in_words(said: bytes, told: str) -> None:
    assert how_it_ended(said) == told
