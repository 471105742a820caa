"""Event times as whole numbers, and back: of rows that people's code sees, and of wire rows.

A datetime without a zone is taken as UTC, as a `timestamp_ntz` has none.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

# pyspark's Row takes its time over an index: it looks whether that is a name.
_value = tuple.__getitem__
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_NAIVE = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - for times without a zone
_MICROSECOND = datetime.timedelta(microseconds=1)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def microseconds(time: datetime.datetime) -> int:
    """Since 1970."""
    since = time - (_EPOCH_NAIVE if time.tzinfo is None else _EPOCH)
    return since // _MICROSECOND


def milliseconds(time: datetime.datetime) -> int:
    """Since 1970, begun ones left out."""
    since = time - (_EPOCH_NAIVE if time.tzinfo is None else _EPOCH)
    return since // _MILLISECOND


def instant(at_us: int) -> datetime.datetime:
    """Microseconds since 1970 as a time in UTC."""
    return _EPOCH + datetime.timedelta(microseconds=at_us)


class RowTimes:
    """Times of rows of Spark's, which are datetimes at a place of theirs; as milliseconds."""

    per_ms = 1

    def __init__(self, place: int) -> None:
        self._place = place

    def of(self, rows: Sequence[Any]) -> Iterable[int | None]:
        """Of each row."""
        place = self._place
        return [None if (time := _value(row, place)) is None else milliseconds(time) for row in rows]

    @staticmethod
    def instant(at_ms: int) -> datetime.datetime:
        """A time as such rows have it."""
        return instant(at_ms * 1000)


class WireTimes:
    """The same of wire rows, which have microseconds."""

    per_ms = 1000

    def __init__(self, place: int) -> None:
        self._read = itemgetter(place)

    def of(self, rows: Sequence[Any]) -> Iterable[int | None]:
        """Of each row."""
        return map(self._read, rows)

    @staticmethod
    def instant(at_ms: int) -> int:
        """A time as such rows have it."""
        return at_ms * 1000
