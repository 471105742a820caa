"""Rows as Kafka's messages: topic, key, value, headers, and when the row was due."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from penstock.connectors.kafka.sink import KafkaSink
from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.schema import Schema
from penstock.store.codec import decode_batch


class OutMessage(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]] | None
    timestamp_ms: int


class Messages:
    """Of one sink, whose rows are of `schema`."""

    def __init__(self, sink: KafkaSink, schema: Schema) -> None:
        self._topic = sink.topic
        places = {name: place for place, name in enumerate(schema.names)}
        self._topic_at = _place(places, sink.topic_column)
        self._key_at = _place(places, sink.key_column)
        self._headers_at = _place(places, sink.headers_column)
        self._values = _values(sink, schema, places)

    def of(self, payload: bytes) -> Iterator[OutMessage]:
        """The messages of one entry's rows, in their order."""
        batch = decode_batch(payload)
        rows = batch.rows
        topics = self._column(rows, self._topic_at)
        keys = self._column(rows, self._key_at)
        headers = self._column(rows, self._headers_at)
        for number, value in enumerate(self._values(rows)):
            yield OutMessage(
                topics[number] or self._topic,
                _bytes(keys[number]),
                value,
                _headers(headers[number]),
                (batch.base_us + batch.deltas_us[number]) // 1000,
            )

    def _column(self, rows: Sequence[Sequence[Any]], place: int | None) -> list[Any]:
        return [None] * len(rows) if place is None else [row[place] for row in rows]


def _place(places: dict[str, int], column: str | None) -> int | None:
    return None if column is None else places[column]


def _values(
    sink: KafkaSink, schema: Schema, places: dict[str, int]
) -> Callable[[Sequence[Sequence[Any]]], list[bytes | None]]:
    """Rows -> their messages' values."""
    if sink.value_column is not None:
        place = places[sink.value_column]
        return lambda rows: [_bytes(row[place]) for row in rows]
    left_out = {sink.topic_column, sink.headers_column}
    kept = [place for name, place in places.items() if name not in left_out]
    lines = JsonRows(Schema(tuple(schema.columns[place] for place in kept)))
    if len(kept) == len(places):
        return lambda rows: list(lines.lines(rows).splitlines())
    return lambda rows: list(lines.lines([row[place] for place in kept] for row in rows).splitlines())


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()


def _headers(value: Any) -> list[tuple[str, str | bytes | None]] | None:
    return None if value is None else [(name, _bytes(of)) for name, of in value]
