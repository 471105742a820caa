"""Event times as whole numbers, and back.

A datetime without a zone is taken as UTC, as a `timestamp_ntz` has none.
"""

from __future__ import annotations

import datetime

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
