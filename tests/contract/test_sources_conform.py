"""Every source of ours that needs no server, and users' data sources, through the suite that users have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.connectors import SourceConformance
from penstock_worker.testing.connectors.reading import Partition, Readers

TEXTS = ("a", "deep/b", "empty")


def lines_of(text: str, first: int, last: int) -> list[str]:
    return [f"line {number} of {text}: größer" for number in range(first, last)]


def append(folder: Path, lines: Mapping[str, Sequence[str]], suffix: str) -> None:
    for name, added in lines.items():
        file = folder / "in" / f"{name}.{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in added)


class TestTextFiles(SourceConformance):
    def topology_source(self, folder: Path) -> dict[str, Any]:
        self.texts = {name: lines_of(name, 0, 0 if name == "empty" else 40) for name in TEXTS}
        append(folder, self.texts, "txt")
        return {"files": {"glob": "in/**/*.txt", "format": "text"}}

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {f"in/{name}.txt": lines for name, lines in self.texts.items()}

    def feed(self, folder: Path) -> None:
        more = {name: lines_of(name, 40, 47) for name in TEXTS[1:]}
        append(folder, more, "txt")
        for name, lines in more.items():
            self.texts[name] += lines


class TestJsonlFiles(SourceConformance):
    def topology_source(self, folder: Path) -> dict[str, Any]:
        self.objects = {name: self._rows(name, 0, 40) for name in TEXTS[:2]}
        self._append(folder, self.objects)
        return {
            "files": {
                "glob": "in/**/*.jsonl",
                "format": "jsonl",
                "schema": "name string, n bigint, of array<int>",
            }
        }

    def _rows(self, name: str, first: int, last: int) -> list[tuple[Any, ...]]:
        return [(name, number, [number, None]) for number in range(first, last)]

    def _append(self, folder: Path, rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> None:
        names = ("name", "n", "of")
        lines = {n: [json.dumps(dict(zip(names, row, strict=True))) for row in of] for n, of in rows.items()}
        append(folder, lines, "jsonl")

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {f"in/{name}.jsonl": rows for name, rows in self.objects.items()}

    def feed(self, folder: Path) -> None:
        more = {"a": self._rows("a", 40, 43)}
        self._append(folder, more)
        self.objects["a"] += more["a"]

    def spoil(self, folder: Path) -> str:
        append(folder, {"a": ['{"name": "a", "n": "forty"}']}, "jsonl")
        return r"in/a\.jsonl.*line 41"


class Generated(SourceConformance):
    """A generator is its own oracle: what it gives in one go. Its own tests say that the rows are right."""

    kind = ""
    fields: Mapping[str, Any] = {}

    def topology_source(self, folder: Path) -> dict[str, Any]:
        return {self.kind: dict(self.fields)}

    @pytest.fixture
    def whole(self, readers: Readers, tmp_path: Path) -> dict[str, list[tuple[Any, ...]]]:
        partitions = [Partition(shard) for shard in readers.shards()]
        for partition in partitions:
            owner = readers.owner(partition)
            while not partition.finished:
                owner.step(partition)
        return {partition.shard: partition.rows for partition in partitions}


class TestZipf(Generated):
    kind = "zipf"
    fields: Mapping[str, Any] = {"keys": 50, "exponent": 1.1, "partitions": 2, "records": 101, "seed": 3}


@pytest.mark.parametrize("events", ["Persons", "Auctions", "Bids"])
class TestNexmark(Generated):
    kind = "nexmark"

    @pytest.fixture(autouse=True)
    def _stream(self, events: str) -> None:
        self.fields = {
            "events": events, "eventsTotal": 3000 if events == "Persons" else 1000, "partitions": 2,
            "outOfOrderGroupSize": 50,
        }  # fmt: skip


class OfUsers(SourceConformance):
    """Data sources of PySpark's as users write them: all is one partition."""

    kind = ""
    schema = ""
    options: Mapping[str, str] = {}

    def topology_source(self, folder: Path) -> dict[str, Any]:
        of = {"class": f"scenes.users_sources:{self.kind}", "schema": self.schema, "pollInterval": "20ms"}
        return {"dataSource": {**of, "options": dict(self.options)}}


class TestStreamReader(OfUsers):
    kind = "Counter"
    schema = "number bigint, partition int"
    options: Mapping[str, str] = {"upTo": "61", "perRange": "17", "partitions": "4"}

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        rows = []
        for first in range(0, 61, 17):
            count = min(17, 61 - first)
            edges = [first + count * cut // 4 for cut in range(5)]
            rows += [(n, part) for part in range(4) for n in range(edges[part], edges[part + 1])]
        return {"0": rows}


class TestSimpleStreamReader(OfUsers):
    kind = "FolderLines"
    schema = "file string, line string"

    def topology_source(self, folder: Path) -> dict[str, Any]:
        (folder / "texts").mkdir()
        self.options = {"folder": str(folder / "texts")}
        self.rows: list[tuple[str, str]] = []
        for number in range(7):
            self._file(folder, number, number * 2)
        return super().topology_source(folder)

    def _file(self, folder: Path, number: int, lines: int) -> None:
        name = f"{number}.txt"
        (folder / "texts" / name).write_text("".join(f"{number}-{line}\n" for line in range(lines)))
        self.rows += [(name, f"{number}-{line}") for line in range(lines)]

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {"0": self.rows}

    def feed(self, folder: Path) -> None:
        self._file(folder, 8, 5)

    def spoil(self, folder: Path) -> str:
        (folder / "texts/9.txt").write_bytes(b"\xff\n")
        return r"FolderReader\.read.* raised.*UnicodeDecodeError"


class TestBoundedReader(OfUsers):
    kind = "Table"
    schema = "number bigint, square double"
    options: Mapping[str, str] = {"rows": "40", "partitions": "3", "batchRows": "7"}

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {"0": [(n, float(n * n)) for part in range(3) for n in range(part, 40, 3)]}
