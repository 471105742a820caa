"""The manifest that a connector is tested in, written into the test's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import Plan
from penstock.manifest.document import API_VERSION

NAME = "connectors-under-test"
CODE = f"{__package__}.passing"
SHARDS = 2
"""Of the operator in front of a sink."""

Fields = Mapping[str, Any]


def operator(name: str, *inputs: str, **fields: Any) -> dict[str, Any]:
    """One operator of a manifest."""
    return {"name": name, **({"inputs": list(inputs)} if inputs else {}), **fields}


def write_manifest(folder: Path, operators: Sequence[Fields]) -> Path:
    """Into `folder`, from where its relative paths and its modules are looked for."""
    document = {
        "apiVersion": API_VERSION,
        "kind": "Topology",
        "metadata": {"name": NAME},
        "spec": {"code": {"module": CODE}, "operators": [dict(of) for of in operators]},
    }
    path = folder / "topology.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def planned(folder: Path, operators: Sequence[Fields]) -> Plan:
    """Its plan. Raises InvalidManifest with all faults in it."""
    return compile_topology(load_topology(write_manifest(folder, operators)))


def sink_operators(schema: str, sink: Fields, rows_per_s: int | None = None) -> list[dict[str, Any]]:
    """JSON lines in the folder `in`, through shards with numbers, into the sink."""
    files: dict[str, Any] = {"glob": "in/*.jsonl", "format": "jsonl", "schema": schema}
    if rows_per_s is not None:
        files["ratePerSecond"] = rows_per_s
    key = parse_schema(schema).names[0]
    return [
        operator("in", source={"files": files}),
        operator("of", "in", keyBy=[key], processor=f"{CODE}:Passed", outputSchema=schema, shards=SHARDS),
        operator("out", "of", sink=dict(sink)),
    ]
