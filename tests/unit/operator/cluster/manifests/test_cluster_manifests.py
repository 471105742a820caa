"""What the operator makes of a Topology: worker pods, plan, template, budget, Schedules, names."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from penstock.api.load import parse_manifest
from penstock.api.topology import Topology
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock_operator.cluster.kubernetes_api.names import (
    STATEFUL_SET_LENGTH_MAX,
    fitted,
    label_value,
    store_name,
    worker_index,
    worker_name,
)
from penstock_operator.cluster.manifests.disruption_budget import disruption_budget
from penstock_operator.cluster.manifests.node_store import node_store
from penstock_operator.cluster.manifests.plan_config_map import plan_config_map
from penstock_operator.cluster.manifests.pod_parts import pinned_to
from penstock_operator.cluster.manifests.schedule_object import schedule_object
from penstock_operator.cluster.manifests.template import template_hash, workers_manifest
from penstock_operator.cluster.manifests.worker_pod import WorkerPod, worker_pod
from worlds.cluster_world import CONFIG, manifest, read_topology
from worlds.manifest_parts import CONTAINER_SECURITY, PIN_A, POD_SECURITY, STAYS, http

OWNER = [
    {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Topology",
        "name": "words",
        "uid": "uid-words",
        "controller": True,
        "blockOwnerDeletion": True,
    }
]


def topology(**changes: Any) -> Topology:
    read = read_topology(manifest(**changes)).topology
    assert read is not None
    return read


def pod(spec: Topology, operator: str = "") -> dict[str, Any]:
    worker = WorkerPod("words-w0", "node-a", "a", 1500, 4000, operator)
    return worker_pod(worker, spec, "uid-words", "uid-state", "0123abcd", CONFIG)


def test_a_worker_pod_is_this() -> None:
    assert pod(topology()) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "words-w0",
            "namespace": "streams",
            "labels": {
                "app.kubernetes.io/name": "penstock",
                "app.kubernetes.io/component": "worker",
                "app.kubernetes.io/managed-by": "penstock-operator",
                "penstock.dev/topology": "words",
                "penstock.dev/worker": "words-w0",
                "penstock.dev/node": "node-a",
            },
            "annotations": {"penstock.dev/template": "0123abcd"},
            "ownerReferences": OWNER,
        },
        "spec": {
            "affinity": PIN_A,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "worker",
                    "image": "pen/worker:1",
                    "imagePullPolicy": "IfNotPresent",
                    "args": ["python", "-m", "penstock_worker"],
                    "env": [
                        {"name": "PENSTOCK_TOPOLOGY_UID", "value": "uid-state"},
                        {"name": "PENSTOCK_MANIFEST", "value": "/etc/penstock/topology/topology.yaml"},
                        {"name": "PENSTOCK_BASE_DIR", "value": "/etc/penstock/code"},
                        {
                            "name": "PENSTOCK_STORE_URL",
                            "value": "redis://worker-uid-state@pen-store-local.streams.svc:6379",
                        },
                        {
                            "name": "PENSTOCK_STORE_PASSWORD_FILE",
                            "value": "/etc/penstock/store/worker-password",
                        },
                        {"name": "PENSTOCK_METRICS_PORT", "value": "9090"},
                        {
                            "name": "PENSTOCK_WORKER",
                            "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                        },
                        {
                            "name": "PENSTOCK_POD_UID",
                            "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}},
                        },
                        {"name": "PENSTOCK_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                        {
                            "name": "PENSTOCK_STORE_ID",
                            "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
                        },
                        {
                            "name": "PENSTOCK_TEMPLATE",
                            "valueFrom": {
                                "fieldRef": {"fieldPath": "metadata.annotations['penstock.dev/template']"}
                            },
                        },
                    ],
                    "ports": [{"name": "metrics", "containerPort": 9090}],
                    "startupProbe": http("/healthz", 1, 2, 180),
                    "readinessProbe": http("/ready", 1, 2, 3),
                    "livenessProbe": http("/healthz", 10, 5, 6),
                    "resources": {
                        "requests": {"cpu": "1500m", "memory": "1Gi"},
                        "limits": {"cpu": "4000m", "memory": "1Gi"},
                    },
                    "resizePolicy": [
                        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
                        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
                    ],
                    "securityContext": CONTAINER_SECURITY,
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [
                        {
                            "name": "penstock-topology",
                            "mountPath": "/etc/penstock/topology",
                            "readOnly": True,
                        },
                        {"name": "penstock-store", "mountPath": "/etc/penstock/store", "readOnly": True},
                        {"name": "penstock-tmp", "mountPath": "/tmp"},
                        {"name": "penstock-run", "mountPath": "/var/run/penstock"},
                        {"name": "penstock-code", "mountPath": "/etc/penstock/code", "readOnly": True},
                    ],
                }
            ],
            "enableServiceLinks": False,
            "restartPolicy": "Always",
            "securityContext": POD_SECURITY,
            "terminationGracePeriodSeconds": 30,
            "tolerations": STAYS,
            "volumes": [
                {"name": "penstock-topology", "configMap": {"name": "words-plan-0123abcd"}},
                {
                    "name": "penstock-store",
                    "secret": {
                        "secretName": "pen-store-workers",
                        "items": [{"key": "uid-state", "path": "worker-password"}],
                        "defaultMode": 0o440,
                    },
                },
                {"name": "penstock-tmp", "emptyDir": {"sizeLimit": "2Gi"}},
                {"name": "penstock-run", "emptyDir": {}},
                {"name": "penstock-code", "configMap": {"name": "words-code"}},
            ],
        },
    }


USER_POD = {
    "env": [
        {"name": "MODE", "value": "fast"},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "api"}}},
    ],
    "envFrom": [{"secretRef": {"name": "more"}, "prefix": "MORE_"}],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "texts"}},
        {"name": "scratch", "emptyDir": {}},
    ],
    "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
    "tolerations": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
    "nodeSelector": {"disk": "fast"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]},
                    {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
                ]
            }
        }
    },
    "imagePullSecrets": [{"name": "hub"}],
    "labels": {"team": "a"},
    "annotations": {"note": "b"},
}


def test_the_users_pod_settings_stand_beside_the_operators_own() -> None:
    plain, mine = pod(topology()), pod(topology(spec__pod=USER_POD, spec__image="team/words:2"))
    spec, container = mine["spec"], mine["spec"]["containers"][0]
    assert container["image"] == "team/words:2"
    assert container["env"] == [*USER_POD["env"], *plain["spec"]["containers"][0]["env"]]  # type: ignore[misc]
    assert container["envFrom"] == USER_POD["envFrom"]
    assert container["volumeMounts"][0] == USER_POD["volumeMounts"][0]  # type: ignore[index]
    assert spec["volumes"][:2] == USER_POD["volumes"]
    assert spec["tolerations"] == [*USER_POD["tolerations"], *STAYS]  # type: ignore[misc]
    assert spec["nodeSelector"] == {"disk": "fast"}
    assert spec["imagePullSecrets"] == [{"name": "hub"}]
    assert mine["metadata"]["labels"] == {"team": "a", **plain["metadata"]["labels"]}
    assert mine["metadata"]["annotations"] == {"note": "b", **plain["metadata"]["annotations"]}
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    pin = PIN_A["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    for term in required["nodeSelectorTerms"]:
        assert term["matchExpressions"][-1] == pin["matchExpressions"][0]
    assert len(required["nodeSelectorTerms"]) == 2


def test_a_topology_may_say_how_much_is_written_below_tmp_and_name_a_service_account() -> None:
    plain = pod(topology())["spec"]
    assert "serviceAccountName" not in plain
    assert plain["automountServiceAccountToken"] is False
    spec = pod(topology(spec__pod={"tmpSize": "10Gi", "serviceAccountName": "reader"}))["spec"]
    (tmp,) = (volume for volume in spec["volumes"] if volume["name"] == "penstock-tmp")
    assert tmp["emptyDir"] == {"sizeLimit": "10Gi"}
    assert spec["serviceAccountName"] == "reader"
    assert spec["automountServiceAccountToken"] is True


def test_user_and_groups_of_pods_are_left_to_a_platform_that_gives_them() -> None:
    config = CONFIG.model_copy(update={"any_user": True})
    given = {name: value for name, value in POD_SECURITY.items() if not name.endswith(("User", "Group"))}
    worker = WorkerPod("words-w0", "node-a", "a", 1500, 4000)
    made = worker_pod(worker, topology(), "uid-words", "uid-state", "0123abcd", config)
    assert made["spec"]["securityContext"] == given
    store = node_store("node-a", "a", config)
    assert store["spec"]["template"]["spec"]["securityContext"] == given


def test_an_executor_pod_says_which_operator_it_is_for() -> None:
    assert pod(topology(), "count")["metadata"]["labels"]["penstock.dev/operator"] == "count"


def test_code_from_the_image_needs_no_code_volume() -> None:
    document = pod(topology(spec__code={"module": "words"}))
    names = [volume["name"] for volume in document["spec"]["volumes"]]
    env = {entry["name"]: entry.get("value") for entry in document["spec"]["containers"][0]["env"]}
    assert "penstock-code" not in names
    assert env["PENSTOCK_BASE_DIR"] == "/app"


def test_secrets_that_sources_name_are_mounted_where_they_are_read() -> None:
    kafka = {
        "bootstrapServers": "kafka:9092",
        "topics": ["orders"],
        "value": {"format": "string"},
        "security": {"protocol": "SaslSsl", "mechanism": "Plain", "credentials": {"secret": "login"}},
    }
    document = manifest()
    document["spec"]["operators"][0]["source"] = {"kafka": kafka}
    read = read_topology(document).topology
    assert read is not None
    spec = pod(read)["spec"]
    (container,) = spec["containers"]
    assert {"name": "PENSTOCK_SECRETS", "value": "/etc/penstock/secrets"} in container["env"]
    assert spec["volumes"][-1] == {
        "name": "penstock-secret-0",
        "secret": {"secretName": "login", "defaultMode": 0o440},
    }
    assert container["volumeMounts"][-1] == {
        "name": "penstock-secret-0",
        "mountPath": "/etc/penstock/secrets/login",
        "readOnly": True,
    }


def test_pinning_keeps_what_else_the_affinity_says() -> None:
    mine = {"podAntiAffinity": {"x": 1}, "nodeAffinity": {"preferred": []}}
    kept = copy.deepcopy(mine)
    pinned = pinned_to("a", mine)
    assert pinned["podAntiAffinity"] == {"x": 1}
    assert pinned["nodeAffinity"]["preferred"] == []
    assert mine == kept


def test_a_plans_config_map_holds_the_topology_as_workers_read_it() -> None:
    document = plan_config_map(topology(), "uid-words", "streams", "0123abcd")
    text = document["data"].pop("topology.yaml")
    assert document == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "words-plan-0123abcd",
            "namespace": "streams",
            "labels": {
                "app.kubernetes.io/name": "penstock",
                "app.kubernetes.io/component": "plan",
                "app.kubernetes.io/managed-by": "penstock-operator",
                "penstock.dev/topology": "words",
            },
            "ownerReferences": OWNER,
        },
        "immutable": True,
        "data": {},
    }
    again = parse_manifest(text, runtime="cluster").topology
    assert workers_manifest(again) == workers_manifest(topology()) == yaml.safe_load(text)
    assert again.spec.operators[2].shards == 8
    assert again.spec.durability == "Process"


SCALE_EDITS: list[dict[str, Any]] = [
    {"spec__workers__min": 1},
    {"spec__workers__max": 9},
    {"spec__workers__warm": 2},
    {"spec__workers__cores": {"min": "1", "max": "2"}},
    {"spec__operators__2__tasks": {"min": 5}},
    {"spec__taskCpu": "200m"},
    {"spec__priority": 7},
    {"spec__paused": True},
    {"spec__deletionPolicy": "Retain"},
    {"spec__storeMemory": "64Mi"},
    {"metadata__generation": 9},
]


TEMPLATE_EDITS: list[dict[str, Any]] = [
    {"spec__workers__memory": "2Gi"},
    {"spec__workers__isolation": "Operator"},
    {"spec__operators__1__map": "words:other"},
    {"spec__code": {"module": "words"}},
    {"spec__pod": {"env": [{"name": "A", "value": "b"}]}},
    {"spec__durability": "Disk"},
]


@pytest.mark.parametrize("edit", SCALE_EDITS, ids=str)
def test_a_scale_edit_leaves_plan_and_template_as_they_are(edit: dict[str, Any]) -> None:
    before, after = topology(), topology(**edit)
    assert workers_manifest(after) == workers_manifest(before)
    assert template_hash(after, "i", {}, "u") == template_hash(before, "i", {}, "u")


@pytest.mark.parametrize("edit", TEMPLATE_EDITS, ids=str)
def test_an_edit_of_what_workers_are_made_from_is_another_template(edit: dict[str, Any]) -> None:
    assert template_hash(topology(**edit), "i", {}, "u") != template_hash(topology(), "i", {}, "u")


def test_image_code_and_state_are_part_of_the_template() -> None:
    hashes = {
        template_hash(topology(), image, code, uid)
        for image, code, uid in [
            ("i", {}, "u"),
            ("j", {}, "u"),
            ("i", None, "u"),
            ("i", {"a.py": "1"}, "u"),
            ("i", {}, "v"),
        ]
    }
    assert len(hashes) == 5


def test_a_pod_of_before_topologies_had_users_is_as_it_was_and_of_another_template() -> None:
    """While a store may know the shared user alone."""
    worker = WorkerPod("words-w0", "node-a", "a", 1500, 4000, "")
    shared = worker_pod(worker, topology(), "uid-words", "uid-state", "0123abcd", CONFIG, own_user=False)
    env = {one["name"]: one.get("value") for one in shared["spec"]["containers"][0]["env"]}
    assert env["PENSTOCK_STORE_URL"] == "redis://worker@pen-store-local.streams.svc:6379"
    (store,) = [one["secret"] for one in shared["spec"]["volumes"] if one["name"] == "penstock-store"]
    assert store["secretName"] == "pen-store-auth"
    assert store["items"] == [{"key": "worker-password", "path": "worker-password"}]
    before = template_hash(topology(), "i", {}, "u", own_user=False)
    assert before != template_hash(topology(), "i", {}, "u")


def test_a_disruption_budget_guards_all_workers() -> None:
    labels = {
        "app.kubernetes.io/name": "penstock",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "penstock-operator",
        "penstock.dev/topology": "words",
    }
    assert disruption_budget("words", "uid-words", "streams", 3) == {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": "words-workers",
            "namespace": "streams",
            "labels": labels,
            "ownerReferences": OWNER,
        },
        "spec": {"minAvailable": 3, "selector": {"matchLabels": labels}},
    }


SCHEDULE = OperatorSchedule(
    operator="count",
    version=3,
    term=2,
    workers=(WorkerPlace("words-w0", "node-a", "node-a", "uid-1"),),
    executors=(ExecutorPlace("count-words-w0", "words-w0", 1),),
    shards={"count/0": ShardPlace("count-words-w0", "node-a")},
    stores=(StorePlace("node-a", "node-a", "store:6379"),),
)


def test_a_schedule_object_is_this_and_without_owner_where_state_is_retained() -> None:
    document = schedule_object(SCHEDULE, topology(), "uid-words", "uid-state", "streams", "identity")
    assert document == {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {
            "name": "words.count",
            "namespace": "streams",
            "annotations": {"penstock.dev/identity": "identity"},
            "labels": {
                "app.kubernetes.io/name": "penstock",
                "app.kubernetes.io/component": "schedule",
                "app.kubernetes.io/managed-by": "penstock-operator",
                "penstock.dev/topology": "words",
                "penstock.dev/topology-uid": "uid-state",
                "penstock.dev/operator": "count",
            },
            "ownerReferences": OWNER,
        },
        "spec": {
            "topology": "words",
            "topologyUid": "uid-state",
            "operator": "count",
            "version": 3,
            "term": 2,
            "workers": [{"name": "words-w0", "node": "node-a", "host": "node-a", "uid": "uid-1"}],
            "executors": [{"name": "count-words-w0", "worker": "words-w0", "node": "node-a", "tasks": 1}],
            "shards": [{"executor": "count-words-w0", "home": "node-a", "ranges": ["0"]}],
            "stores": [{"id": "node-a", "node": "node-a", "address": "store:6379"}],
            "durability": "Process",
            "storeMemoryBytes": 256 << 20,
        },
    }
    retained = topology(spec__deletionPolicy="Retain")
    kept = schedule_object(SCHEDULE, retained, "uid-words", "uid-state", "streams", "identity")
    assert "ownerReferences" not in kept["metadata"]


def test_long_names_keep_their_beginning_and_stay_apart() -> None:
    long = [f"ip-10-0-{n}-17.eu-central-1.compute.some-very-long-domain.internal" for n in range(3)]
    names = {store_name("penstock", node) for node in long}
    assert len(names) == 3
    assert all(len(name) <= STATEFUL_SET_LENGTH_MAX for name in names)
    assert all(name.startswith("penstock-store-ip-10-0-") for name in names)
    assert store_name("penstock", "node-a") == "penstock-store-node-a"
    worker = worker_name("t" * 40, "o" * 40, 12)
    assert len(worker) <= 63
    assert worker_index(worker) == 12
    assert worker_index("something") == -1
    assert fitted("Node_A", 20).startswith("node-a-")
    assert label_value("Node_A") == "Node_A"
    assert len(label_value("x" * 200)) == 63
