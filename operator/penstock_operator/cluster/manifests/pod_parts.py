"""What pods of both kinds have in common: they run at the `restricted` level, and stay on their node.

Neighbours: `worker_pod` and `node_store` build pods with these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.api.operator_config import OperatorConfig
from penstock.manifest.document import Document

Part = dict[str, Any]

USER_ID = 10001
"""Of the images' user, and the group of their volumes."""
HOSTNAME_LABEL = "kubernetes.io/hostname"

_ANYBODY: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
STAYS_WITH_ITS_NODE: tuple[Part, ...] = tuple(
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
    for state in ("not-ready", "unreachable")
)
"""A node that is away keeps its pods: what they work on is there and nowhere else."""
STAYS_WHEN_CORDONED: Part = {
    "key": "node.kubernetes.io/unschedulable",
    "operator": "Exists",
    "effect": "NoSchedule",
}


def pod_security(config: OperatorConfig) -> Part:
    """Of a pod, whoever it runs as."""
    if config.any_user:
        return dict(_ANYBODY)
    return {**_ANYBODY, "runAsUser": USER_ID, "runAsGroup": USER_ID, "fsGroup": USER_ID}


def plain(document: Document) -> Part:
    """A model's part as Kubernetes has it, without what is the default anyway."""
    part: Part = document.model_dump(by_alias=True, exclude_defaults=True, mode="json")
    return part


def plain_all(documents: Iterable[Document]) -> list[Part]:
    return [plain(document) for document in documents]


def millis(cpu_millis: int) -> str:
    return f"{cpu_millis}m"


def field_env(name: str, field_path: str) -> Part:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field_path}}}


def pinned_to(hostname: str, affinity: Part | None = None) -> Part:
    """`affinity` with the one node in every term: terms are alternatives, requirements within one are not."""
    pin = {"key": HOSTNAME_LABEL, "operator": "In", "values": [hostname]}
    pinned = dict(affinity or {})
    node = dict(pinned.get("nodeAffinity", {}))
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = node.get(required, {}).get("nodeSelectorTerms", [{}])
    node[required] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*term.get("matchExpressions", []), pin]} for term in terms
        ]
    }
    pinned["nodeAffinity"] = node
    return pinned


def probe(path: str, port: str, *, period_s: int, timeout_s: int, failures: int) -> Part:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
    }
