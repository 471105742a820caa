"""Objects of a cluster for tests: small, valid, and told apart by their names."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
API_VERSION = "penstock.dev/v1alpha1"


def topology(name: str = "words", **spec: Any) -> Object:
    operators = [
        {"name": "numbers", "source": {"zipf": {"keys": 100}}},
        {"name": "out", "inputs": ["numbers"], "sink": {"console": {}}},
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"operators": operators, **spec},
    }


def schedule(name: str = "words-numbers", **spec: Any) -> Object:
    fields = {"topology": "words", "topologyUid": "u-1", "operator": "numbers", "version": 1, "term": 1}
    return {
        "apiVersion": API_VERSION,
        "kind": "Schedule",
        "metadata": {"name": name},
        "spec": {**fields, **spec},
    }


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str, **labels: str) -> Object:
    """A pod that no scheduler will place: it stays Pending for ever."""
    container = {
        "name": "worker",
        "image": "none.invalid/none:1",
        "resources": {
            "requests": {"cpu": "100m", "memory": "64Mi"},
            "limits": {"cpu": "1", "memory": "64Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "containers": [container],
            "automountServiceAccountToken": False,
            "nodeSelector": {"penstock.dev/test": "no-such-node"},
        },
    }


def owned_by(owner: Object, thing: Object) -> Object:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {**thing, "metadata": {**thing["metadata"], "ownerReferences": [reference]}}
