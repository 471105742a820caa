"""Sinks as users write them for Spark, unchanged: a data source whose stream writer keeps one file for each
batch, and a class in the form of `foreach`. Runs copy this file beside their manifest."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)


def _noted(file: str, what: object) -> None:
    with Path(file).open("a", encoding="utf-8") as out:
        out.write(json.dumps(what, default=str) + "\n")


class Ledger(DataSource):
    """Below `folder`, a file for each batchId: written twice it is the same file."""

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - pyspark's
        if self.options.get("arrow") == "yes":
            return ArrowLedgerWriter(self.options)
        return LedgerWriter(self.options)


@dataclass
class Staged(WriterCommitMessage):
    file: str


class LedgerWriter(DataSourceStreamWriter):
    def __init__(self, options: Any) -> None:
        self.folder = Path(options["folder"])
        self.fails_at = options.get("failsAt", "")

    def _staged(self, rows: list[dict[str, Any]]) -> Staged:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{os.urandom(8).hex()}.staged"
        file.write_text(json.dumps(rows, default=str))
        return Staged(str(file))

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        if self.fails_at == "write":
            raise ValueError("the ledger is closed")
        return self._staged([row.asDict(recursive=True) for row in iterator])

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        if self.fails_at == "commit":
            raise ValueError("the ledger is closed")
        (message,) = messages
        target = self.folder / f"{batchId}.json"
        if target.exists():
            assert target.read_text() == Path(message.file).read_text(), "a batch came again with other rows"
            _noted(str(self.folder / "again.log"), batchId)
        Path(message.file).rename(target)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        _noted(str(self.folder.parent / "aborted"), [batchId, [type(m).__name__ for m in messages]])


class ArrowLedgerWriter(DataSourceStreamArrowWriter, LedgerWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._staged([row for batch in iterator for row in batch.to_pylist()])


class Notes:
    """Writes each call of `foreach` into the file NOTES."""

    file = os.environ.get("NOTES", "")
    refuses: frozenset[tuple[int, int]] = frozenset()

    def open(self, partition_id: int, epoch_id: int) -> bool:
        self.batch = (partition_id, epoch_id)
        _noted(self.file, ["open", partition_id, epoch_id])
        return self.batch not in self.refuses

    def process(self, row: Row) -> None:
        if row.asDict().get("word") == "bad":
            raise ValueError("a bad word")
        _noted(self.file, ["process", *self.batch, row.asDict(recursive=True)])

    def close(self, error: BaseException | None) -> None:
        _noted(self.file, ["close", *self.batch, None if error is None else str(error)])


def printed(row: Row) -> None:
    """A plain function."""
    sys.stdout.write(f"{row.asDict(recursive=True)}\n")


# --- how they are read from outside


def rows_in_ledger(folder: Path) -> list[tuple[Any, ...]]:
    """Rows of the batches in a ledger, by their ids."""
    batches = sorted(folder.glob("*.json"), key=lambda file: int(file.stem))
    return [tuple(row.values()) for file in batches for row in json.loads(file.read_text())]


def batches_closed(notes: Path) -> list[tuple[Any, ...]]:
    """Rows of the batches in `Notes`' file that were closed, each once."""
    given: dict[tuple[int, int], list[Any]] = {}
    closed: dict[tuple[int, int], list[Any]] = {}
    for line in notes.read_text().splitlines() if notes.exists() else ():
        step, partition, epoch, *more = json.loads(line)
        if step == "open":
            given[partition, epoch] = []
        elif step == "process":
            given[partition, epoch].append(tuple(more[0].values()))
        elif more == [None]:
            closed.setdefault((partition, epoch), given[partition, epoch])
    return [row for batch in sorted(closed) for row in closed[batch]]
