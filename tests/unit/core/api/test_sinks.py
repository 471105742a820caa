"""`spec.deadLetters` in a manifest: what it means, and what is wrong with it, as sentences."""

from __future__ import annotations

import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import parse_manifest
from penstock.connectors.data_source import DataSourceSink
from penstock.connectors.files import JsonlSink
from penstock.connectors.foreach import ForeachSink
from penstock.connectors.foreach_batch import ForeachBatchSink
from penstock.dataflow.identity import differences, identity_of, stage_digest
from penstock.dataflow.letter_columns import DEAD_LETTERS, LETTER_SCHEMA
from penstock.dataflow.outline import outline
from penstock.dataflow.plan import Plan, Processor
from penstock.manifest.faults import InvalidManifest

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: counting}
spec:
  code: {module: code}
  deadLetters: LETTERS
  operators:
  - name: lines
    source: {files: {glob: '*.txt', format: text}}
    onError: {policy: DeadLetter}
  - name: words
    inputs: [lines]
    map: "code:split"
    outputSchema: "word string, at timestamp"
    onError: {policy: DeadLetter, to: Store}
  - name: count
    inputs: [words]
    keyBy: [word]
    processor: "code:Count"
    outputSchema: "word string, total long"
    onError: ON_KEY
  - name: totals
    inputs: [count]
    sink: {files: {path: out}}
"""
FILES = "{files: {path: dead}}"
RETRY = "{policy: Retry, then: DeadLetter}"


def text(letters: str = FILES, key: str = RETRY) -> str:
    made = MANIFEST.replace("LETTERS", letters).replace("ON_KEY", key)
    return made if letters else made.replace("  deadLetters: \n", "")


def plan(letters: str = FILES, key: str = RETRY) -> Plan:
    return compile_topology(parse_manifest(text(letters, key)).topology)


def faults(letters: str = FILES, key: str = RETRY, **changes: str) -> list[str]:
    made = text(letters, key)
    for change in changes.values():
        before, _, after = change.partition(" -> ")
        made = made.replace(before, after)
    with pytest.raises(InvalidManifest) as raised:
        parse_manifest(made)
    return [str(fault) for fault in raised.value.faults]


def test_every_stage_delivers_to_the_sink_and_operators_say_what_goes_there() -> None:
    made = plan()
    assert [stage.dead_letters for stage in made.stages] == [JsonlSink(DEAD_LETTERS, "dead")] * 2
    policies = {name: policy for stage in made.stages for name, policy in stage.policies.items()}
    assert {name: policy.to_sink for name, policy in policies.items()} == {
        "lines": True,
        "words": False,
        "count": True,
    }
    assert (JsonlSink(DEAD_LETTERS, "dead"), LETTER_SCHEMA) in made.stage("count").all_sinks()
    (shown,) = [operator for operator in outline(made) if operator.name == DEAD_LETTERS]
    assert (shown.kind, shown.stages) == ("sink", ("lines", "count"))


def test_without_a_sink_letters_stay_in_the_store() -> None:
    made = plan("")
    assert [stage.dead_letters for stage in made.stages] == [None, None]
    assert not any(policy.to_sink for stage in made.stages for policy in stage.policies.values())


def test_a_sink_that_is_a_stage_comes_behind_all_others() -> None:
    made = plan("{foreachBatch: {call: 'code:write'}}")
    last = made.stages[-1]
    assert isinstance(last.head, Processor)
    assert (last.operator, last.head.input, last.head.batches_to) == (
        DEAD_LETTERS,
        LETTER_SCHEMA,
        ForeachBatchSink(DEAD_LETTERS, "code:write"),
    )
    assert [sink.name for sink, _ in made.stage("count").all_sinks()] == ["totals"]
    assert made.stage("count").dead_letters == last.head.batches_to


def test_sinks_that_number_batches_know_all_that_may_ever_write_them() -> None:
    sinks = [
        plan(letters, "{policy: Fail}").stage("count").dead_letters
        for letters in ("{foreach: {call: 'code:one'}}", "{dataSource: {class: 'code:Orders'}}")
    ]
    assert [sink.feeders for sink in sinks if isinstance(sink, ForeachSink | DataSourceSink)] == [
        ("count", "lines")
    ] * 2


def test_state_goes_on_with_a_sink_that_came_and_not_with_another_one() -> None:
    before, now, moved = (identity_of(plan(letters)) for letters in ("", FILES, "{files: {path: else}}"))
    assert differences(before, now) == []
    assert differences(now, moved) == ["dead-letters.deadLetters: was files below dead, is files below else"]
    assert differences(now, before) == ["dead-letters.deadLetters: was files below dead, is nothing"]
    assert stage_digest(plan("").stage("count")) != stage_digest(plan().stage("count"))


@pytest.mark.parametrize(
    ("letters", "key", "told"),
    [
        (
            "",
            "{policy: DeadLetter, to: Sink}",
            "spec.operators[2] (count).onError.to: Sink needs spec.deadLetters, which says which one, such "
            "as {files: {path: out/dead}}; give that, or to: Store",
        ),
        (
            FILES,
            "{policy: DeadLetter, keep: 5}",
            "spec.operators[2] (count).onError.keep: is of dead letters in the store, and these go to the "
            "sink of spec.deadLetters; give to: Store, or leave it out",
        ),
        (
            FILES,
            "{policy: Fail, to: Sink}",
            "spec.operators[2] (count).onError.to: is of dead letters; give policy: DeadLetter, or then: "
            "DeadLetter, or leave it out",
        ),
        (
            "{}",
            RETRY,
            "spec.deadLetters: is empty; give exactly one of files, console, kafka, dataSource, foreach and "
            "foreachBatch",
        ),
        (
            "{console: {}, files: {path: dead}}",
            RETRY,
            "spec.deadLetters: has files and console; give exactly one of files, console, kafka, dataSource, "
            "foreach and foreachBatch",
        ),
        (
            "{files: {path: ./out}}",
            RETRY,
            "spec.deadLetters.files.path: totals writes into this folder already; give each sink one of its "
            "own",
        ),
        (
            "{kafka: {bootstrapServers: 'b:9092', topic: dead, keyColumn: user}}",
            RETRY,
            "spec.deadLetters.kafka.keyColumn: its input has no column 'user'",
        ),
        (
            "{kafka: {bootstrapServers: 'b:9092', topic: dead, keyColumn: time}}",
            RETRY,
            "spec.deadLetters.kafka.keyColumn: column 'time' is timestamp; it has to be string or binary or "
            "tinyint or smallint or int or bigint",
        ),
    ],
)
def test_what_is_wrong_is_told_with_what_would_be_right(letters: str, key: str, told: str) -> None:
    assert faults(letters, key) == [told]


def test_letters_that_stay_may_have_a_bound_beside_a_sink() -> None:
    policy = plan(FILES, "{policy: DeadLetter, to: Store, keep: 5}").stage("count").on_error
    assert (policy.keep, policy.to_sink) == (5, False)


def test_an_operator_cannot_be_called_as_the_sink_is() -> None:
    (told,) = faults(rename="name: totals -> name: dead-letters")
    assert told == (
        "spec.operators[3] (dead-letters).name: the sink of spec.deadLetters is called 'dead-letters', and "
        "so is this operator; rename it. Dead letters have columns of their own, so no operator's rows go "
        "there too"
    )


def test_code_in_the_main_process_does_not_go_with_remote_tasks() -> None:
    (told,) = faults(
        "{foreachBatch: {call: 'code:write'}}",
        remote="code: {module -> remoteTasks: Allowed\n  code: {module",
    )
    assert told.startswith("spec.remoteTasks: Allowed does not go together with spec.deadLetters: ")
