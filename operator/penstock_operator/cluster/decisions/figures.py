"""A topology's samples: what all of its stores counted, and what its tasks told.

Pure. Neighbours: `penstock.figures` makes rates and latencies of them, `remembered` keeps them, `status`
shows the figures.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.figures.samples import Samples, next_sample, operators_told, sampled, within_window
from penstock.schedule.record import OperatorSchedule
from penstock_operator.cluster.observing.observed import Observed

WINDOW_S = 10.0
INTERVAL_S = 1.0
"""Samples are at least so far apart."""
ROW_AGE_US_MAX = 5_000_000
"""A task writes its row at least once a second; an older one tells nothing about now."""


def with_sample(
    samples: Samples, observed: Observed, schedules: Iterable[OperatorSchedule], now_s: float
) -> Samples:
    """`samples` and this look, without what is too old; the same ones when the last is too new."""
    if samples and now_s - samples[-1].at_s < INTERVAL_S:
        return samples
    shards = {}
    for schedule in schedules:
        for shard, place in schedule.shards.items():
            reading = observed.readings.get(place.home)
            counters = reading.shards.get(shard) if reading is not None else None
            if counters is not None:
                shards[shard] = sampled(place.home, counters)
    read = {store: reading for store, reading in observed.readings.items() if reading is not None}
    rows = {(store, name): row for store, reading in read.items() for name, row in reading.tasks.items()}
    heard = operators_told(
        row
        for reading in read.values()
        for row in reading.tasks.values()
        if reading.now_us - row.at_us <= ROW_AGE_US_MAX
    )
    before = samples[-1] if samples else None
    return within_window((*samples, next_sample(before, now_s, shards, rows, heard)), WINDOW_S)
