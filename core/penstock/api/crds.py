"""The CRDs of Topology, LatencySLA and Schedule, written from the models.

`python -m penstock.api.crds DIR` writes one YAML file each; `make crds` does so for `crds/`, and a test
fails when those are stale. What the API server has to check beyond types stands in the models as CEL.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock.api.latency_sla import LatencySLA
from penstock.api.schedule import Schedule
from penstock.api.topology import Topology
from penstock.manifest.document import API_GROUP, API_VERSION, EXPECTED, Document
from penstock.manifest.structural import Schema, structural_schema

Column = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    model: type[Document]
    plural: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    scale: tuple[str, str, str] | None = None
    """Where its number is: as wished, as it is, and the labels of what is counted."""
    categories: tuple[str, ...] = ("penstock",)
    """`kubectl get penstock` shows what is in it, and `kubectl delete penstock --all` deletes it: what users
    write, and no more."""


def _column(name: str, type_: str, path: str, wide: bool = False) -> Column:
    column: Column = {"name": name, "type": type_, "jsonPath": path}
    return {**column, "priority": 1} if wide else column


def _condition(type_: str) -> str:
    return f'.status.conditions[?(@.type=="{type_}")].status'


_AGE = _column("Age", "date", ".metadata.creationTimestamp")

_KINDS = (
    _Kind(
        Topology,
        "topologies",
        ("topo",),
        (
            _column("Phase", "string", ".status.phase"),
            _column("Workers", "string", ".status.workers"),
            _column("Tasks", "string", ".status.tasks"),
            _column("Rate", "string", ".status.rate"),
            _column("Latency(p99)", "string", ".status.latency"),
            _column("Shards moving", "integer", ".status.shardsMoving", wide=True),
            _column("SLA met", "string", _condition("SLAMet"), wide=True),
            _column("Durability", "string", ".spec.durability", wide=True),
            _column("Reason", "string", '.status.conditions[?(@.type=="Ready")].message', wide=True),
            _AGE,
        ),
        scale=(".spec.workers.min", ".status.workersDesired", ".status.selector"),
    ),
    _Kind(
        LatencySLA,
        "latencyslas",
        ("lsla",),
        (
            _column("Topology", "string", ".spec.topology"),
            _column("Operator", "string", ".spec.operator"),
            _column("SLA", "string", ".spec.latency"),
            _column("Latency", "string", ".status.latency"),
            _column("Met", "boolean", ".status.met"),
            _column("Tasks", "integer", ".status.tasks"),
            _column("Last scaled", "date", ".status.lastScaled"),
            _column("Window", "string", ".spec.window", wide=True),
            _column("Policy", "string", ".spec.policy", wide=True),
            _column("Success", "number", ".status.successRate", wide=True),
            _column("Last decision", "string", ".status.lastDecision", wide=True),
            _AGE,
        ),
    ),
    _Kind(
        Schedule,
        "schedules",
        ("sched",),
        (
            _column("Topology", "string", ".spec.topology"),
            _column("Operator", "string", ".spec.operator"),
            _column("Version", "integer", ".spec.version"),
            _column("Shards moving", "integer", ".status.shardsMoving"),
            _column("Tasks ready", "integer", ".status.tasksReady"),
            _column("Term", "integer", ".spec.term", wide=True),
            _AGE,
        ),
        categories=(),
    ),
)


def crd(kind: str) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind, as a plain document. KeyError for an unknown kind."""
    found = {item.model.__name__: item for item in _KINDS}[kind]
    group, version = API_VERSION.split("/")
    schema = _open_api(_unshared(structural_schema(found.model)))
    schema["properties"]["apiVersion"] = {"type": "string"}
    schema["properties"]["kind"] = {"type": "string"}
    schema["properties"]["metadata"] = {"type": "object"}
    schema["required"] = ["spec"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{found.plural}.{group}"},
        "spec": {
            "group": API_GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": found.plural,
                "singular": kind.lower(),
                "shortNames": list(found.short_names),
                **({"categories": list(found.categories)} if found.categories else {}),
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, **_scale(found)},
                    "additionalPrinterColumns": list(found.columns),
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _scale(kind: _Kind) -> dict[str, Any]:
    if kind.scale is None:
        return {}
    wished, found, selector = kind.scale
    paths = {"specReplicasPath": wished, "statusReplicasPath": found, "labelSelectorPath": selector}
    return {"scale": paths}


def crd_texts() -> dict[str, str]:
    """File name -> YAML text of all CRDs."""
    return {
        f"{kind.plural}.yaml": yaml.safe_dump(
            _unshared(crd(kind.model.__name__)), sort_keys=False, allow_unicode=True, width=110
        )
        for kind in _KINDS
    }


def write_crds(directory: Path) -> None:
    """Write all CRDs into `directory`, which is made where it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in crd_texts().items():
        (directory / name).write_text(text, encoding="utf-8")


def _unshared(value: Any) -> Any:
    """A copy in which no part stands twice, so that YAML writes no anchors."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def _open_api(schema: Schema) -> Schema:
    """Drop what only the faults' messages need, and join lines of descriptions."""
    schema.pop(EXPECTED, None)
    if "description" in schema:
        schema["description"] = " ".join(schema["description"].split())
    for child in schema.get("properties", {}).values():
        _open_api(child)
    for name in ("items", "additionalProperties"):
        if name in schema:
            _open_api(schema[name])
    return schema


def main(arguments: Sequence[str]) -> int:
    """`python -m penstock.api.crds DIR`; answers the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m penstock.api.crds DIR\n")
        return 2
    write_crds(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
