"""The objects of a node's store, as the operator makes them."""

from __future__ import annotations

from typing import Any

from penstock.api.operator_config import OperatorConfig
from penstock_operator.cluster.manifests.node_store import node_store, redis_args
from worlds.cluster_world import CONFIG
from worlds.manifest_parts import CONTAINER_SECURITY, PIN_A, POD_SECURITY, STAYS, http, secret


def config(**store: Any) -> OperatorConfig:
    document = CONFIG.model_dump(by_alias=True, exclude_defaults=True, mode="json")
    document["store"].update(store)
    return OperatorConfig.model_validate(document)


def test_a_node_store_is_this() -> None:
    document = node_store("node-a", "a", CONFIG)
    labels = {
        "app.kubernetes.io/name": "penstock",
        "app.kubernetes.io/component": "node-store",
        "app.kubernetes.io/managed-by": "penstock-operator",
        "penstock.dev/node": "node-a",
    }
    template = document["metadata"]["annotations"].pop("penstock.dev/template")
    assert len(template) == 8
    assert document == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "pen-store-node-a",
            "namespace": "streams",
            "labels": labels,
            "annotations": {},
        },
        "spec": {
            "replicas": 1,
            "serviceName": "pen-stores",
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "OnDelete"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "affinity": PIN_A,
                    "automountServiceAccountToken": False,
                    "containers": [
                        {
                            "name": "store",
                            "image": "pen/store:1",
                            "imagePullPolicy": "IfNotPresent",
                            "args": redis_args(CONFIG),
                            "ports": [{"name": "store", "containerPort": 6379}],
                            "livenessProbe": {
                                "tcpSocket": {"port": "store"},
                                "periodSeconds": 10,
                                "timeoutSeconds": 5,
                                "failureThreshold": 6,
                            },
                            "resources": {
                                "requests": {"cpu": "500m", "memory": "1Gi"},
                                "limits": {"memory": "1Gi"},
                            },
                            "securityContext": CONTAINER_SECURITY,
                            "volumeMounts": [
                                {"name": "data", "mountPath": "/data"},
                                {"name": "acl", "mountPath": "/etc/penstock/store", "readOnly": True},
                                {"name": "store-tmp", "mountPath": "/tmp"},
                            ],
                        },
                        {
                            "name": "agent",
                            "image": "pen/operator:1",
                            "imagePullPolicy": "IfNotPresent",
                            "args": ["penstock", "agent"],
                            "env": [
                                {"name": "PENSTOCK_NODE", "value": "node-a"},
                                {"name": "PENSTOCK_STORE_ID", "value": "node-a"},
                                {"name": "PENSTOCK_STORE_URL", "value": "redis://agent@127.0.0.1:6379"},
                                {
                                    "name": "PENSTOCK_STORE_PASSWORD_FILE",
                                    "value": "/etc/penstock/store/agent-password",
                                },
                                {
                                    "name": "PENSTOCK_STORE_USERS_FILE",
                                    "value": "/etc/penstock/users/users.acl",
                                },
                                {"name": "PENSTOCK_STORE_DURABILITY", "value": "Process"},
                                {"name": "PENSTOCK_STORE_DATA_DIR", "value": "/data"},
                                {"name": "PENSTOCK_AGENT_PORT", "value": "9091"},
                                *(
                                    {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                                    for name, path in [
                                        ("PENSTOCK_NAMESPACE", "metadata.namespace"),
                                        ("PENSTOCK_POD_NAME", "metadata.name"),
                                        ("PENSTOCK_POD_UID", "metadata.uid"),
                                    ]
                                ),
                            ],
                            "ports": [{"name": "metrics", "containerPort": 9091}],
                            "startupProbe": http("/livez", 1, 2, 120),
                            "readinessProbe": http("/healthz", 2, 2, 2),
                            "livenessProbe": http("/livez", 10, 5, 3),
                            "resources": {
                                "requests": {"cpu": "100m", "memory": "256Mi"},
                                "limits": {"memory": "256Mi"},
                            },
                            "securityContext": CONTAINER_SECURITY,
                            "volumeMounts": [
                                {
                                    "name": "agent-password",
                                    "mountPath": "/etc/penstock/store",
                                    "readOnly": True,
                                },
                                {"name": "acl", "mountPath": "/etc/penstock/users", "readOnly": True},
                                {"name": "data", "mountPath": "/data", "readOnly": True},
                                {
                                    "name": "token",
                                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                                    "readOnly": True,
                                },
                                {"name": "agent-tmp", "mountPath": "/tmp"},
                            ],
                        },
                    ],
                    "enableServiceLinks": False,
                    "securityContext": POD_SECURITY,
                    "serviceAccountName": "pen-agent",
                    "terminationGracePeriodSeconds": 30,
                    "tolerations": [
                        *STAYS,
                        {
                            "key": "node.kubernetes.io/unschedulable",
                            "operator": "Exists",
                            "effect": "NoSchedule",
                        },
                    ],
                    "volumes": [
                        secret("acl", "users.acl"),
                        secret("agent-password", "agent-password"),
                        {"name": "store-tmp", "emptyDir": {"sizeLimit": "16Mi"}},
                        {"name": "agent-tmp", "emptyDir": {"sizeLimit": "64Mi"}},
                        {
                            "name": "token",
                            "projected": {
                                "defaultMode": 0o440,
                                "sources": [
                                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                                    {
                                        "configMap": {
                                            "name": "kube-root-ca.crt",
                                            "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                        }
                                    },
                                    {
                                        "downwardAPI": {
                                            "items": [
                                                {
                                                    "path": "namespace",
                                                    "fieldRef": {"fieldPath": "metadata.namespace"},
                                                }
                                            ]
                                        }
                                    },
                                ],
                            },
                        },
                        {"name": "data", "emptyDir": {"sizeLimit": "10Gi"}},
                    ],
                },
            },
        },
    }


def test_redis_keeps_a_log_refuses_when_full_and_knows_only_the_users_of_the_acl() -> None:
    assert redis_args(CONFIG) == [
        *("redis-server", "--port", "6379", "--bind", "* -::*", "--protected-mode", "yes"),
        *("--aclfile", "/etc/penstock/store/users.acl", "--dir", "/data", "--save", ""),
        *("--appendonly", "yes", "--appendfsync", "no"),
        *("--maxmemory", str((1 << 30) * 70 // 100), "--maxmemory-policy", "noeviction"),
    ]
    disk = redis_args(config(durability="Disk", storageClassName="fast"))
    assert disk[disk.index("--appendfsync") + 1] == "always"


def test_with_a_storage_class_the_store_has_a_claim_that_outlives_it() -> None:
    document = node_store("node-a", "a", config(durability="Disk", storageClassName="fast", size="5Gi"))
    spec = document["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    gone = node_store("node-a", "a", config(durability="Disk", keepVolumes=False))["spec"]
    assert gone["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"
    assert "storageClassName" not in gone["volumeClaimTemplates"][0]["spec"], "the cluster's default class"
    assert spec["volumeClaimTemplates"] == [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "labels": spec["selector"]["matchLabels"]},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "5Gi"}},
            },
        }
    ]
    assert "data" not in [volume["name"] for volume in spec["template"]["spec"]["volumes"]]
    other = node_store("node-a", "a", CONFIG)
    assert document["metadata"]["annotations"] != other["metadata"]["annotations"]


def test_a_store_whose_node_is_gone_is_held_to_none_and_goes_to_no_cordoned_one() -> None:
    pinned = node_store("node-a", "node-a", CONFIG)
    free = node_store("node-a", None, CONFIG)
    spec = free["spec"]["template"]["spec"]
    assert "affinity" not in spec
    assert spec["nodeSelector"] == CONFIG.store.node_selector
    assert "node.kubernetes.io/unschedulable" not in {one["key"] for one in spec["tolerations"]}
    assert free["metadata"]["name"] == pinned["metadata"]["name"]
    assert free["metadata"]["annotations"] != pinned["metadata"]["annotations"]
    assert spec["containers"] == pinned["spec"]["template"]["spec"]["containers"], "its id and node stay"


def test_agents_are_told_of_further_namespaces_by_a_file_so_that_another_one_restarts_no_store() -> None:
    def template(*namespaces: str) -> dict[str, Any]:
        config = CONFIG.model_copy(update={"namespaces": namespaces})
        found: dict[str, Any] = node_store("node-a", "node-a", config)["spec"]["template"]
        return found

    assert template("team-a") == template("team-a", "team-b") != template()
    spec = template("team-a")["spec"]
    volume = {"name": "namespaces", "configMap": {"name": "pen-namespaces", "optional": True}}
    assert volume in spec["volumes"]
    (_, agent) = spec["containers"]
    told = {"name": "PENSTOCK_NAMESPACES_FILE", "value": "/etc/penstock/namespaces/namespaces"}
    assert told in agent["env"]


def test_a_further_store_of_a_node_is_one_by_another_name_that_nothing_takes_for_the_first() -> None:
    first, further = node_store("node-a", "a", CONFIG), node_store("node-a..1", "a", CONFIG)
    assert further["metadata"]["name"] != first["metadata"]["name"]
    assert further["spec"]["template"]["spec"]["affinity"] == PIN_A
    for one, other in ((first, further), (further, first)):
        selected = one["spec"]["selector"]["matchLabels"].items()
        assert selected <= one["spec"]["template"]["metadata"]["labels"].items()
        assert not selected <= other["spec"]["template"]["metadata"]["labels"].items()
    (store, agent) = further["spec"]["template"]["spec"]["containers"]
    # The Service of the caller's own node goes by the first one's name of this port.
    assert store["ports"] == [{"name": "further-store", "containerPort": 6379}]
    assert store["livenessProbe"]["tcpSocket"] == {"port": "further-store"}
    told = {entry["name"]: entry.get("value") for entry in agent["env"]}
    assert told["PENSTOCK_STORE_ID"] == "node-a..1"
