"""The CRDs are those of the models, and have the form that the API server asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from house import ROOT
from penstock.api.crds import crd, crd_texts, main

CRDS = ROOT / "crds"
KINDS = ("Topology", "LatencySLA", "Schedule")
ALLOWED = frozenset(
    [
        "type",
        "description",
        "properties",
        "required",
        "items",
        "enum",
        "default",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "maxProperties",
        "pattern",
        "format",
        "anyOf",
        "additionalProperties",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    ]
)


def version_of(kind: str) -> dict[str, Any]:
    (version,) = crd(kind)["spec"]["versions"]
    return dict(version)


def nodes_of(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes_of(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes_of(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes_of(schema["additionalProperties"], f"{path}{{}}")


def nodes(kind: str) -> dict[str, dict[str, Any]]:
    return dict(nodes_of(version_of(kind)["schema"]["openAPIV3Schema"]))


def rules(kind: str, path: str) -> set[str]:
    return {rule["rule"] for rule in nodes(kind)[path].get("x-kubernetes-validations", ())}


def test_the_written_crds_are_those_of_the_models() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in CRDS.glob("*.yaml")}
    assert written == crd_texts(), "crds/ is stale: run `make crds`"


def test_the_writer_makes_the_folder_and_every_file(tmp_path: Path) -> None:
    assert main([str(tmp_path / "new")]) == 0
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names == {"topologies.yaml", "latencyslas.yaml", "schedules.yaml"}
    assert main([]) == 2


def test_who_deletes_all_of_penstock_deletes_what_users_write_and_no_schedules() -> None:
    """`kubectl delete penstock --all`: Schedules say where state is."""
    categories = {kind: crd(kind)["spec"]["names"].get("categories", []) for kind in KINDS}
    assert categories == {"Topology": ["penstock"], "LatencySLA": ["penstock"], "Schedule": []}


@pytest.mark.parametrize("kind", KINDS)
def test_names_subresource_and_columns_are_there(kind: str) -> None:
    document = crd(kind)
    names = document["spec"]["names"]
    assert document["metadata"]["name"] == f"{names['plural']}.penstock.dev"
    assert names["kind"] == kind
    assert names["shortNames"]
    version = version_of(kind)
    assert version["name"] == "v1alpha1"
    assert version["subresources"]["status"] == {}
    assert version["additionalPrinterColumns"][-1]["name"] == "Age"


def test_a_topology_is_scaled_by_its_least_number_of_workers_and_nothing_else_is() -> None:
    scales = {kind: version_of(kind)["subresources"].get("scale") for kind in KINDS}
    assert scales == {
        "Topology": {
            "specReplicasPath": ".spec.workers.min",
            "statusReplicasPath": ".status.workersDesired",
            "labelSelectorPath": ".status.selector",
        },
        "LatencySLA": None,
        "Schedule": None,
    }
    known = nodes("Topology")
    assert set(scales["Topology"].values()) <= known.keys()
    assert known[".spec.workers"]["default"]["min"] == known[".spec.workers.min"]["default"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_columns_name_fields_that_are_there(kind: str) -> None:
    known = nodes(kind)
    for column in version_of(kind)["additionalPrinterColumns"]:
        path = re.sub(r"\[\?\(.*\)\]", "[]", column["jsonPath"])
        assert path in known or path == ".metadata.creationTimestamp", column


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_structural(kind: str) -> None:
    for path, node in nodes(kind).items():
        assert set(node) <= ALLOWED, path
        if node.get("x-kubernetes-int-or-string"):
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}]
        else:
            assert node["type"] in {"object", "array", "string", "integer", "number", "boolean"}, path
            assert "anyOf" not in node
        if node.get("x-kubernetes-preserve-unknown-fields"):
            assert set(node) & {"properties", "additionalProperties"} == set(), path


@pytest.mark.parametrize("kind", KINDS)
def test_lists_and_texts_are_bounded(kind: str) -> None:
    for path, node in nodes(kind).items():
        if path in (".apiVersion", ".kind"):
            continue
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if node.get("type") == "string":
            assert "maxLength" in node or "enum" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path
        if node.get("x-kubernetes-preserve-unknown-fields"):
            assert "maxProperties" in node, path
        elif node.get("type") == "object":
            assert "properties" in node or "additionalProperties" in node or path == ".metadata", path


@pytest.mark.parametrize("kind", KINDS)
def test_every_rule_has_a_sentence(kind: str) -> None:
    for path, node in nodes(kind).items():
        for rule in node.get("x-kubernetes-validations", ()):
            assert rule["message"], path
            assert rule["rule"].count("(") == rule["rule"].count(")")


def test_shards_keys_and_partitions_are_fixed_for_life() -> None:
    operator = rules("Topology", ".spec.operators[]")
    assert any("oldSelf.shards" in rule for rule in operator)
    assert any("self.keyBy == oldSelf.keyBy" in rule for rule in operator)
    zipf = rules("Topology", ".spec.operators[].source.zipf")
    assert "self.partitions == oldSelf.partitions" in zipf
    # Rules on old and new need to know which entry of the list was which.
    operators = nodes("Topology")[".spec.operators"]
    assert operators["x-kubernetes-list-type"] == "map"
    assert operators["x-kubernetes-list-map-keys"] == ["name"]


def test_the_graph_is_fixed_for_life_and_lists_inputs_first() -> None:
    operator = rules("Topology", ".spec.operators[]")
    for name in ("inputs", "outputSchema"):
        assert any(f"self.{name} == oldSelf.{name}" in rule for rule in operator)
    assert any("has(self.processor) == has(oldSelf.processor)" in rule for rule in operator)
    spec = rules("Topology", ".spec")
    assert any("indexOf(i) <" in rule for rule in spec)
    assert any("oldSelf.operators.all(" in rule for rule in spec)
    assert any("oldSelf.durability" in rule for rule in spec)


def test_what_event_time_goes_by_is_fixed_for_life_and_how_long_it_waits_is_not() -> None:
    operator = rules("Topology", ".spec.operators[]")
    assert any("has(self.eventTime) == has(oldSelf.eventTime)" in rule for rule in operator)
    assert any("self.lateTo == oldSelf.lateTo" in rule for rule in operator)
    assert rules("Topology", ".spec.operators[].eventTime") == {"self.column == oldSelf.column"}
    idle = rules("Topology", ".spec.operators[].eventTime.idleAfter")
    assert idle == {"duration(self) >= duration('100ms')"}


def test_a_window_and_what_it_computes_are_fixed_for_life() -> None:
    operator = rules("Topology", ".spec.operators[]")
    assert any("self.window == oldSelf.window" in rule for rule in operator)
    assert any("oldSelf.aggregate.map(a, a.__as__)" in rule for rule in operator)
    assert any("has(self.window) == has(self.aggregate)" in rule for rule in operator)
    aggregates = nodes("Topology")[".spec.operators[].aggregate"]
    assert aggregates["x-kubernetes-list-map-keys"] == ["as"]
    fixed = [rule for rule in rules("Topology", ".spec.operators[].aggregate[]") if "oldSelf" in rule]
    assert ["quantiles" in rule for rule in fixed] == [False]


def test_rules_know_words_of_cels_own_by_their_other_names() -> None:
    for kind in KINDS:
        for path in nodes(kind):
            for rule in rules(kind, path):
                assert not re.search(r"[.](as|function|in|for|if|import|loop|package|namespace)\b", rule), (
                    path
                )


def test_short_names_and_columns_are_those_of_the_documents() -> None:
    assert [crd(kind)["spec"]["names"]["shortNames"] for kind in KINDS] == [["topo"], ["lsla"], ["sched"]]
    columns = [c["name"] for c in version_of("Topology")["additionalPrinterColumns"] if "priority" not in c]
    assert columns == ["Phase", "Workers", "Tasks", "Rate", "Latency(p99)", "Age"]


def test_a_schedules_term_and_version_only_grow() -> None:
    spec = rules("Schedule", ".spec")
    assert {"self.term >= oldSelf.term", "self.version >= oldSelf.version"} <= spec


@pytest.mark.parametrize("kind", KINDS)
def test_conditions_are_a_list_map_by_type(kind: str) -> None:
    conditions = nodes(kind)[".status.conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert {"type", "status", "lastTransitionTime", "reason"} == set(conditions["items"]["required"])
    assert ".status.observedGeneration" in nodes(kind)


def test_defaults_are_plain_values_without_null() -> None:
    for text in crd_texts().values():
        for line in text.splitlines():
            assert not line.endswith(": null")
        assert "&id" not in text
        assert yaml.safe_load(text)["kind"] == "CustomResourceDefinition"
