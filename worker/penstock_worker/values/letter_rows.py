"""Dead letters as rows of the topology's sink of dead letters (`penstock.dataflow.letter_columns`).

They are outputs of the commit that goes past what failed, as all others are. Keys and records are JSON with
the columns that the operator was given. Neighbour: `stages.letter_box` says which letters go there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.plan import Fanout, Processor, Stage
from penstock.dataflow.schema import Schema
from penstock.store.dead_letters import Place
from penstock.store.letters import INITIAL, INPUT, Letter
from penstock_worker.values.rows import WireRow

RECORD_BYTES_MAX = 256 << 10
"""Of a letter's record, key and error together. Larger ones are for no sink: a message of Kafka's has about a
MiB, in which the text is escaped once more."""
RAISED_CHARACTERS_MAX = 1000

InputRecord = Callable[[Any], object]
"""What a source could not read -> an object for JSON."""


class LetterRows:
    """Of a stage."""

    def __init__(self, stage: Stage) -> None:
        head = stage.head if isinstance(stage.head, Processor) else None
        self._inputs = dict(inputs_of(stage))
        self._initial = head.initial.schema if head is not None and head.initial is not None else None
        self._key: JsonRows | None = None
        if head is not None and head.key_columns:
            columns = (head.input.columns[column] for column in head.key_columns)
            self._key = JsonRows(Schema(tuple(columns)))
        self._records: dict[tuple[str, bool], JsonRows] = {}

    def of(self, place: Place, letter: Letter, input_record: InputRecord | None) -> list[WireRow] | None:
        """The rows of a letter, one for each record, or for a timer; None where it is too large."""
        key = None if letter.key is None or self._key is None else _text(self._key.lines([letter.key]))
        size_bytes = len(letter.error) + len(key or "")
        rows: list[WireRow] = []
        for record in self._texts(place.operator, letter, input_record):
            if size_bytes + len(record or "") > RECORD_BYTES_MAX:
                return None
            rows.append(
                (
                    str(place),
                    place.operator,
                    letter.kind,
                    key,
                    record,
                    letter.raised[:RAISED_CHARACTERS_MAX],
                    letter.error,
                    place.shard,
                    letter.place,
                    letter.attempts,
                    None if letter.expiry_ms is None else letter.expiry_ms * 1000,
                    letter.at_ms * 1000,
                )
            )
        return rows

    def _texts(self, operator: str, letter: Letter, input_record: InputRecord | None) -> Iterator[str | None]:
        if not letter.rows:
            yield None
        elif letter.kind == INPUT:
            for raw in letter.rows:
                yield _json(raw if input_record is None else input_record(raw))
        else:
            records = self._records_of(operator, is_initial=letter.kind == INITIAL)
            for row in letter.rows:
                yield _text(records.lines([row]))

    def _records_of(self, operator: str, *, is_initial: bool) -> JsonRows:
        known = self._records.get((operator, is_initial))
        if known is None:
            schema = self._initial if is_initial else self._inputs[operator]
            if schema is None:
                raise RuntimeError(f"operator {operator} has no rows of its own")
            known = self._records[operator, is_initial] = JsonRows(schema)
        return known


def inputs_of(stage: Stage) -> Iterator[tuple[str, Schema | None]]:
    """Operator -> the schema of its input; None for a source."""
    yield stage.operator, stage.head.input if isinstance(stage.head, Processor) else None
    yield from _inputs_of_steps(stage.out)


def _inputs_of_steps(fanout: Fanout) -> Iterator[tuple[str, Schema | None]]:
    for step in fanout.steps:
        yield step.name, fanout.schema
        yield from _inputs_of_steps(step.out)


def _text(line: bytes) -> str:
    return line.decode().rstrip("\n")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
