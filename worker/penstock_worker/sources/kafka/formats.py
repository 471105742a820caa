"""Records as rows: what keys and values hold, and what a record has beside them.

Neighbours: `penstock.connectors.kafka.formats` says which columns a format has, `reader` hands records over.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import methodcaller
from pathlib import Path
from typing import Any, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from penstock.connectors.kafka.formats import REGISTERED, KafkaFormat
from penstock.connectors.kafka.source import KafkaSource
from penstock.dataflow.json_lines import BadLine, JsonLines
from penstock.errors import PermanentError
from penstock_worker.sources.kafka.bad_record import BadRecord
from penstock_worker.sources.reader import BadInput

Row = tuple[Any, ...]
Decode = Callable[[Sequence[bytes]], Sequence[Row]]
"""Keys or values that are there -> their columns. Raises BadRecord for the first that means nothing."""


_VALUE, _KEY, _TOPIC, _PARTITION, _OFFSET = map(
    methodcaller, ("value", "key", "topic", "partition", "offset")
)


class RecordRefused(PermanentError):
    """A record means nothing; the message says where it is, and why."""


class KeptRecord:
    """A record that was refused, as a dead letter has it (`kept`): what a format asks of a Message."""

    def __init__(self, kept: Sequence[Any]) -> None:
        self._topic, self._partition, self._offset, self._timestamp, self._key, self._value, headers = kept
        self._headers = None if headers is None else [tuple(header) for header in headers]

    def topic(self) -> Any:
        return self._topic

    def partition(self) -> Any:
        return self._partition

    def offset(self) -> Any:
        return self._offset

    def timestamp(self) -> Any:
        return self._timestamp

    def key(self) -> Any:
        return self._key

    def value(self) -> Any:
        return self._value

    def headers(self) -> Any:
        return self._headers


def kept(record: Any) -> list[Any]:
    """What a dead letter has of a record."""
    headers = record.headers()
    return [
        record.topic(),
        record.partition(),
        record.offset(),
        list(record.timestamp()),
        record.key(),
        record.value(),
        None if headers is None else [list(header) for header in headers],
    ]


def shown_record(raw: list[Any]) -> dict[str, Any]:
    """The same as an object for JSON: bytes that are UTF-8 as text, others in base64 under another name."""
    topic, partition, offset, (_, timestamp_ms), key, value, headers = raw
    shown: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp_ms,
    }
    for name, given in (("key", key), ("value", value)):
        shown |= _as_text(name, given)
    if headers is not None:
        shown["headers"] = [{"key": name, **_as_text("value", given)} for name, given in headers]
    return shown


def _as_text(name: str, given: bytes | str | None) -> dict[str, str | None]:
    if not isinstance(given, bytes):
        return {name: given}
    try:
        return {name: given.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": b64encode(given).decode()}


class RecordRows:
    """Rows of one source, in the order of its schema."""

    def __init__(self, source: KafkaSource, secrets: Path) -> None:
        def decode(format_: KafkaFormat) -> Decode:
            if format_.format in REGISTERED and source.registry is not None:
                # What it needs takes a while to load, and most sources do without.
                from penstock_worker.sources.kafka.registered import Registered

                return Registered(format_, source.registry, secrets).rows
            return _DECODERS[format_.format](format_)

        self._value = _Part("value", source.value, _VALUE, decode(source.value))
        self._key = None if source.key is None else _Part("key", source.key, _KEY, decode(source.key))
        self._metadata = [_METADATA[what] for what, _ in source.metadata]

    def sparing(self, records: Sequence[Message]) -> tuple[list[Row], list[BadInput]]:
        """The rows of those that mean something, and the others. Raises PermanentError and RetryError where
        it is not the records' fault."""
        try:
            return self.rows(records), []
        except RecordRefused:
            rows: list[Row] = []
            bad: list[BadInput] = []
        for record in records:
            try:
                rows += self.rows([record])
            except RecordRefused as refused:
                place = f"topic {record.topic()}, partition {record.partition()}, offset {record.offset()}"
                bad.append(BadInput(kept(record), str(refused), place))
        return rows, bad

    def rows(self, records: Sequence[Message]) -> list[Row]:
        """A row for each. Raises RecordRefused for one that means nothing."""
        parts: list[Sequence[Row]] = [self._value.rows(records)]
        if self._key is not None:
            parts.append(self._key.rows(records))
        if self._metadata:
            parts.append([tuple(of(record) for of in self._metadata) for record in records])
        if len(parts) == 1:
            return list(parts[0])
        return [tuple(chain.from_iterable(of)) for of in zip(*parts, strict=True)]


class _Part:
    def __init__(
        self, name: str, format_: KafkaFormat, of: Callable[[Message], bytes | None], decode: Decode
    ) -> None:
        self._name = name
        self._of = of
        self._decode = decode
        self._nulls = (None,) * len(format_.schema.columns)

    def rows(self, records: Sequence[Message]) -> Sequence[Row]:
        """Where a record has none, nulls."""
        given = list(map(self._of, records))
        there = [one for one in given if one is not None]
        try:
            rows = self._decode(there)
        except BadRecord as bad:
            places = [place for place, one in enumerate(given) if one is not None]
            record = records[places[bad.index]]
            raise RecordRefused(
                f"topic {record.topic()}, partition {record.partition()}, offset {record.offset()}: "
                f"the {self._name} {bad}; correct what writes it, and begin behind that record"
            ) from bad
        if len(there) == len(given):
            return rows
        decoded = iter(rows)
        return [self._nulls if one is None else next(decoded) for one in given]


def _bytes(_: KafkaFormat) -> Decode:
    return lambda given: list(zip(given))


def _string(_: KafkaFormat) -> Decode:
    return lambda given: list(zip(_texts(given)))


def _json(format_: KafkaFormat) -> Decode:
    lines = JsonLines(format_.schema)

    def decode(given: Sequence[bytes]) -> list[Row]:
        try:
            return lines.rows(_texts(given))
        except BadLine as bad:
            raise BadRecord(bad.index, str(bad).removeprefix(": ").removeprefix(", ")) from bad

    return decode


def _texts(given: Sequence[bytes]) -> list[str]:
    texts: list[str] = []
    for one in given:
        try:
            texts.append(one.decode())
        except UnicodeDecodeError as error:
            raise BadRecord(len(texts), f"is not UTF-8 (at byte {error.start})") from error
    return texts


_DECODERS: Mapping[str, Callable[[KafkaFormat], Decode]] = {"bytes": _bytes, "string": _string, "json": _json}


def _timestamp(record: Message) -> int | None:
    kind, milliseconds = record.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds * 1000


def _headers(record: Message) -> list[list[Any]] | None:
    headers = cast("list[tuple[str, bytes | None]] | None", record.headers())
    return None if headers is None else [[key, value] for key, value in headers]


_METADATA: Mapping[str, Callable[[Message], Any]] = {
    "timestamp": _timestamp,
    "topic": _TOPIC,
    "partition": _PARTITION,
    "offset": _OFFSET,
    "headers": _headers,
}
