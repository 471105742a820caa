"""The pod of a Spark worker on another node, for the remote tasks of one worker.

It is a worker's in all but what it runs: the same image, code, volumes, level of security. It has no probe
and no port of its own: Spark's master knows whether it is there. What it joins with is derived from the key
that is mounted, and stands nowhere. Pure builder. Neighbours: `worker_pod`, `spark_network_policies`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.api.launch.spark_worker_launch import (
    ENV_HOME_UID,
    ENV_HOST,
    ENV_KEY_FILE,
    ENV_NODE,
    ENV_SPARK_MASTER,
    MASTER_PORT,
)
from penstock.api.operator_config import OperatorConfig
from penstock.api.topology import Topology
from penstock.connectors.secrets import ENV_SECRETS
from penstock_operator.cluster.kubernetes_api.names import (
    COMPONENT_SPARK_WORKER,
    LABEL_COMPONENT,
    LABEL_HOME_UID,
    LABEL_OPERATOR,
    LABEL_WORKER,
)
from penstock_operator.cluster.manifests.pod_parts import field_env, plain_all
from penstock_operator.cluster.manifests.worker_pod import (
    KEY_FILE,
    PASSWORD_FILE,
    SECRETS_DIR,
    WorkerPod,
    worker_pod,
)


@dataclass(frozen=True, slots=True)
class Home:
    """The worker whose remote tasks run here: its pod's name, uid, store and IP."""

    worker: str
    uid: str
    store: str
    host: str


def spark_worker_pod(
    place: WorkerPod,
    home: Home,
    topology: Topology,
    topology_uid: str,
    state_uid: str,
    template_hash: str,
    config: OperatorConfig,
    *,
    own_user: bool = True,
) -> dict[str, Any]:
    """The document. `place` has its name, its node and its cores; `own_user` as a worker's."""
    document = worker_pod(place, topology, topology_uid, state_uid, template_hash, config, own_user=own_user)
    labels = document["metadata"]["labels"]
    labels.pop(LABEL_OPERATOR, None)
    labels |= {
        LABEL_COMPONENT: COMPONENT_SPARK_WORKER,
        LABEL_WORKER: home.worker,
        LABEL_HOME_UID: home.uid,
    }
    (container,) = document["spec"]["containers"]
    container["args"] = ["python", "-m", "penstock_worker.spark.spark_worker"]
    own = {
        ENV_SPARK_MASTER: f"spark://{home.host}:{MASTER_PORT}",
        ENV_HOME_UID: home.uid,
        ENV_KEY_FILE: KEY_FILE,
        "PENSTOCK_STORE_PASSWORD_FILE": PASSWORD_FILE,
        **({ENV_SECRETS: SECRETS_DIR} if topology.spec.secret_names else {}),
    }
    container["env"] = [
        *plain_all(topology.spec.pod.env),
        *({"name": name, "value": value} for name, value in own.items()),
        field_env(ENV_NODE, "spec.nodeName"),
        field_env(ENV_HOST, "status.podIP"),
    ]
    for name in ("ports", "startupProbe", "readinessProbe", "livenessProbe"):
        del container[name]
    return document
