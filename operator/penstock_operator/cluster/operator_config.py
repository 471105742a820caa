"""What the chart tells the operator: the file at /etc/penstock/operator/config.yaml, typed.

Unknown keys are refused, and so is a value of another type: the message has the path. Keys are camelCase
in the file. Neighbours: `node_stores` and `manifests` read it, the chart's ConfigMap template writes it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock.errors import PermanentError


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A mapping in the file. (msgspec inherits the options; mypy wants frozen and kw_only once more.)"""


class ImageConfig(_Part, frozen=True, kw_only=True):
    """`pull_secrets` are names of Secrets."""

    worker: str
    agent: str
    store: str
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()


class ResourcesConfig(_Part, frozen=True, kw_only=True):
    """Quantities as Kubernetes writes them: {"cpu": "100m", "memory": "128Mi"}."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class StoreConfig(_Part, frozen=True, kw_only=True):
    """The node stores. Disk needs `storage_class_name`; `max_memory` is Redis' maxmemory, which stays well
    below the container's limit. `quota_bytes` is what one topology may take of each store; None: no quota."""

    durability: Literal["Process", "Disk"] = "Process"
    storage_class_name: str = ""
    size: str = "8Gi"
    max_memory: str = "1gb"
    quota_bytes: int | None = None
    headless_service: str
    local_service: str
    auth_secret: str
    service_account: str
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    resources: ResourcesConfig = ResourcesConfig(
        requests={"cpu": "250m", "memory": "1536Mi"}, limits={"memory": "1536Mi"}
    )
    agent_resources: ResourcesConfig = ResourcesConfig(
        requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "256Mi"}
    )
    pod_annotations: dict[str, str] = {}
    priority_class_name: str = ""


class WorkerConfig(_Part, frozen=True, kw_only=True):
    """What workers get beside what their Topology says."""

    tolerations: tuple[dict[str, Any], ...] = ()
    node_selector: dict[str, str] = {}
    priority_class_name: str = ""
    termination_grace_period_seconds: int = 30


class OperatorConfig(_Part, frozen=True, kw_only=True):
    """`release` is the chart's full name F, which all names begin with; `instance` goes to
    app.kubernetes.io/instance. `cluster_domain` is "" for names without one (F.NS.svc)."""

    release: str
    instance: str
    images: ImageConfig
    store: StoreConfig
    worker: WorkerConfig = WorkerConfig()
    namespace: str = ""
    """"" in the file: the operator fills in PENSTOCK_NAMESPACE."""


def read_config(text: str, namespace: str) -> OperatorConfig:
    """The file's text as a value. PermanentError, with the path, for what does not fit."""
    try:
        config = msgspec.yaml.decode(text, type=OperatorConfig)
    except msgspec.MsgspecError as error:
        raise PermanentError(f"the operator's configuration does not fit: {error}") from error
    if config.store.durability == "Disk" and not config.store.storage_class_name:
        raise PermanentError(
            "the operator's configuration asks for store.durability Disk without store.storageClassName; "
            "name a storage class, or use Process"
        )
    return msgspec.structs.replace(config, namespace=config.namespace or namespace)
