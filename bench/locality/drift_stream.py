"""Weeks of (location, tag), drawn after what the paper tells of its tweets (section 4.3).

The tweets are not public; this stream has what the paper says of them. A record's tag is of one of three
kinds: **stable** ones, which keep to their location for good; **trends**, which come and go, each there for
some weeks and at one location; **passing** ones, which are of their week alone. A tag's records come from its
location by `loyalty`, and else from anywhere. Locations and tags are skewed by zipf's law. Names of a week's
new tags have not been seen before, so no table knows them.

`FITTED` was found by `drift_fit`, with METIS on exact counts as the paper has it and none of Penstock's own
code, and has not been changed since that was tried on it. It was to come to: hash 16.6%, a table after the
first week 49%, the same table some months later 40%, expected by METIS itself 75%, 12% more than the mean on
the fullest instance by hash. Neighbours: `drift` tries Penstock on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DriftShape:
    """`stable` and `trends` are parts of all records, the rest is passing. `*_tags` are how many there are at
    a time, `*_skew` exponents of zipf's law. A trend ends in a week with one chance in `trend_weeks`."""

    records: int
    """Of a week."""
    locations: int
    location_skew: float
    stable: float
    stable_tags: int
    trends: float
    trend_tags: int
    trend_weeks: float
    passing_tags: int
    tag_skew: float
    loyalty: float


FITTED = DriftShape(
    records=1_000_000,
    locations=3000,
    location_skew=0.3,
    stable=0.365,
    stable_tags=6000,
    trends=0.265,
    trend_tags=3000,
    trend_weeks=3.5,
    passing_tags=15_000,
    tag_skew=0.98,
    loyalty=0.7,
)


@dataclass(frozen=True, slots=True, eq=False)
class Week:
    """Numbers of the records' locations and tags; no tag's number comes again with another meaning."""

    location: Numbers
    tag: Numbers


class DriftStream:
    """The same shape and seed give the same weeks."""

    def __init__(self, shape: DriftShape, seed: int) -> None:
        self._shape = shape
        self._rng = np.random.default_rng(seed)
        # Whose ranks are whose: the numbers themselves say nothing.
        self._places = self._rng.permutation(shape.locations)
        self._homes = np.zeros(0, np.int64)
        """Location of each tag by its number."""
        self._stable = self._new_tags(shape.stable_tags)
        self._trends = self._new_tags(shape.trend_tags)

    def weeks(self, count: int) -> Iterator[Week]:
        """The next so many."""
        for _ in range(count):
            yield self._week()
            gone = self._rng.random(len(self._trends)) < 1 / self._shape.trend_weeks
            self._trends[gone] = self._new_tags(int(gone.sum()))

    def _week(self) -> Week:
        shape, rng = self._shape, self._rng
        passing = self._new_tags(shape.passing_tags)
        parts = (shape.stable, shape.trends, 1 - shape.stable - shape.trends)
        counts = rng.multinomial(shape.records, parts)
        pools = (self._stable, self._trends, passing)
        tag = np.concatenate(
            [pool[self._drawn(len(pool), shape.tag_skew, n)] for pool, n in zip(pools, counts, strict=True)]
        )
        rng.shuffle(tag)
        is_loyal = rng.random(len(tag)) < shape.loyalty
        location = np.where(is_loyal, self._homes[tag], self._anywhere(len(tag)))
        return Week(location, tag)

    def _new_tags(self, count: int) -> Numbers:
        first = len(self._homes)
        self._homes = np.concatenate((self._homes, self._anywhere(count)))
        return np.arange(first, first + count)

    def _anywhere(self, count: int) -> Numbers:
        return self._places[self._drawn(self._shape.locations, self._shape.location_skew, count)]

    def _drawn(self, values: int, skew: float, count: int) -> Numbers:
        """Numbers below `values`, the lowest the most frequent."""
        weights = np.cumsum(1 / np.arange(1, values + 1) ** skew)
        found: Numbers = np.searchsorted(weights, self._rng.random(count) * weights[-1])
        return found
