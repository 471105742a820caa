"""A worker pod: the user's pod settings, merged under what the operator owns.

The operator chose the node; it is pinned by affinity, so that a scheduler that knows better (taints, volumes,
other pods) can only leave the pod Pending, never put it where its shards are not. CPU request and limit
always differ: a pod whose requests equal its limits is of another QoS class, and no resize may change that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.api.launch.spark_worker_launch import ENV_HOST, ENV_KEY_FILE
from penstock.api.launch.worker_launch import ENV_REMOTE_STORE_URL
from penstock.api.operator_config import OperatorConfig
from penstock.api.topology import Topology
from penstock.connectors.secrets import ENV_SECRETS
from penstock.schedule.store_ids import store_id
from penstock_operator.cluster.kubernetes_api.names import (
    ANNOTATION_TEMPLATE,
    COMPONENT_WORKER,
    LABEL_NODE,
    LABEL_OPERATOR,
    LABEL_SERVER,
    LABEL_WORKER,
    label_value,
    plan_name,
    store_address,
    topology_labels,
)
from penstock_operator.cluster.manifests.ownership import owned_by_topology
from penstock_operator.cluster.manifests.plan_config_map import TOPOLOGY_FILE
from penstock_operator.cluster.manifests.pod_parts import (
    CONTAINER_SECURITY,
    STAYS_WITH_ITS_NODE,
    Part,
    field_env,
    millis,
    pinned_to,
    plain,
    plain_all,
    pod_security,
    probe,
)
from penstock_operator.cluster.manifests.worker_login import WorkerLogin, worker_login

CONTAINER = "worker"
_PLAN_DIR = "/etc/penstock/topology"
_CODE_DIR = "/etc/penstock/code"
_IMAGE_DIR = "/app"
_STORE_DIR = "/etc/penstock/store"
SECRETS_DIR = "/etc/penstock/secrets"
"""A folder for each Secret that sources and sinks name."""
_PASSWORD = "worker-password"  # noqa: S105 - the name of a file
_SPARK_KEY = "spark-key"
PASSWORD_FILE = f"{_STORE_DIR}/{_PASSWORD}"
KEY_FILE = f"{_STORE_DIR}/{_SPARK_KEY}"
"""Whoever has it may join the Spark masters of a topology's workers. It stays when passwords are rotated: a
master that has started knows no other."""
_READABLE_BY_GROUP = 0o440
_FIRST_STORE_ID = field_env("PENSTOCK_STORE_ID", "spec.nodeName")


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """One worker to be: its name, its node (and that node's hostname label), its cores, and which of the
    node's store servers it is to work on. `operator` is "" where a worker runs several."""

    name: str
    node: str
    hostname: str
    cpu_request_millis: int
    cpu_limit_millis: int
    operator: str = ""
    server: int = 0

    @property
    def store(self) -> str:
        """The id of the store that it is to work on."""
        return store_id(self.node, self.server)


def worker_image(topology: Topology, config: OperatorConfig) -> str:
    return topology.spec.image or config.images.worker


def worker_pod(
    worker: WorkerPod,
    topology: Topology,
    topology_uid: str,
    state_uid: str,
    template_hash: str,
    config: OperatorConfig,
    *,
    own_user: bool = True,
) -> dict[str, Any]:
    """The document. `topology_uid` owns it, `state_uid` is what its state goes by; `own_user`: it logs in to
    the stores as its topology's own user."""
    name = topology.metadata.name
    login = worker_login(config, state_uid, own_user=own_user)
    user = topology.spec.pod
    labels = {
        **user.labels,
        **topology_labels(name, COMPONENT_WORKER),
        LABEL_WORKER: worker.name,
        LABEL_NODE: label_value(worker.node),
    }
    if worker.operator:
        labels[LABEL_OPERATOR] = worker.operator
    if worker.server:
        labels[LABEL_SERVER] = str(worker.server)
    affinity = plain(user.affinity) if user.affinity is not None else None
    tolerations = [*plain_all(user.tolerations), *plain_all(config.worker.tolerations), *STAYS_WITH_ITS_NODE]
    spec: Part = {
        "affinity": pinned_to(worker.hostname, affinity),
        "automountServiceAccountToken": user.service_account_name is not None,
        "containers": [_container(worker, topology, state_uid, config, login)],
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "securityContext": pod_security(config),
        "terminationGracePeriodSeconds": config.worker.termination_grace_seconds,
        "tolerations": tolerations,
        "volumes": [*plain_all(user.volumes), *_volumes(topology, template_hash, config, login)],
    }
    if user.service_account_name is not None:
        spec["serviceAccountName"] = user.service_account_name
    if node_selector := {**user.node_selector, **config.worker.node_selector}:
        spec["nodeSelector"] = node_selector
    if pull_secrets := {s.name: None for s in (*user.image_pull_secrets, *config.image_pull_secrets)}:
        spec["imagePullSecrets"] = [{"name": secret} for secret in pull_secrets]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": worker.name,
            "namespace": topology.metadata.namespace or config.namespace,
            "labels": labels,
            "annotations": {**user.annotations, ANNOTATION_TEMPLATE: template_hash},
            "ownerReferences": owned_by_topology(name, topology_uid),
        },
        "spec": spec,
    }


def _container(
    worker: WorkerPod, topology: Topology, state_uid: str, config: OperatorConfig, login: WorkerLogin
) -> Part:
    user = topology.spec.pod
    memory = topology.spec.workers.memory
    container: Part = {
        "name": CONTAINER,
        "image": worker_image(topology, config),
        "imagePullPolicy": topology.spec.image_pull_policy or config.image_pull_policy,
        # Not `command`: the image's entry point is an init that reaps and forwards signals.
        "args": ["python", "-m", "penstock_worker"],
        "env": [
            *plain_all(user.env),
            *_env(worker, topology, state_uid, config, login),
            *(_remote_env(worker, config, login) if topology.spec.remote_tasks == "Allowed" else ()),
        ],
        "ports": [{"name": "metrics", "containerPort": config.metrics_ports.worker}],
        "startupProbe": probe("/healthz", "metrics", period_s=1, timeout_s=2, failures=180),
        "readinessProbe": probe("/ready", "metrics", period_s=1, timeout_s=2, failures=3),
        "livenessProbe": probe("/healthz", "metrics", period_s=10, timeout_s=5, failures=6),
        "resources": {
            "requests": {"cpu": millis(worker.cpu_request_millis), "memory": memory},
            "limits": {"cpu": millis(worker.cpu_limit_millis), "memory": memory},
        },
        "resizePolicy": [
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        ],
        "securityContext": dict(CONTAINER_SECURITY),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*plain_all(user.volume_mounts), *_mounts(topology)],
    }
    if user.env_from:
        container["envFrom"] = plain_all(user.env_from)
    return container


def _env(
    worker: WorkerPod, topology: Topology, state_uid: str, config: OperatorConfig, login: WorkerLogin
) -> list[Part]:
    """The operator's own: they come last, and so win over the user's (which the API refuses anyway)."""
    store, own_id = f"{config.store.local_service}.{config.namespace}.svc:6379", _FIRST_STORE_ID
    if worker.server:
        store, own_id = _address(worker, config), {"name": "PENSTOCK_STORE_ID", "value": worker.store}
    values = {
        "PENSTOCK_TOPOLOGY_UID": state_uid,
        "PENSTOCK_MANIFEST": f"{_PLAN_DIR}/{TOPOLOGY_FILE}",
        "PENSTOCK_BASE_DIR": _CODE_DIR if _code_map(topology) else _IMAGE_DIR,
        "PENSTOCK_STORE_URL": f"redis://{login.user}@{store}",
        "PENSTOCK_STORE_PASSWORD_FILE": PASSWORD_FILE,
        "PENSTOCK_METRICS_PORT": str(config.metrics_ports.worker),
        **({ENV_SECRETS: SECRETS_DIR} if topology.spec.secret_names else {}),
    }
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        field_env("PENSTOCK_WORKER", "metadata.name"),
        field_env("PENSTOCK_POD_UID", "metadata.uid"),
        field_env("PENSTOCK_NODE", "spec.nodeName"),
        own_id,
        field_env("PENSTOCK_TEMPLATE", f"metadata.annotations['{ANNOTATION_TEMPLATE}']"),
    ]


def _remote_env(worker: WorkerPod, config: OperatorConfig, login: WorkerLogin) -> list[Part]:
    """Where Spark workers of other nodes, and their tasks, find this worker and its node's store."""
    return [
        {"name": ENV_REMOTE_STORE_URL, "value": f"redis://{login.user}@{_address(worker, config)}"},
        {"name": ENV_KEY_FILE, "value": KEY_FILE},
        field_env(ENV_HOST, "status.podIP"),
    ]


def _address(worker: WorkerPod, config: OperatorConfig) -> str:
    return store_address(config.fullname, worker.store, config.store.headless_service, config.namespace)


def _code_map(topology: Topology) -> str | None:
    return topology.spec.code.config_map if topology.spec.code is not None else None


def _volumes(
    topology: Topology, template_hash: str, config: OperatorConfig, login: WorkerLogin
) -> list[Part]:
    volumes: list[Part] = [
        {
            "name": "penstock-topology",
            "configMap": {"name": plan_name(topology.metadata.name, template_hash)},
        },
        {
            "name": "penstock-store",
            "secret": {
                "secretName": login.secret,
                "items": [{"key": key, "path": path} for key, path in _mounted(topology, login)],
                "defaultMode": _READABLE_BY_GROUP,
            },
        },
        {
            "name": "penstock-tmp",
            "emptyDir": {"sizeLimit": topology.spec.pod.tmp_size or config.worker.tmp_size},
        },
        {"name": "penstock-run", "emptyDir": {}},
    ]
    if code := _code_map(topology):
        volumes.append({"name": "penstock-code", "configMap": {"name": code}})
    volumes += [
        {
            "name": _secret_volume(number),
            "secret": {"secretName": name, "defaultMode": _READABLE_BY_GROUP},
        }
        for number, name in enumerate(topology.spec.secret_names)
    ]
    return volumes


def _mounted(topology: Topology, login: WorkerLogin) -> list[tuple[str, str]]:
    """Keys of the Secret, each with the name of its file."""
    mounted = [(login.password, _PASSWORD)]
    return [*mounted, (login.spark, _SPARK_KEY)] if topology.spec.remote_tasks == "Allowed" else mounted


def _mounts(topology: Topology) -> list[Part]:
    mounts: list[Part] = [
        {"name": "penstock-topology", "mountPath": _PLAN_DIR, "readOnly": True},
        {"name": "penstock-store", "mountPath": _STORE_DIR, "readOnly": True},
        {"name": "penstock-tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
        {"name": "penstock-run", "mountPath": "/var/run/penstock"},
    ]
    if _code_map(topology):
        mounts.append({"name": "penstock-code", "mountPath": _CODE_DIR, "readOnly": True})
    mounts += [
        {"name": _secret_volume(number), "mountPath": f"{SECRETS_DIR}/{name}", "readOnly": True}
        for number, name in enumerate(topology.spec.secret_names)
    ]
    return mounts


def _secret_volume(number: int) -> str:
    """A Secret's name may be longer than a volume's."""
    return f"penstock-secret-{number}"
