from __future__ import annotations

from typing import Any

import pytest

from penstock.api.operator_config import OperatorConfig
from penstock_operator.cluster.kubernetes_api.quantities import millis, whole
from penstock_operator.cluster.manifests.node_store import node_store
from penstock_operator.cluster.observing.observe import (
    Request,
    observe_node,
    observe_pod,
    observe_schedule,
    observe_store,
    observe_topology,
    requested,
    requests_by_node,
)
from penstock_operator.cluster.observing.observed import ObservedStore, Resize, Taint
from worlds import cluster_objects as objects
from worlds.operator_world import operator_config

Object = dict[str, Any]
NODES = ("n1", "n2")
GIB = 1 << 30


def pod(status: Object | None = None, **spec: Any) -> Object:
    resources = {"requests": {"cpu": "1500m", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
    container = {"name": "worker", "resources": resources}
    return {
        "metadata": {
            "name": "words-w0",
            "uid": "u-1",
            "labels": {"penstock.dev/node": "n2"},
            "annotations": {"penstock.dev/template": "abcd"},
        },
        "spec": {"containers": [container], **spec},
        "status": status or {},
    }


@pytest.mark.parametrize(
    ("text", "of_cpu", "of_bytes"),
    [("1", 1000, 1), ("100m", 100, 1), ("0.5", 500, 1), ("1n", 1, 1), ("2e3", 2_000_000, 2000)],
)
def test_quantities_are_rounded_up_as_kubernetes_does(text: str, of_cpu: int, of_bytes: int) -> None:
    assert (millis(text), whole(text)) == (of_cpu, of_bytes)


def test_units_of_memory_are_of_1000_or_1024() -> None:
    assert [whole(text) for text in ("1k", "1Ki", "3M", "2Gi", "1.5Gi")] == [
        1000,
        1024,
        3_000_000,
        2 * GIB,
        3 * GIB // 2,
    ]
    with pytest.raises(ValueError, match="no quantity"):
        whole("much")


def test_a_pod_that_is_not_bound_is_where_it_is_pinned() -> None:
    seen = observe_pod(pod(), NODES)
    assert (seen.node, seen.is_bound, seen.ready, seen.phase) == ("n2", False, False, "Pending")
    assert (seen.cpu_request_millis, seen.cpu_limit_millis, seen.memory_limit_bytes) == (1500, 2000, 2 * GIB)
    assert seen.template_hash == "abcd"


def test_a_running_pod_says_where_and_that_it_is_ready() -> None:
    status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
    seen = observe_pod(pod(status, nodeName="n1"), NODES)
    assert (seen.node, seen.is_bound, seen.ready, seen.host, seen.reason) == (
        "n1",
        True,
        True,
        "10.0.0.7",
        "",
    )


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
                ]
            },
            "Unschedulable",
        ),
        (
            {
                "containerStatuses": [
                    {"name": "worker", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "x"}}}
                ]
            },
            "ImagePullBackOff",
        ),
        (
            {
                "containerStatuses": [
                    {"name": "worker", "state": {"waiting": {"reason": "ContainerCreating"}}}
                ]
            },
            "",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "worker",
                        "state": {"running": {}},
                        "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
                    }
                ]
            },
            "OOMKilled",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "Evicted"),
    ],
)
def test_why_a_pod_does_not_run_is_told(status: Object, reason: str) -> None:
    assert observe_pod(pod(status), NODES).reason == reason


@pytest.mark.parametrize(
    ("type_", "reason", "resize"),
    [
        ("PodResizePending", "Deferred", Resize.DEFERRED),
        ("PodResizePending", "Infeasible", Resize.INFEASIBLE),
        ("PodResizeInProgress", "", Resize.IN_PROGRESS),
        ("PodResizeInProgress", "Error", Resize.ERROR),
    ],
)
def test_how_a_resize_stands_is_read_from_the_conditions(type_: str, reason: str, resize: Resize) -> None:
    status = {"conditions": [{"type": type_, "status": "True", "reason": reason}]}
    assert observe_pod(pod(status), NODES).resize is resize


def test_a_request_counts_sidecars_and_the_largest_first_step() -> None:
    def asks(cpu: str, memory: str, **more: Any) -> Object:
        return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}

    together = {
        "spec": {
            "containers": [asks("1", "1Gi"), asks("500m", "1Gi")],
            "initContainers": [asks("4", "1Gi"), asks("250m", "1Gi", restartPolicy="Always")],
            "overhead": {"cpu": "10m"},
        }
    }
    assert requested(together) == Request(4010, 3 * GIB)


def test_a_pod_that_is_being_made_smaller_counts_what_it_still_has() -> None:
    status = {"containerStatuses": [{"name": "worker", "allocatedResources": {"cpu": "3", "memory": "2Gi"}}]}
    assert requested(pod(status)) == Request(3000, 2 * GIB)


def test_only_bound_pods_that_have_not_ended_take_room() -> None:
    pods = [
        pod({"phase": "Running"}, nodeName="n1"),
        pod({"phase": "Succeeded"}, nodeName="n1"),
        pod({"phase": "Pending"}),
    ]
    assert requests_by_node(pods) == {"n1": (Request(1500, 2 * GIB),)}


def test_a_node_says_what_is_free_and_whether_it_takes_pods() -> None:
    node = {
        "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "host-1"}},
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "3920m", "memory": "8Gi", "pods": "58"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    seen = observe_node(node, [Request(100, GIB), Request(200, GIB)])
    assert (seen.ready, seen.schedulable, seen.hostname, seen.taints) == (
        True,
        False,
        "host-1",
        (Taint("k", "", "NoSchedule"),),
    )
    assert (seen.cpu_allocatable_millis, seen.cpu_requested_millis, seen.pods, seen.pods_allocatable) == (
        3920,
        300,
        2,
        58,
    )


def test_a_store_is_ready_with_its_pod_and_is_called_as_its_node() -> None:
    node = "a-node-with-a-very-long-name-that-does-not-fit-into-a-label-at-all.example"
    stateful_set = node_store(node, node, operator_config(8080))
    stateful_set["metadata"]["uid"] = "u-9"
    store_pod = {
        "metadata": {"name": "x", "uid": "u-10"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    seen = observe_store(stateful_set, store_pod, (), operator_config(8080))
    assert (seen.id, seen.ready, seen.durability, seen.has_pvc) == (node, True, "Process", False)
    assert seen.template_hash
    leaving = {**store_pod, "metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert not observe_store(stateful_set, leaving, (), operator_config(8080)).ready
    assert not observe_store(stateful_set, None, (), operator_config(8080)).ready


def test_a_topology_is_read_with_a_status_and_with_fields_of_other_writers() -> None:
    manifest = objects.topology()
    manifest["metadata"] |= {"uid": "u-1", "generation": 3, "generateName": "words-", "selfLink": "x"}
    manifest["status"] = {"unknown": True}
    seen = observe_topology(manifest)
    assert seen.plan is not None
    assert (seen.generation, seen.faults) == (3, ())


def test_a_topology_that_means_nothing_has_its_faults() -> None:
    manifest = objects.topology()
    manifest["metadata"]["uid"] = "u-1"
    manifest["spec"]["operators"][1]["inputs"] = ["nobody"]
    seen = observe_topology(manifest)
    assert seen.topology is None
    assert any("nobody" in fault for fault in seen.faults)


def test_a_schedule_says_whose_it_is_and_what_agents_applied() -> None:
    thing = objects.schedule(
        workers=[{"name": "w0", "node": "n1", "host": "n1", "uid": "u-w0"}],
        executors=[{"name": "numbers-w0", "worker": "w0", "node": "n1", "tasks": 2}],
        shards=[{"executor": "numbers-w0", "home": "n1", "ranges": ["0-3"], "freshSince": 1}],
        stores=[{"id": "n1", "node": "n1", "address": "x:6379"}],
    )
    owner = {"kind": "Topology", "uid": "u-topology", "name": "words"}
    thing["metadata"] |= {"uid": "u-s", "resourceVersion": "7", "ownerReferences": [owner]}
    thing["status"] = {"applied": [{"node": "n1", "version": 1, "generation": 4}]}
    seen = observe_schedule(thing)
    assert (seen.owner_uid, seen.topology_uid, seen.resource_version) == ("u-topology", "u-1", "7")
    assert seen.schedule.tasks == 2
    assert (seen.applied[0].store, seen.applied[0].generation) == ("n1", 4)


def test_a_store_is_outdated_once_its_controller_knows_of_a_newer_template() -> None:
    stateful_set = node_store("n1", "n1", operator_config(8080))
    stateful_set["metadata"] |= {"uid": "u-9", "generation": 2}
    pod = {"metadata": {"name": "x", "uid": "u-10", "labels": {"controller-revision-hash": "r1"}}}

    def outdated(**status: object) -> bool:
        seen = observe_store({**stateful_set, "status": status}, pod, (), operator_config(8080))
        return seen.is_outdated

    assert outdated(observedGeneration=2, updateRevision="r2")
    assert not outdated(observedGeneration=2, updateRevision="r1")
    assert not outdated(observedGeneration=1, updateRevision="r2")
    assert not outdated()
    leaving = {"metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    status = {"observedGeneration": 2, "updateRevision": "r2"}
    seen = observe_store({**stateful_set, "status": status}, leaving, (), operator_config(8080))
    assert (seen.is_outdated, seen.pod_uid) == (False, "")


def test_a_store_whose_agent_follows_no_further_namespaces_is_not_ready_for_their_topologies() -> None:
    plain, config = operator_config(1), operator_config(1, namespaces=["team-a"])
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}

    def seen(of: OperatorConfig) -> ObservedStore:
        template = node_store("n1", "n1", of)["spec"]["template"]
        pod = {**template, "metadata": {"name": "pen-store-n1-0", "uid": "uid-1"}, "status": ready}
        held = node_store("n1", "n1", config)
        held["metadata"] |= {"uid": "uid-s"}
        return observe_store(held, pod, ["n1"], config)

    before, after = seen(plain), seen(config)
    assert before.ready
    assert not before.for_others().ready
    assert "does not follow further namespaces yet" in before.for_others().message
    assert after.for_others() is after
    assert after.ready
