"""A store of a node: a StatefulSet of one pod, pinned to it, with Redis and the store's agent.

A node may have several, each a store of its own: what one of them costs or suffers is no other one's.

It is replaced by nobody but the operator (OnDelete): what it holds is elsewhere first. It stays through a
cordon and through a node's absence, because its state is there. Once its node is gone it is held by its
volume alone. Passwords are mounted, to each container its own: Redis and the agent have the users' hashes,
the same file of one volume, and the agent its password. Only the agent has a token.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.api.operator_config import OperatorConfig
from penstock.manifest.document import cpu_millis, memory_bytes
from penstock.schedule.store_ids import server_of
from penstock_operator.cluster.kubernetes_api.names import (
    ANNOTATION_TEMPLATE,
    namespaces_map_name,
    short_hash,
    store_labels,
    store_name,
    store_names_beginnings,
)
from penstock_operator.cluster.manifests.pod_parts import (
    CONTAINER_SECURITY,
    STAYS_WHEN_CORDONED,
    STAYS_WITH_ITS_NODE,
    Part,
    field_env,
    millis,
    pinned_to,
    plain_all,
    pod_security,
    probe,
)

STORE_PORT = 6379
PORT_NAME = "store"
FURTHER_PORT_NAME = "further-store"
"""Of servers that are not their node's first: the Service that leads to the caller's own node goes by the
first one's name."""
_AUTH_DIR = "/etc/penstock/store"
_USERS_DIR = "/etc/penstock/users"
_ACL = "users.acl"
_PASSWORD = "agent-password"  # noqa: S105 - the key in the Secret
_TOKEN_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - where it is, not what
_TOKEN_SECONDS = 3607
_READABLE_BY_GROUP = 0o440
_NAMESPACES_DIR = "/etc/penstock/namespaces"
_NAMESPACES = "namespaces"
_DATA = "data"
_DATA_DIR = "/data"
_MAX_MEMORY_PERCENT = 70
"""Of the container's memory: the rest is for copies while the log is rewritten, and for clients."""


def node_store(store: str, hostname: str | None, config: OperatorConfig) -> dict[str, Any]:
    """The StatefulSet's document, of the store of this id; its annotation tells a later template from this
    one. `hostname` None: its node is gone, and its pod goes wherever its volume can be mounted."""
    labels = store_labels(store)
    template: Part = {
        "metadata": {"labels": labels},
        "spec": _pod_spec(store, hostname, config),
    }
    spec: Part = {
        "replicas": 1,
        "serviceName": config.store.headless_service,
        "selector": {"matchLabels": labels},
        "updateStrategy": {"type": "OnDelete"},
        "template": template,
    }
    if config.store.has_claim:
        when_deleted = "Retain" if config.store.keep_volumes else "Delete"
        spec["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": when_deleted, "whenScaled": "Retain"}
        spec["volumeClaimTemplates"] = [_claim(config, labels)]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": store_name(config.fullname, store),
            "namespace": config.namespace,
            "labels": labels,
            "annotations": {ANNOTATION_TEMPLATE: short_hash(json.dumps(spec, sort_keys=True))},
        },
        "spec": spec,
    }


def _pod_spec(store: str, hostname: str | None, config: OperatorConfig) -> Part:
    tolerations = [*plain_all(config.store.tolerations), *STAYS_WITH_ITS_NODE]
    held: Part = {"nodeSelector": dict(config.store.node_selector)}
    if hostname is not None:
        tolerations.append(STAYS_WHEN_CORDONED)
        held = {"affinity": pinned_to(hostname)}
    spec: Part = {
        **held,
        "automountServiceAccountToken": False,
        "containers": [_store(store, config), _agent(store, config)],
        "enableServiceLinks": False,
        "securityContext": pod_security(config),
        "serviceAccountName": config.store.service_account,
        "terminationGracePeriodSeconds": 30,
        "tolerations": tolerations,
        "volumes": _volumes(config),
    }
    if config.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret.name} for secret in config.image_pull_secrets]
    if config.priority_class_name is not None:
        spec["priorityClassName"] = config.priority_class_name
    return spec


def _store(store: str, config: OperatorConfig) -> Part:
    memory, port = config.store.memory, FURTHER_PORT_NAME if server_of(store) else PORT_NAME
    tcp = {"tcpSocket": {"port": port}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6}
    return {
        "name": "store",
        "image": config.images.store,
        "imagePullPolicy": config.image_pull_policy,
        "args": redis_args(config),
        "ports": [{"name": port, "containerPort": STORE_PORT}],
        "livenessProbe": tcp,
        "resources": {
            "requests": {"cpu": millis(cpu_millis(config.store.cpu)), "memory": memory},
            "limits": {"memory": memory},
        },
        "securityContext": dict(CONTAINER_SECURITY),
        "volumeMounts": [
            {"name": _DATA, "mountPath": _DATA_DIR},
            {"name": "acl", "mountPath": _AUTH_DIR, "readOnly": True},
            {"name": "store-tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
        ],
    }


def redis_args(config: OperatorConfig) -> list[str]:
    """redis-server with its settings. A Disk store syncs each write until its agent says otherwise."""
    settings = {
        "port": str(STORE_PORT),
        "bind": "* -::*",
        "protected-mode": "yes",
        "aclfile": f"{_AUTH_DIR}/{_ACL}",
        "dir": _DATA_DIR,
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always" if config.store.durability == "Disk" else "no",
        "maxmemory": str(memory_bytes(config.store.memory) * _MAX_MEMORY_PERCENT // 100),
        "maxmemory-policy": "noeviction",
    }
    return ["redis-server", *(part for name, value in settings.items() for part in (f"--{name}", value))]


def _agent(store: str, config: OperatorConfig) -> Part:
    values = {
        # A version that knows one store a node takes a further one for the store of a node that is gone.
        "PENSTOCK_NODE": store,
        "PENSTOCK_STORE_ID": store,
        "PENSTOCK_STORE_URL": f"redis://agent@127.0.0.1:{STORE_PORT}",
        "PENSTOCK_STORE_PASSWORD_FILE": f"{_AUTH_DIR}/{_PASSWORD}",
        "PENSTOCK_STORE_USERS_FILE": f"{_USERS_DIR}/{_ACL}",
        "PENSTOCK_STORE_DURABILITY": config.store.durability,
        "PENSTOCK_STORE_DATA_DIR": _DATA_DIR,
        "PENSTOCK_AGENT_PORT": str(config.metrics_ports.agent),
    }
    mounts: list[Part] = []
    if config.namespaces:
        # Which ones they are is not in the template: it is the same whatever is added or left out.
        values["PENSTOCK_NAMESPACES_FILE"] = f"{_NAMESPACES_DIR}/{_NAMESPACES}"
        mounts = [{"name": "namespaces", "mountPath": _NAMESPACES_DIR, "readOnly": True}]
    return {
        "name": "agent",
        "image": config.images.operator,
        "imagePullPolicy": config.image_pull_policy,
        "args": ["penstock", "agent"],
        "env": [
            *({"name": name, "value": value} for name, value in values.items()),
            field_env("PENSTOCK_NAMESPACE", "metadata.namespace"),
            field_env("PENSTOCK_POD_NAME", "metadata.name"),
            field_env("PENSTOCK_POD_UID", "metadata.uid"),
        ],
        "ports": [{"name": "metrics", "containerPort": config.metrics_ports.agent}],
        "startupProbe": probe("/livez", "metrics", period_s=1, timeout_s=2, failures=120),
        "readinessProbe": probe("/healthz", "metrics", period_s=2, timeout_s=2, failures=2),
        "livenessProbe": probe("/livez", "metrics", period_s=10, timeout_s=5, failures=3),
        "resources": {
            "requests": {
                "cpu": millis(cpu_millis(config.agent.cpu)),
                "memory": config.agent.memory,
            },
            "limits": {"memory": config.agent.memory},
        },
        "securityContext": dict(CONTAINER_SECURITY),
        "volumeMounts": [
            {"name": "agent-password", "mountPath": _AUTH_DIR, "readOnly": True},
            {"name": "acl", "mountPath": _USERS_DIR, "readOnly": True},
            {"name": _DATA, "mountPath": _DATA_DIR, "readOnly": True},
            {"name": "token", "mountPath": _TOKEN_DIR, "readOnly": True},
            {"name": "agent-tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
            *mounts,
        ],
    }


def _volumes(config: OperatorConfig) -> list[Part]:
    volumes: list[Part] = [
        _secret("acl", config.store.auth_secret, _ACL),
        _secret("agent-password", config.store.auth_secret, _PASSWORD),
        {"name": "store-tmp", "emptyDir": {"sizeLimit": "16Mi"}},
        {"name": "agent-tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        {
            "name": "token",
            "projected": {
                "defaultMode": _READABLE_BY_GROUP,
                "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
                    {
                        "configMap": {
                            "name": "kube-root-ca.crt",
                            "items": [{"key": "ca.crt", "path": "ca.crt"}],
                        }
                    },
                    {
                        "downwardAPI": {
                            "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
                        }
                    },
                ],
            },
        },
    ]
    if config.namespaces:
        named = namespaces_map_name(config.fullname)
        volumes.append({"name": "namespaces", "configMap": {"name": named, "optional": True}})
    if not config.store.has_claim:
        volumes.append({"name": _DATA, "emptyDir": {"sizeLimit": config.store.size}})
    return volumes


def _secret(name: str, secret: str, key: str) -> Part:
    items = [{"key": key, "path": key}]
    return {
        "name": name,
        "secret": {"secretName": secret, "items": items, "defaultMode": _READABLE_BY_GROUP},
    }


def claim_name(stateful_set: str) -> str:
    """The claim that a store's StatefulSet makes for its only pod."""
    return f"{_DATA}-{stateful_set}-0"


def claim_beginnings(fullname: str) -> tuple[str, ...]:
    """What the name of each store's claim begins with one of."""
    return tuple(f"{_DATA}-{one}" for one in store_names_beginnings(fullname))


def _claim(config: OperatorConfig, labels: dict[str, str]) -> Part:
    named = config.store.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": _DATA, "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            **({"storageClassName": named} if named is not None else {}),
            "resources": {"requests": {"storage": config.store.size}},
        },
    }
