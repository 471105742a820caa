"""Who owns what the operator makes: the Topology, so that Kubernetes removes it together with it."""

from __future__ import annotations

from typing import Any

from penstock.manifest.document import API_VERSION


def owned_by_topology(name: str, uid: str) -> list[dict[str, Any]]:
    """`ownerReferences` of an object that goes with the Topology."""
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "Topology",
            "name": name,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
