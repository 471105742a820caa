"""Three data sources as users write them for PySpark, unchanged: a counter, lines of a folder's files, and a
table that is read once. Runs copy this file beside their manifest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows


def _noted(options: Any, what: str) -> None:
    """Write down a call, where a test asks for it."""
    if "log" in options:
        with Path(options["log"]).open("a", encoding="utf-8") as file:
            file.write(what + "\n")


def _slowly(options: Any) -> None:
    """Take the time of a row, where a test wants to have it last."""
    if "rowsPerSecond" in options:
        time.sleep(1 / float(options["rowsPerSecond"]))


class Slice(InputPartition):
    def __init__(self, start: int, end: int, number: int) -> None:
        self.start, self.end, self.number = start, end, number


class Counter(DataSource):
    """Numbers up to `upTo`, at most `perRange` in a range, each range in `partitions` partitions."""

    def schema(self) -> str:
        return "number bigint, partition int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - pyspark's
        return CounterReader(self.options)


class CounterReader(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self.options = options
        self.up_to = int(options.get("upTo", 100))
        self.per_range = int(options.get("perRange", 10))
        self.cut = int(options.get("partitions", 3))

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.per_range)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        assert not isinstance(limit, ReadAllAvailable)
        return {"next": min(self.up_to, start["next"] + limit.max_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Slice]:
        _noted(self.options, f"plan {start['next']} {end['next']}")
        first, count = start["next"], end["next"] - start["next"]
        edges = [first + count * cut // self.cut for cut in range(self.cut + 1)]
        return [Slice(a, b, n) for n, (a, b) in enumerate(pairwise(edges))]

    def read(self, partition: Slice) -> Iterator[tuple[int, int]]:
        for number in range(partition.start, partition.end):
            _slowly(self.options)
            yield number, partition.number

    def commit(self, end: dict[str, int]) -> None:
        _noted(self.options, f"commit {end['next']}")

    def stop(self) -> None:
        _noted(self.options, "stop")


class FolderLines(DataSource):
    """Lines of the files in `folder`, in the order of their names; whole files at a time, some of them."""

    def schema(self) -> str:
        return "file string, line string"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        return FolderReader(self.options)


class FolderReader(SimpleDataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self.options = options
        self.folder = Path(options["folder"])
        self.files_max = int(options.get("filesMax", 2))

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        return {"file": ""}

    def _names(self, behind: str) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.txt") if path.name > behind)

    def _lines(self, names: list[str]) -> Iterator[tuple[str, str]]:
        for name in names:
            for line in (self.folder / name).read_text().splitlines():
                _slowly(self.options)
                yield name, line

    def read(self, start: dict[str, str]) -> tuple[Iterator[tuple[str, str]], dict[str, str]]:
        names = self._names(start["file"])[: self.files_max]
        return self._lines(names), {"file": names[-1] if names else start["file"]}

    def readBetweenOffsets(  # noqa: N802
        self, start: dict[str, str], end: dict[str, str]
    ) -> Iterator[tuple[str, str]]:
        _noted(self.options, f"again {start['file']} {end['file']}")
        return self._lines([name for name in self._names(start["file"]) if name <= end["file"]])

    def commit(self, end: dict[str, str]) -> None:
        _noted(self.options, f"commit {end['file']}")


class Table(DataSource):
    """A bounded table of squares, `rows` of them in `partitions` partitions, in Arrow."""

    def schema(self) -> str:
        return "number bigint, square double"

    def reader(self, schema: Any) -> DataSourceReader:
        return TableReader(self.options)


class TableReader(DataSourceReader):
    def __init__(self, options: Any) -> None:
        self.options = options
        self.rows, self.cut = int(options.get("rows", 50)), int(options.get("partitions", 4))

    def partitions(self) -> list[InputPartition]:
        _noted(self.options, "plan")
        return [InputPartition(number) for number in range(self.cut)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        _noted(self.options, f"read {partition.value}")
        numbers = list(range(partition.value, self.rows, self.cut))
        size = int(self.options.get("batchRows", 1000))
        for begin in range(0, len(numbers), size):
            part = numbers[begin : begin + size]
            for _ in part:
                _slowly(self.options)
            yield pa.RecordBatch.from_pydict({"number": part, "square": [float(n * n) for n in part]})
