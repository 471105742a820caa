"""Records that their format cannot read: passed over among others, and read again as letters have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import parse_manifest
from penstock.connectors.kafka.source import KafkaSource
from penstock_worker.sources.kafka.formats import (
    KeptRecord,
    RecordRefused,
    RecordRows,
    kept,
    shown_record,
)

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: orders}
spec:
  operators:
  - name: orders
    source:
      kafka:
        bootstrapServers: "localhost:9092"
        topics: [orders]
        value: {format: json, schema: "id long"}
        metadata: {offset: at_offset}
    onError: DeadLetter
  - name: out
    inputs: [orders]
    sink: {console: {}}
"""


@pytest.fixture
def rows() -> RecordRows:
    source = compile_topology(parse_manifest(MANIFEST).topology).stage("orders").head
    assert isinstance(source, KafkaSource)
    return RecordRows(source, Path())


def record(offset: int, value: bytes | None) -> Any:
    return KeptRecord(["orders", 3, offset, [1, 1_000], b"k", value, [["h", b"x"]]])


def test_records_that_mean_nothing_are_told_apart_from_the_others(rows: RecordRows):
    given = [
        record(0, b'{"id": 1}'),
        record(1, b"{"),
        record(2, None),
        record(3, b"\xff"),
        record(4, b'{"id": 2}'),
    ]
    found, bad = rows.sparing(given)
    assert found == [(1, 0), (None, 2), (2, 4)]
    assert [one.place for one in bad] == [f"topic orders, partition 3, offset {n}" for n in (1, 3)]
    assert all(one.place in one.error and "the value" in one.error for one in bad)
    with pytest.raises(RecordRefused, match=r"offset [13]"):
        rows.rows(given)


def test_a_record_of_a_letter_is_read_as_it_was(rows: RecordRows):
    _, (bad,) = rows.sparing([record(7, b"{")])
    packed = msgspec.msgpack.decode(msgspec.msgpack.encode(bad.raw))
    assert kept(KeptRecord(packed)) == bad.raw
    with pytest.raises(RecordRefused):
        rows.rows([cast("Any", KeptRecord(packed))])
    packed[5] = b'{"id": 9}'
    assert rows.rows([cast("Any", KeptRecord(packed))]) == [(9, 7)]


def test_a_record_of_a_letter_in_a_sink_is_an_object_and_what_is_no_text_is_base64():
    assert shown_record(kept(record(7, b"{"))) == {
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": 1_000,
        "key": "k",
        "value": "{",
        "headers": [{"key": "h", "value": "x"}],
    }
    shown = shown_record(["orders", 3, 8, [0, -1], None, b"\xff", None])
    assert shown == {
        "topic": "orders",
        "partition": 3,
        "offset": 8,
        "timestamp": -1,
        "key": None,
        "valueBase64": "/w==",
    }
