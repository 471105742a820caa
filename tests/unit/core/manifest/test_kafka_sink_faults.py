"""What is wrong with a sink of the kind kafka, in words."""

from __future__ import annotations

import pytest

from penstock.connectors.kafka.sink import KafkaSinkSpec
from penstock.dataflow.schema import Column, Schema

SCHEMA = Schema((Column("word", "string"), Column("total", "bigint"), Column("tags", "map<string,string>")))
GOOD = {"bootstrapServers": "k:9092", "topic": "totals"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"keyColumn": "wrod"}, "x.keyColumn: its input has no column 'wrod' (did you mean word?)"),
        ({"topicColumn": "total"}, "x.topicColumn: column 'total' is bigint; it has to be string"),
        ({"valueColumn": "total"}, "x.valueColumn: column 'total' is bigint; it has to be string or binary"),
        (
            {"deliver": "AtLeastOnce", "transactionInterval": "1s"},
            "x.transactionInterval: AtLeastOnce has no transactions; leave it out, or give deliver: "
            "ExactlyOnce",
        ),
        (
            {"security": {"protocol": "SaslSsl", "mechanism": "Plain"}},
            "x.security.credentials: is missing; give the Secret that the login is in, such as "
            "{secret: kafka-login}",
        ),
    ],
)
def test_a_fault_says_what_would_be_right(more: dict[str, object], said: str) -> None:
    assert [
        f"{fault.path}: {fault.message}" for fault in KafkaSinkSpec.faults_of("x", GOOD | more, SCHEMA)
    ] == [said]


def test_without_a_schema_columns_are_not_looked_for() -> None:
    assert KafkaSinkSpec.faults_of("x", GOOD | {"keyColumn": "wrod"}, None) == []


def test_what_a_plan_holds() -> None:
    spec = KafkaSinkSpec.model_validate(GOOD | {"keyColumn": "word", "headersColumn": "tags"})
    assert KafkaSinkSpec.faults_of("x", spec.model_dump(by_alias=True), SCHEMA) == []
    sink = spec.plan("out")
    assert (sink.topic, sink.key_column, sink.headers_column) == ("totals", "word", "tags")
    assert (sink.exactly_once, sink.gather_us) == (True, 100_000)
    often = KafkaSinkSpec.model_validate(GOOD | {"deliver": "AtLeastOnce"}).plan("out")
    assert (often.exactly_once, often.gather_us) == (False, 0)
    assert sink.identity_text() == "topic totals"
