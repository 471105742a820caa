"""`locality: Auto` in a manifest: what the plan holds of it, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.compile import compile_topology
from penstock.api.graph import check
from penstock.api.topology import Topology
from penstock.dataflow.plan import Plan, Processor
from penstock.locality.routed_plan import keyed_operators, routed_plan

SCHEMA = "tag string, land string, weight double, place struct<x: int>"


def source(name: str = "posts") -> dict[str, Any]:
    return {"name": name, "source": {"files": {"glob": "in/*", "format": "jsonl", "schema": SCHEMA}}}


def keyed(name: str, *inputs: str, key: str = "tag", **fields: Any) -> dict[str, Any]:
    given = {"keyBy": [key], "processor": "m:Count", "outputSchema": SCHEMA, "shards": 8}
    return {"name": name, "inputs": list(inputs), **given, **fields}


def step(name: str, *inputs: str) -> dict[str, Any]:
    return {"name": name, "inputs": list(inputs), "map": "m:step", "outputSchema": SCHEMA}


def sink(*inputs: str) -> dict[str, Any]:
    return {"name": "out", "inputs": list(inputs), "sink": {"console": {}}}


def spec(*operators: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"code": {"module": "m"}, "operators": list(operators), **more}


def compiled(*operators: dict[str, Any], **more: Any) -> Plan:
    document = {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "it"},
        "spec": spec(*operators, **more),
    }
    return compile_topology(Topology.model_validate(document))


def faults(*operators: dict[str, Any]) -> list[str]:
    return [str(fault) for fault in check(spec(*operators), "local").faults]


def test_the_plan_says_whose_keys_tables_may_place_and_what_is_counted() -> None:
    plan = compiled(
        source(),
        keyed("tags", "posts", locality="Auto"),
        keyed("lands", "tags", key="land", locality="Auto"),
        keyed("others", "tags", key="land"),
        sink("lands", "others"),
    )
    heads = {s.operator: s.head.locality for s in plan.stages if isinstance(s.head, Processor)}
    assert heads == {"tags": True, "lands": True, "others": False}
    edges = {(s.operator, e.operator): e.locality for s in plan.stages for e in s.out.edges}
    assert edges == {("posts", "tags"): True, ("tags", "lands"): True, ("tags", "others"): False}
    routed = routed_plan(plan)
    assert routed.names == ("tags", "lands")
    assert routed.edges == (("tags", "lands"),)
    assert [each.producers for each in routed.operators] == [("posts",), ("tags",)]
    assert not routed.dry_run
    assert keyed_operators(plan) == ("tags", "lands", "others")


def test_without_it_nothing_is_counted_and_no_table_is_looked_for() -> None:
    plan = compiled(source(), keyed("tags", "posts", locality="Off"), keyed("lands", "tags"), sink("lands"))
    assert not routed_plan(plan).operators
    assert not any(edge.locality for stage in plan.stages for edge in stage.out.edges)


def test_an_operator_with_a_table_of_earlier_times_is_known_and_not_counted() -> None:
    plan = compiled(source(), keyed("tags", "posts"), keyed("lands", "tags", key="land"), sink("lands"))
    routed = routed_plan(plan, {"lands"})
    assert routed.names == ("lands",)
    assert routed.operators[0].producers == ("tags",)
    assert routed.edges == ()


def test_steps_may_stand_between_two_operators() -> None:
    plan = compiled(
        source(),
        keyed("tags", "posts", locality="Auto"),
        step("clean", "tags"),
        keyed("lands", "clean", key="land", locality="Auto"),
        sink("lands"),
    )
    assert routed_plan(plan).edges == (("tags", "lands"),)


def test_a_dry_run_is_part_of_the_plan() -> None:
    two = (keyed("tags", "posts", locality="Auto"), keyed("lands", "tags", key="land", locality="Auto"))
    assert routed_plan(compiled(source(), *two, sink("lands"), locality={"dryRun": True})).dry_run


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"timeMode": "EventTime"}, "Auto does not go together with timeMode: EventTime"),
        (
            {"initialState": {"files": {"glob": "a/*", "format": "jsonl", "schema": SCHEMA}}},
            "Auto does not go together with initialState",
        ),
        ({"key": "weight"}, "column 'weight' is double; key by columns that are no structs"),
        ({"key": "place"}, "key by columns that are no structs"),
    ],
)
def test_what_no_table_can_do_is_refused(fields: dict[str, Any], said: str) -> None:
    found = faults(
        source(),
        keyed("tags", "posts", locality="Auto"),
        keyed("lands", "tags", locality="Auto", **fields),
        sink("lands"),
    )
    assert any("(lands).locality" in fault and said in fault for fault in found), found


def test_rows_of_a_transform_go_by_no_table() -> None:
    found = faults(
        source(),
        {"name": "mixed", "inputs": ["posts"], "transform": "m:mixed", "outputSchema": SCHEMA},
        step("clean", "mixed"),
        keyed("tags", "clean", locality="Auto"),
        keyed("lands", "tags", key="land", locality="Auto"),
        sink("lands"),
    )
    assert found == [
        "spec.operators[3] (tags).locality: Auto does not go together with rows of transform 'mixed': what a "
        "Spark job puts out does not go by tables; give Off"
    ]


def test_one_operator_alone_meets_nobody() -> None:
    found = faults(
        source(), keyed("tags", "posts", locality="Auto"), keyed("lands", "tags", key="land"), sink("lands")
    )
    assert found == [
        "spec.operators[1] (tags).locality: Auto needs two processors that rows go between, both with Auto; "
        "give lands locality: Auto too, or give Off"
    ]
    found = faults(source(), keyed("tags", "posts", locality="Auto"), sink("tags"))
    assert "no processor stands before or behind it" in found[0]


def test_off_is_off_with_quotes_and_without() -> None:
    for off in ("Off", False):
        operators = (source(), keyed("tags", "posts", locality=off), sink("tags"))
        assert not routed_plan(compiled(*operators)).operators
        assert faults(*operators) == []


def test_only_a_processor_has_it() -> None:
    found = faults({**source(), "locality": "Auto"}, sink("posts"))
    assert found == [
        "spec.operators[0] (posts).locality: a source has none: only keys of a processor without event time "
        "go by tables; leave it out"
    ]
