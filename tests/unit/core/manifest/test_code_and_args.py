"""Code with arguments: beside each other, or in one field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import manifest_text, parse_manifest
from penstock.dataflow.plan import Processor
from penstock.manifest.faults import InvalidManifest
from scenes.manifest_texts import WORD_COUNT, changed, faults_of

BESIDE = changed(
    (
        "map: word_count:split",
        "map: word_count:split\n    args: {least: 2, names: [a, null], deep: {x: 1.5}}",
    ),
    ("processor: word_count:Count", "processor: word_count:Count\n    args: {n: 3}"),
)
WITHIN = changed(
    (
        "map: word_count:split",
        "map: {function: word_count:split, args: {least: 2, names: [a, null], deep: {x: 1.5}}}",
    ),
    ("processor: word_count:Count", "processor: {class: word_count:Count, args: {n: 3}}"),
)


def arguments(text: str, *overrides: str) -> tuple[Any, Any]:
    """Of the step, and of the processor."""
    plan = compile_topology(parse_manifest(text, overrides).topology)
    head = plan.stage("count").head
    assert isinstance(head, Processor)
    return json.loads(plan.stage("lines").out.steps[0].arguments), json.loads(head.arguments)


@pytest.mark.parametrize("text", [BESIDE, WITHIN])
def test_arguments_reach_the_plan_as_they_are(text: str) -> None:
    step = {"least": 2, "names": ["a", None], "deep": {"x": 1.5}}
    assert arguments(text) == (step, {"n": 3})
    assert arguments(text, "count.args.n=4", "words.args={least: 1}") == ({"least": 1}, {"n": 4})
    assert arguments(manifest_text(parse_manifest(text))) == (step, {"n": 3})


def test_code_in_an_object_needs_no_arguments() -> None:
    text = changed(("processor: word_count:Count", "processor: {class: word_count:Count}"))
    assert parse_manifest(text) == parse_manifest(WORD_COUNT)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{clas: word_count:Count}", "processor.clas: unknown field (did you mean class?)"),
        ("{args: {}}", "processor.class: is missing; give 'module:name', such as word_count:Count"),
        ("{class: word_count:Count, form: Rows}", "processor.form: unknown field; known here: class, args"),
        ("{class: Count}", "processor: 'Count' is not 'module:name', such as word_count:split"),
        (
            "{class: word_count:Count, args: {n: 1}}\n    args: {n: 2}",
            "processor.args: stands beside processor too; keep one",
        ),
        (
            "{class: word_count:Count, args: [1]}",
            "args: a list of 1 is not an object of named arguments, such as {least: 5, names: [a, b]}",
        ),
    ],
)
def test_what_is_wrong_with_it_is_told_once(given: str, told: str) -> None:
    assert faults_of(changed(("word_count:Count", given))) == [f"spec.operators[2] (count).{told}"]


def test_a_cluster_takes_them_beside_each_other_alone() -> None:
    assert parse_manifest(BESIDE, runtime="cluster").topologies
    with pytest.raises(InvalidManifest) as refused:
        parse_manifest(WITHIN, runtime="cluster")
    assert [str(fault) for fault in refused.value.faults] == [
        "spec.operators[1] (words).map: the API server takes a text here; give map: word_count:split and "
        "args: {...} beside it",
        "spec.operators[2] (count).processor: the API server takes a text here; give processor: "
        "word_count:Count and args: {...} beside it",
    ]


def test_only_code_that_is_called_has_arguments() -> None:
    (fault,) = faults_of(changed(("sink: {", "args: {n: 1}\n    sink: {")))
    assert fault == (
        "spec.operators[3] (totals).args: a sink has none: only the code of a step or a processor is called "
        "with some; leave it out"
    )


def test_a_name_that_python_cannot_take_is_refused() -> None:
    (fault,) = faults_of(changed(("word_count:Count", "word_count:Count\n    args: {not-a-name: 1}")))
    assert fault.startswith("spec.operators[2] (count).args: 'not-a-name' cannot be a key here")
