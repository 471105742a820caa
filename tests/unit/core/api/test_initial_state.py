"""Initial state in a manifest: the source that reads it, who waits for it, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.compile import compile_topology
from penstock.api.graph import check
from penstock.api.topology import Topology
from penstock.connectors.files import FilesSource
from penstock.dataflow.plan import KeyedEdge, Plan, Processor
from penstock.sla.promise import keyed_edges

OPENING = {"files": {"glob": "opening/*", "format": "jsonl", "schema": "n bigint, word string"}}


def source(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"files": {"glob": f"{name}/*", "format": "jsonl", "schema": "word string"}},
    }


def count(name: str, *inputs: str, **fields: Any) -> dict[str, Any]:
    given = {"keyBy": ["word"], "processor": "m:Count", "outputSchema": "word string", "shards": 8}
    return {"name": name, "inputs": list(inputs), **given, **fields}


def sink(name: str, *inputs: str) -> dict[str, Any]:
    return {"name": name, "inputs": list(inputs), "sink": {"files": {"path": f"{name}/"}}}


def compiled(*operators: dict[str, Any]) -> Plan:
    document = {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "it"},
        "spec": {"code": {"module": "m"}, "operators": list(operators)},
    }
    return compile_topology(Topology.model_validate(document))


def faults(*operators: dict[str, Any]) -> list[str]:
    found = check({"code": {"module": "m"}, "operators": list(operators)}, "local").faults
    return [str(fault) for fault in found]


def test_a_source_of_its_own_reads_it_into_its_operator_alone() -> None:
    plan = compiled(source("words"), count("count", "words", initialState=OPENING), sink("out", "count"))
    reading = plan.stage("count-initial")
    assert isinstance(reading.head, FilesSource)
    assert reading.initial_of == "count"
    assert reading.out.edges == (KeyedEdge("count", (1,), 8),)
    assert [stage.operator for stage in plan.stages] == ["words", "count-initial", "count"]
    head = plan.stage("count").head
    assert isinstance(head, Processor)
    assert head.initial is not None
    assert (head.initial.source, head.initial.key_columns) == ("count-initial", (1,))
    assert plan.stage("count").initial_of == ""


def test_sources_wait_for_that_of_all_operators_that_their_rows_reach_and_readers_for_those_behind() -> None:
    plan = compiled(
        source("words"),
        source("others"),
        count("first", "words", initialState=OPENING),
        count("plain", "others"),
        count("second", "first", "plain", initialState=OPENING),
        count("alone", "others"),
        sink("out", "second", "alone"),
    )
    waits = {stage.operator: stage.waits_for for stage in plan.stages}
    assert waits == {
        "words": ("first-initial", "second-initial"),
        "others": ("second-initial",),
        "first-initial": ("second-initial",),
        "first": (),
        "plain": (),
        "second-initial": (),
        "second": (),
        "alone": (),
    }


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("n bigint", "has no column 'word' of keyBy; its columns are n bigint"),
        (
            "word int",
            "its column 'word' is int, that of the input is string; columns of a key need the same ",
        ),
    ],
)
def test_its_rows_have_the_columns_of_the_key_with_the_same_types(schema: str, told: str) -> None:
    opening = {"files": {"glob": "o/*", "format": "jsonl", "schema": schema}}
    (fault,) = faults(source("words"), count("count", "words", initialState=opening), sink("out", "count"))
    assert fault.startswith(f"spec.operators[1] (count).initialState.files.schema: {told}")


def test_only_a_processor_has_it() -> None:
    (fault,) = faults(source("words") | {"initialState": OPENING}, sink("out", "words"))
    assert "initialState" in fault
    assert "only a processor has a handleInitialState" in fault


def test_the_name_of_its_source_is_free_and_not_too_long() -> None:
    taken = faults(
        source("count-initial"), count("count", "count-initial", initialState=OPENING), sink("o", "count")
    )
    assert "its source is called 'count-initial', as spec.operators[0] (count-initial) is already" in taken[0]
    name = "c" * 40
    (fault,) = faults(source("words"), count(name, "words", initialState=OPENING), sink("o", name))
    assert "which is too long: give the operator a name of at most" in fault


def test_a_schema_that_jsonl_needs_is_asked_for() -> None:
    opening = {"files": {"glob": "o/*", "format": "jsonl"}}
    (fault,) = faults(source("words"), count("count", "words", initialState=opening), sink("o", "count"))
    assert "initialState.files.schema: is missing; format jsonl needs its columns" in fault


def test_it_is_no_part_of_what_flows() -> None:
    plan = compiled(source("words"), count("count", "words", initialState=OPENING), sink("out", "count"))
    assert keyed_edges(plan) == (("words", "count"),)
