"""What a manifest may say of a join, what the plan has of it, and in which words the rest is refused."""

from __future__ import annotations

import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import parse_manifest
from penstock.dataflow.identity import identity_of
from penstock.dataflow.interval_join import IntervalJoin, JoinSide
from penstock.dataflow.plan import KeyedEdge, Plan, Processor, Projection
from scenes.manifest_texts import faults_of

ADS = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: ads}
spec:
  operators:
  - name: shown
    source:
      files: {glob: "shown/*", format: jsonl, schema: "ad bigint, user string, at timestamp"}
    eventTime: {column: at, allowedDelay: 10s}
  - name: clicked
    source:
      files: {glob: "clicked/*", format: jsonl, schema: "time timestamp, what bigint, who string"}
    eventTime: {column: time}
  - name: matched
    inputs: [shown, clicked]
    join:
      left: {key: [user, ad]}
      right: {key: [who, what], columns: [{column: time, as: clicked}]}
      before: 1s
      after: 10s
      kind: LeftOuter
    lateTo: {files: {path: out/late}}
    shards: 8
  - name: results
    inputs: [matched]
    sink: {files: {path: out/results}}
"""
JOIN = "spec.operators[2] (matched)"


def changed(*replacements: tuple[str, str]) -> str:
    text = ADS
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def plan_of(*replacements: tuple[str, str]) -> Plan:
    return compile_topology(parse_manifest(changed(*replacements)).topology)


def test_a_join_needs_no_code_and_is_a_keyed_stage_by_the_event_times_of_both_inputs() -> None:
    assert faults_of(ADS) == []
    assert faults_of(ADS, runtime="cluster") == []
    plan = plan_of()
    head = plan.stage("matched").head
    assert isinstance(head, Processor)
    left = JoinSide("at", (("ad", "ad"), ("user", "user"), ("at", "at")))
    assert head.join == IntervalJoin(
        left, JoinSide("time", (("time", "clicked"),)), -1_000, 10_000, "leftOuter"
    )
    assert (head.target, head.form, head.time_mode) == ("", "Rows", "EventTime")
    assert head.producers == ("shown", "clicked")
    assert head.key_columns == (0, 1)
    assert head.input.names == ("user", "ad", "eventTime", "left", "right")
    assert head.event_column == 2
    assert head.input.columns[4].type == "struct<time:timestamp,what:bigint,who:string>"
    assert plan.stage("matched").out.schema.ddl() == (
        "`ad` bigint, `user` string, `at` timestamp, `clicked` timestamp"
    )


def test_rows_go_to_the_shard_of_their_key_whatever_it_is_called() -> None:
    plan = plan_of()
    assert plan.stage("shown").out.edges == (KeyedEdge("matched", (1, 0), 8, Projection((1, 0), 2, 0)),)
    assert plan.stage("clicked").out.edges == (KeyedEdge("matched", (2, 1), 8, Projection((2, 1), 0, 1)),)


def test_distances_may_be_none_and_are_whole_milliseconds() -> None:
    head = plan_of(("before: 1s", "before: 0s"), ("after: 10s", "after: 1500ms")).stage("matched").head
    assert isinstance(head, Processor)
    assert head.join is not None
    assert (head.join.lower_ms, head.join.upper_ms) == (0, 1_500)
    (fault,) = faults_of(changed(("before: 1s", "before: 1500us")))
    assert fault.startswith(f"{JOIN}.join.before: '1500us' is no whole number of milliseconds")


def test_sides_keys_and_bounds_are_fixed_for_life() -> None:
    found = identity_of(plan_of())
    assert found["matched.join"] == "leftOuter join of at and time, -1000 to 10000 ms"
    assert (found["matched.join.left.key"], found["matched.join.right.key"]) == ("user, ad", "who, what")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "[user, ad]}",
            "[user, adv]}",
            "join.left.key[1]: its input has no column 'adv' (did you mean ad?); columns are ad bigint",
        ),
        (
            "[who, what],",
            "[who],",
            "join.right.key: has 1 columns, left.key has 2; they are compared one by one",
        ),
        (
            "[who, what],",
            "[what, who],",
            "join.right.key[0]: 'what' is bigint, 'user' of the left is string; keys are compared as",
        ),
        (
            "column: time, as",
            "column: times, as",
            "join.right.columns[0].column: its input has no column 'times'",
        ),
        ("as: clicked}", "as: at}", "join: column 'at' comes out twice (case does not count); rename one"),
        ("inputs: [shown, clicked]", "inputs: [shown]", "inputs: a join has two, left and right; it has 1"),
        (
            "    eventTime: {column: time}\n",
            "",
            "inputs[1]: a join needs an event time on every path here: source 'clicked' has none; give it "
            "eventTime: {column: time}",
        ),
        (
            "    shards: 8\n",
            "    shards: 8\n    keyBy: [user]\n",
            "keyBy: a join has none: left.key and right.key say what has to be equal; leave it out",
        ),
        (
            "    shards: 8\n",
            '    shards: 8\n    outputSchema: "ad bigint"\n',
            "outputSchema: a join has none: its columns are those of left and right; leave it out",
        ),
        (
            "    shards: 8\n",
            "    tasks: {min: 0}\n",
            "tasks.min: 0 leaves no task that fires timers; for a join give",
        ),
    ],
)
def test_what_is_wrong_with_a_join_is_told_with_its_place(old: str, new: str, told: str) -> None:
    found = [fault for fault in faults_of(changed((old, new))) if fault.startswith(JOIN)]
    assert [fault for fault in found if fault.startswith(f"{JOIN}.{told}")], found


def test_behind_a_join_there_is_no_event_time() -> None:
    window = (
        "  - name: minutes\n    inputs: [matched]\n    keyBy: [ad]\n    window: {tumbling: 1m}\n"
        "    aggregate: [{as: n, function: count}]\n  - name: results\n    inputs: [minutes]\n"
    )
    (fault,) = faults_of(changed(("  - name: results\n    inputs: [matched]\n", window)))
    assert "there is none behind join 'matched', whose rows have two times" in fault


def test_a_key_is_not_called_as_a_column_of_the_joins_own() -> None:
    (fault,) = faults_of(changed(("ad bigint, user", "ad bigint, left"), ("[user, ad]", "[left, ad]")))
    assert fault.endswith("a column of left.key is called 'left', as one of the join's; rename it")
