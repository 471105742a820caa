"""What of a Topology is baked into its workers, and what is a matter of scale.

`workers_manifest` is the Topology as workers read it, without what a scale or policy edit changes: its bytes,
and so the plan's ConfigMap and the template hash, stay the same through such edits, and no pod that stays is
touched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.api.topology import DURABILITY_IN_CLUSTER, Topology
from penstock_operator.cluster.kubernetes_api.names import short_hash

_SCALE_OF_SPEC = ("taskCpu", "priority", "paused", "deletionPolicy", "storeMemory")
_SCALE_OF_WORKERS = ("min", "max", "initial", "warm", "cores")
_POD_OF_SPEC = ("image", "imagePullPolicy", "pod")
"""In the template, but of no use to a worker."""


def workers_manifest(topology: Topology) -> dict[str, Any]:
    """The Topology for its workers' plan: defaults left out, durability always said."""
    spec = _spec(topology)
    for name in _POD_OF_SPEC:
        spec.pop(name, None)
    return {
        "apiVersion": topology.api_version,
        "kind": topology.kind,
        "metadata": {"name": topology.metadata.name},
        "spec": spec,
    }


def template_hash(
    topology: Topology,
    image: str,
    code: Mapping[str, str] | None,
    state_uid: str,
    *,
    own_user: bool = True,
) -> str:
    """Eight characters that differ whenever the workers must be made anew. `own_user`: they log in to the
    stores as their topology's own user."""
    template = {
        "spec": _spec(topology),
        "image": image,
        "code": dict(code) if code is not None else None,
        "stateUid": state_uid,
        **({"ownUser": True} if own_user else {}),
    }
    return short_hash(json.dumps(template, sort_keys=True))


def _spec(topology: Topology) -> dict[str, Any]:
    spec: dict[str, Any] = topology.spec.model_dump(by_alias=True, exclude_defaults=True, mode="json")
    for name in _SCALE_OF_SPEC:
        spec.pop(name, None)
    workers = {
        name: value for name, value in spec.pop("workers", {}).items() if name not in _SCALE_OF_WORKERS
    }
    if workers:
        spec["workers"] = workers
    for operator in spec["operators"]:
        operator.pop("tasks", None)
    spec["durability"] = topology.spec.durability or DURABILITY_IN_CLUSTER
    return spec
