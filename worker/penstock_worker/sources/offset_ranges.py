"""A user's reader as one thing, whichever of PySpark's three it is: ranges of offsets, partitions, rows.

Each call of user code that raises becomes a UserCodeError that names the reader's method and its input.
Offsets are what JSON makes of them, as in Spark, which keeps them so. Neighbours: `data_source` drives this,
`user_code.data_sources` finds the reader.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from pyspark.sql.datasource import (
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)

from penstock.errors import PermanentError
from penstock_worker.user_code.data_sources import AnyReader
from penstock_worker.user_code.running import raised, users_traceback
from penstock_worker.values.wire_values import shown

Offset = Any
"""What `json.loads` gives."""


class BrokenPromise(PermanentError):
    """A reader does what PySpark's interface forbids; the message says what."""


class OffsetRanges(Protocol):
    """Each method raises UserCodeError or BrokenPromise."""

    bounded: bool
    """Whether its one range is all that there ever is."""

    def initial(self) -> Offset:
        """Where reading begins."""

    def latest(self, start: Offset) -> Offset:
        """The end of the next range; `start` where nothing is new."""

    def partitions(self, start: Offset, end: Offset) -> list[Any]:
        """What the range [start, end) is cut into."""

    def rows(self, partition: Any) -> Iterator[Any]:
        """What the user's reader gives for one of them: rows, or RecordBatches."""

    def commit(self, end: Offset) -> None:
        """All before `end` is durable, and nothing of it will be asked again."""

    def misfit(self, error: BaseException) -> PermanentError:
        """What it comes to that rows do not fit the schema."""

    def stop(self) -> str:
        """Nobody reads any more. Never raises: what user code raised is answered, as text; "" for nothing."""


class UsersReader:
    """Calls of one reader of the user's."""

    def __init__(self, operator: str, reader: Any) -> None:
        self._operator = operator
        self._reader = reader

    def call(self, method: str, what: str, *arguments: Any) -> Any:
        function = getattr(self._reader, method)
        try:
            return function(*arguments)
        except BaseException as error:
            raise self.error(method, what, error) from error

    def offset(self, method: str, what: str, *arguments: Any) -> Offset:
        return self.plain(method, self.call(method, what, *arguments))

    def plain(self, method: str, offset: Any) -> Offset:
        """An offset as it is kept."""
        try:
            if not isinstance(offset, dict):
                raise TypeError("an offset is a dict")
            return json.loads(json.dumps(offset))
        except (TypeError, ValueError) as error:
            raise self.broken(
                f"{method} gave {shown(offset)} for an offset ({error}); give a dict of texts, whole "
                "numbers, booleans and such dicts"
            ) from error

    def iterated(self, method: str, what: str, rows: Any) -> Iterator[Any]:
        """The rows as they come; what is raised on the way is the reader's failure too."""
        if not isinstance(rows, Iterable) or isinstance(rows, str | dict):
            raise self.broken(f"{method} gave {shown(rows)}; give an iterator of rows, or yield them")
        given = iter(rows)
        while True:
            try:
                row = next(given)
            except StopIteration:
                return
            except BaseException as error:
                raise self.error(method, what, error) from error
            yield row

    def error(self, method: str, what: str, error: BaseException) -> PermanentError:
        called = f"{type(self._reader).__name__}.{method}"
        return raised(self._operator, getattr(self._reader, method), called, what, error)

    def broken(self, text: str) -> BrokenPromise:
        return BrokenPromise(f"{type(self._reader).__name__}.{text}")

    def stop(self) -> str:
        """Answers what it raised; "" for nothing."""
        try:
            self._reader.stop()
        except BaseException as error:  # noqa: BLE001 - user code may raise anything; nobody needs it now
            return users_traceback(error)
        return ""


class _OfUser:
    """What all three have."""

    bounded = False

    def __init__(self, operator: str, reader: AnyReader) -> None:
        self._user = UsersReader(operator, reader)

    def misfit(self, error: BaseException) -> PermanentError:
        return self._user.error("read", "in what it gave", error)

    def commit(self, end: Offset) -> None:
        self._user.call("commit", f"of {end}", end)

    def stop(self) -> str:
        return ""


class StreamRanges(_OfUser):
    """Of a DataSourceStreamReader."""

    def __init__(self, operator: str, reader: DataSourceStreamReader) -> None:
        super().__init__(operator, reader)
        self._limited = bool(inspect.signature(reader.latestOffset).parameters)

    def initial(self) -> Offset:
        return self._user.offset("initialOffset", "at the beginning")

    def latest(self, start: Offset) -> Offset:
        if not self._limited:  # as it was before Spark 4.2
            return self._user.offset("latestOffset", f"behind {start}")
        limit = self._user.call("getDefaultReadLimit", f"behind {start}")
        return self._user.offset("latestOffset", f"behind {start}", start, limit)

    def partitions(self, start: Offset, end: Offset) -> list[Any]:
        return _listed_partitions(self._user, _range_words(start, end), start, end)

    def rows(self, partition: Any) -> Iterator[Any]:
        what = f"on {shown(partition)}"
        return self._user.iterated("read", what, self._user.call("read", what, partition))

    def stop(self) -> str:
        return self._user.stop()


class SimpleRanges(_OfUser):
    """Of a SimpleDataSourceStreamReader: what it read to find the end is used, if it is still there."""

    def __init__(self, operator: str, reader: SimpleDataSourceStreamReader) -> None:
        super().__init__(operator, reader)
        self._prefetched: tuple[Offset, Offset, Iterator[Any]] | None = None

    def initial(self) -> Offset:
        return self._user.offset("initialOffset", "at the beginning")

    def latest(self, start: Offset) -> Offset:
        what = f"behind {start}"
        answer = self._user.call("read", what, start)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise self._user.broken(f"read gave {shown(answer)}; give (iterator of rows, offset behind them)")
        end = self._user.plain("read", answer[1])
        rows = self._user.iterated("read", what, answer[0])
        self._prefetched = (start, end, rows)
        if end == start:
            self._prefetched = None
            if (row := next(rows, None)) is not None:
                raise self._user.broken(
                    f"read gave rows behind {start}, the first {shown(row)}, and the same offset for their "
                    "end; they would come again for ever. Give the offset behind them"
                )
        return end

    def partitions(self, start: Offset, end: Offset) -> list[Any]:
        return [(start, end)]

    def rows(self, partition: Any) -> Iterator[Any]:
        start, end = partition
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None and prefetched[:2] == (start, end):
            return prefetched[2]
        what = _range_words(start, end)
        rows = self._user.call("readBetweenOffsets", what, start, end)
        return self._user.iterated("readBetweenOffsets", what, rows)


class BoundedRanges(_OfUser):
    """Of a DataSourceReader: one range, from nothing to all."""

    bounded = True

    def initial(self) -> Offset:
        return None

    def latest(self, start: Offset) -> Offset:
        return {}

    def partitions(self, start: Offset, end: Offset) -> list[Any]:
        return _listed_partitions(self._user, "for all that there is") or [InputPartition(None)]

    def rows(self, partition: Any) -> Iterator[Any]:
        what = f"on {shown(partition)}"
        return self._user.iterated("read", what, self._user.call("read", what, partition))

    def commit(self, end: Offset) -> None:
        """A bounded reader is told nothing."""


def ranges_of(operator: str, reader: AnyReader) -> OffsetRanges:
    match reader:
        case DataSourceStreamReader():
            return StreamRanges(operator, reader)
        case SimpleDataSourceStreamReader():
            return SimpleRanges(operator, reader)
        case _:
            return BoundedRanges(operator, reader)


def _listed_partitions(user: UsersReader, what: str, *arguments: Offset) -> list[Any]:
    given = user.call("partitions", what, *arguments)
    if not isinstance(given, list | tuple) or not all(isinstance(each, InputPartition) for each in given):
        raise user.broken(f"partitions gave {shown(given)}; give a list of InputPartitions")
    return list(given)


def _range_words(start: Offset, end: Offset) -> str:
    return f"from {start} to {end}"
