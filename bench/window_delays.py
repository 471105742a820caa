"""How long after its end a window's result was there.

Event time is when a record was due and nothing may come late, so the watermark passes a window's end when the
first record after it is due: the delay counts from then, or from at most a gap between two records earlier.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray


class WindowRow(msgspec.Struct, rename="camel"):
    """What is of interest of a row of `topologies/windows.yaml`."""

    window_end: str


@lru_cache(maxsize=1024)
def end_us(text: str) -> int:
    """A window's end as a sink writes it, in microseconds since 1970."""
    at = datetime.datetime.fromisoformat(text)
    return (at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)


def delays_us(seen: Iterable[tuple[int, int]], from_us: float, to_us: float) -> NDArray[np.int64]:
    """Of rows as (when it was seen, its window's end), those whose window ended in from_us <= t < to_us."""
    found = [at_us - ended_us for at_us, ended_us in seen if from_us <= ended_us < to_us]
    return np.array(found, dtype=np.int64)
