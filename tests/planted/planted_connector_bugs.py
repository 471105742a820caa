"""Faults of connectors that their suite must catch: each class is a source or sink of ours with one planted.

`tests/contract/test_connector_bugs.py` runs this file; which test catches which fault stands there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract.test_sinks_conform import TestJsonlFiles as JsonlSink
from contract.test_sources_conform import TestJsonlFiles as JsonlSource
from contract.test_sources_conform import TestSimpleStreamReader as FolderSource
from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.schema import Schema
from penstock.dataflow.sink import Sink
from penstock.dataflow.source import Source
from penstock.errors import PermanentError
from penstock.store.codec import decode_batch
from penstock_worker.kinds.sources import open_reader
from penstock_worker.sinks.writer import SinkPlace
from penstock_worker.sources.reader import SourceBatch, SourceReader

# Collected here under these names, they would run as what they are: without a fault.
JsonlSink.__test__ = JsonlSource.__test__ = FolderSource.__test__ = False  # type: ignore[attr-defined]


class _Reader:
    """The right one, to be meddled with."""

    def __init__(self, right: SourceReader) -> None:
        self.right = right
        self.reopened: set[str] = set()

    @property
    def paced(self) -> bool:
        return self.right.paced

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        if position:
            self.reopened.add(shard)
        self.right.open(shard, position, now_us)

    def release(self, shard: str) -> None:
        self.right.release(shard)

    def grew(self, shard: str, position: bytes) -> bool:
        return self.right.grew(shard, position)

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        return self.right.read(shard, position, rows_max, bytes_max, now_us)

    def close(self) -> None:
        self.right.close()

    def is_first_behind_reopening(self, shard: str, batch: SourceBatch) -> bool:
        if shard in self.reopened and batch.rows:
            self.reopened.discard(shard)
            return True
        return False


def _source(reader: type[_Reader], kind: type[Any]) -> type[Any]:
    class Planted(kind):  # type: ignore[misc]
        __test__ = True
        within_s = 1.0

        def open_reader(self, operator: str, source: Source, folder: Path) -> SourceReader:
            return reader(open_reader(operator, source, folder))

    return Planted


class _SkipsARow(_Reader):
    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        batch = super().read(shard, position, rows_max, bytes_max, now_us)
        if self.is_first_behind_reopening(shard, batch):
            return replace(batch, rows=batch.rows[1:], timestamps_us=batch.timestamps_us[1:])
        return batch


class _DoublesARow(_Reader):
    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        batch = super().read(shard, position, rows_max - 1 or 1, bytes_max, now_us)
        if len(batch.rows) < rows_max and self.is_first_behind_reopening(shard, batch):
            rows, times = [batch.rows[0], *batch.rows], [batch.timestamps_us[0], *batch.timestamps_us]
            return replace(batch, rows=rows, timestamps_us=times)
        return batch


class _StaysWhereItWas(_Reader):
    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        return replace(super().read(shard, position, rows_max, bytes_max, now_us), position=position)


class _BeginsAnew(_Reader):
    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        if shard in self.reopened:
            self.reopened.discard(shard)
            position = b""
        return super().read(shard, position, rows_max, bytes_max, now_us)


class _GoesByItsOwnPosition(_Reader):
    """As if all that it gave had been committed."""

    def __init__(self, right: SourceReader) -> None:
        super().__init__(right)
        self.own: dict[str, bytes] = {}

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        self.own[shard] = position
        super().open(shard, position, now_us)

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        batch = super().read(shard, self.own[shard], rows_max, bytes_max, now_us)
        self.own[shard] = batch.position
        return batch


class _GivesAllThereIs(_Reader):
    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        return super().read(shard, position, 1 << 20, 1 << 30, now_us)


class _SwapsRows(_Reader):
    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        batch = super().read(shard, position, rows_max, bytes_max, now_us)
        return replace(batch, rows=[*batch.rows[1:2], *batch.rows[:1], *batch.rows[2:]])


class _SaysNotWhenToLookAgain(_Reader):
    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        batch = super().read(shard, position, rows_max, bytes_max, now_us)
        return batch if batch.rows else replace(batch, next_due_us=None)


class _PassesWhatItCannotRead(_Reader):
    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        try:
            return super().read(shard, position, rows_max, bytes_max, now_us)
        except PermanentError:
            return SourceBatch([], [], position, finished=True, next_due_us=None)


class _ForgetsWhatComesLater(_Reader):
    def grew(self, shard: str, position: bytes) -> bool:
        return False


TestSkipsARowAtReopening = _source(_SkipsARow, JsonlSource)
TestDoublesARowAtReopening = _source(_DoublesARow, JsonlSource)
TestStaysWhereItWas = _source(_StaysWhereItWas, JsonlSource)
TestBeginsAnewAtReopening = _source(_BeginsAnew, JsonlSource)
TestGoesByItsOwnPosition = _source(_GoesByItsOwnPosition, JsonlSource)
TestGivesAllThereIs = _source(_GivesAllThereIs, JsonlSource)
TestSwapsRows = _source(_SwapsRows, JsonlSource)
TestSaysNotWhenToLookAgain = _source(_SaysNotWhenToLookAgain, FolderSource)
TestPassesWhatItCannotRead = _source(_PassesWhatItCannotRead, JsonlSource)
TestForgetsWhatComesLater = _source(_ForgetsWhatComesLater, JsonlSource)


# --- writers --------------------------------------------------------------------------------------------


class _Writer:
    """A small right one: a file for each entry, put in place at once; its position is the last number."""

    def __init__(self, sink: Sink, schema: Schema, place: SinkPlace) -> None:
        self.folder = place.base_dir / "out"
        self.folder.mkdir(exist_ok=True)
        self.lines = JsonRows(schema).lines

    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        for number, payload in entries:
            self.put(shard, number, decode_batch(payload).rows)
            position = b"%d" % number
        return position

    def put(self, shard: str, number: int, rows: list[Any]) -> None:
        staged = self.folder / f"{shard.replace('/', '-')}.staged"
        staged.write_bytes(self.lines(rows))
        staged.rename(self.file(shard, number))

    def file(self, shard: str, number: int) -> Path:
        return self.folder / f"{shard.replace('/', '-')}-{number:06}.jsonl"

    def check(self, shard: str, position: bytes) -> None:
        """Files stay."""

    def sync(self, shard: str) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Nothing is open."""


def _sink(writer: Callable[[Sink, Schema, SinkPlace], _Writer]) -> type[Any]:
    class Planted(JsonlSink):
        __test__ = True

        def open_writer(self, sink: Sink, schema: Schema, place: SinkPlace) -> _Writer:
            return writer(sink, schema, place)

        def read_back(self, folder: Path) -> list[Any]:
            import json

            files = sorted((folder / "out").glob("*.jsonl"))
            return [tuple(json.loads(line).values()) for f in files for line in f.read_text().splitlines()]

    return Planted


class _ForgetsItsPosition(_Writer):
    """Numbers its files by itself, from the start again in each process."""

    def __init__(self, sink: Sink, schema: Schema, place: SinkPlace) -> None:
        super().__init__(sink, schema, place)
        self.written: dict[str, int] = {}

    def put(self, shard: str, number: int, rows: list[Any]) -> None:
        self.written[shard] = self.written.get(shard, 0) + 1
        super().put(shard, self.written[shard], rows)


class _Appends(_Writer):
    """One file, wherever the position is."""

    def put(self, shard: str, number: int, rows: list[Any]) -> None:
        with self.file(shard, 0).open("ab") as file:
            file.write(self.lines(rows))


class _KeepsTheLastInMemory(_Writer):
    """Written with the next one."""

    def __init__(self, sink: Sink, schema: Schema, place: SinkPlace) -> None:
        super().__init__(sink, schema, place)
        self.kept: dict[str, tuple[int, list[Any]]] = {}

    def put(self, shard: str, number: int, rows: list[Any]) -> None:
        if shard in self.kept:
            super().put(shard, *self.kept[shard])
        self.kept[shard] = (number, rows)

    def close(self) -> None:
        for shard, (number, rows) in self.kept.items():
            super().put(shard, number, rows)


class _NotesBeforeItWrites(_Writer):
    """What is noted is passed over when it comes again."""

    def put(self, shard: str, number: int, rows: list[Any]) -> None:
        note = self.folder / f"{shard.replace('/', '-')}-{number}.noted"
        try:
            os.close(os.open(note, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        super().put(shard, number, rows)


class _WritesInPlace(_Writer):
    """Row by row, and takes a file that is there for a whole one."""

    def put(self, shard: str, number: int, rows: list[Any]) -> None:
        if self.file(shard, number).exists():
            return
        with self.file(shard, number).open("ab", buffering=0) as file:
            for row in rows:
                file.write(self.lines([row]))


class _TurnsRowsAround(_Writer):
    def put(self, shard: str, number: int, rows: list[Any]) -> None:
        super().put(shard, number, rows[::-1])


class _SkipsTheFirstEntryOfAnOwner(_Writer):
    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        if position and not hasattr(self, "began"):
            self.began = True
            entries = [(number, payload) for number, payload in entries if number != int(position) + 1]
        return super().write(shard, position, entries)


TestIsRight = _sink(_Writer)
TestForgetsItsPosition = _sink(_ForgetsItsPosition)
TestAppends = _sink(_Appends)
TestKeepsTheLastInMemory = _sink(_KeepsTheLastInMemory)
TestNotesBeforeItWrites = _sink(_NotesBeforeItWrites)
TestWritesInPlace = _sink(_WritesInPlace)
TestTurnsRowsAround = _sink(_TurnsRowsAround)
TestSkipsTheFirstEntryOfAnOwner = _sink(_SkipsTheFirstEntryOfAnOwner)
