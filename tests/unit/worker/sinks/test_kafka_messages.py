"""Rows as Kafka's messages."""

from __future__ import annotations

from dataclasses import replace

from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.sink import KafkaSink
from penstock.dataflow.schema import Column, Schema
from penstock.store.codec import encode_batch
from penstock_worker.sinks.kafka.messages import Messages

SINK = KafkaSink("out", KafkaConnection(("k:9092",)), "totals", None, None, None, None, True, 0, "none")
SCHEMA = Schema(
    (
        Column("word", "string"),
        Column("total", "bigint"),
        Column("raw", "binary"),
        Column("where", "string"),
        Column("more", "map<string,binary>"),
    )
)
ROWS = [("a\nb", 1, b"\x00", None, [("h", b"1"), ("i", None)]), (None, 2, None, "other", None)]
PAYLOAD = encode_batch([1_000_500, 2_000_000], ROWS)


def test_a_row_is_a_json_object_without_key_and_headers_as_a_rule() -> None:
    first, second = Messages(SINK, Schema(SCHEMA.columns[:2])).of(
        encode_batch([1_000_500, 2_000_000], [row[:2] for row in ROWS])
    )
    assert first == ("totals", None, b'{"word":"a\\nb","total":1}', None, 1_000)
    assert second == ("totals", None, b'{"total":2}', None, 2_000)


def test_key_topic_and_headers_come_from_columns() -> None:
    sink = replace(SINK, topic_column="where", key_column="word", headers_column="more")
    first, second = Messages(sink, SCHEMA).of(PAYLOAD)
    assert (first.topic, first.key, first.headers) == ("totals", b"a\nb", [("h", b"1"), ("i", None)])
    assert (second.topic, second.key, second.headers) == ("other", None, None)
    assert first.value == b'{"word":"a\\nb","total":1,"raw":"AA=="}', "topic and headers are no part of it"


def test_an_integer_is_a_key_as_text() -> None:
    assert [message.key for message in Messages(replace(SINK, key_column="total"), SCHEMA).of(PAYLOAD)] == [
        b"1",
        b"2",
    ]


def test_a_column_is_the_value_as_it_is_and_null_a_tombstone() -> None:
    raw = Messages(replace(SINK, value_column="raw"), SCHEMA).of(PAYLOAD)
    assert [message.value for message in raw] == [b"\x00", None]
    word = Messages(replace(SINK, value_column="word"), SCHEMA).of(PAYLOAD)
    assert [message.value for message in word] == [b"a\nb", None]
