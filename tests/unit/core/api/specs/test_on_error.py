"""`onError` in a manifest: what it means, its short form, and what is wrong with it."""

from __future__ import annotations

import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import parse_manifest
from penstock.dataflow.on_error import DEAD_LETTER, FAIL, FAILS, OnError
from penstock.dataflow.plan import Plan
from penstock.manifest.faults import InvalidManifest

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: counting}
spec:
  code: {module: code}
  operators:
  - name: lines
    source: SOURCE
    onError: ON_SOURCE
  - name: words
    inputs: [lines]
    map: "code:split"
    outputSchema: "word string, at timestamp"
    onError: ON_STEP
  - name: count
    inputs: [words]
    keyBy: [word]
    processor: "code:Count"
    outputSchema: "word string, total long"
    onError: ON_KEY
    MORE
  - name: totals
    inputs: [count]
    sink: {console: {}}
"""
FILES = "{files: {glob: '*.txt', format: text}}"


def text(
    key: str = "Fail", step: str = "Fail", source: str = "Fail", kind: str = FILES, more: str = ""
) -> str:
    made = MANIFEST.replace("ON_SOURCE", source).replace("ON_STEP", step).replace("ON_KEY", key)
    return made.replace("SOURCE", kind).replace("MORE", more)


def plan(**parts: str) -> Plan:
    return compile_topology(parse_manifest(text(**parts)).topology)


def faults(**parts: str) -> list[str]:
    with pytest.raises(InvalidManifest) as raised:
        parse_manifest(text(**parts))
    return [str(fault) for fault in raised.value.faults]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("Fail", FAILS),
        ("{policy: Fail}", FAILS),
        ("DeadLetter", OnError(DEAD_LETTER)),
        ("{policy: DeadLetter, keep: 7}", OnError(DEAD_LETTER, keep=7)),
        ("Retry", OnError(FAIL, 5, 100)),
        (
            "{policy: Retry, attempts: 3, backoff: 1.5s, then: DeadLetter, keep: 9}",
            OnError(DEAD_LETTER, 3, 1500, 9),
        ),
    ],
)
def test_each_operator_has_the_policy_that_stands_there(given: str, meant: OnError) -> None:
    found = plan(key=given, step=given)
    assert found.stage("count").on_error == meant
    assert found.stage("lines").out.steps[0].on_error == meant
    assert found.stage("lines").on_error == FAILS


def test_a_source_keeps_lines_apart_that_are_no_rows() -> None:
    assert plan(source="DeadLetter").stage("lines").on_error == OnError(DEAD_LETTER)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"key": "Ignore"}, "'Ignore' is none of Fail, DeadLetter"),
        ({"key": "{policy: DeadLetter, attempts: 3}"}, "onError.attempts: belongs to policy Retry"),
        ({"key": "{policy: Fail, keep: 3}"}, "onError.keep: is of dead letters"),
        ({"key": "{policy: Retry, keep: 3}"}, "onError.keep: is of dead letters"),
        ({"key": "{policy: Retry, attempts: 0}"}, "attempts"),
        ({"key": "{policy: Retry, backoff: 0s}"}, "backoff"),
        ({"source": "Retry"}, "what a source cannot read stays so"),
        ({"source": "DeadLetter", "kind": "{zipf: {keys: 5}}"}, "only files"),
        ({"key": "Retry", "more": "tasks: {min: 0}"}, "with onError Retry give 1 or more"),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_place(parts: dict[str, str], told: str) -> None:
    assert any(told in fault and "onError" in fault for fault in faults(**parts))


def test_the_api_server_is_given_the_whole_form() -> None:
    with pytest.raises(InvalidManifest, match=r"give onError: \{policy: DeadLetter\}"):
        parse_manifest(
            text(key="DeadLetter", step="{policy: Fail}", source="{policy: Fail}"), runtime="cluster"
        )


def test_a_sink_has_none() -> None:
    with pytest.raises(InvalidManifest, match="onError: a sink has none"):
        parse_manifest(text().replace("sink: {console: {}}", "sink: {console: {}}\n    onError: Fail"))
