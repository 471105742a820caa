"""What all stores of a topology counted, and what its tasks told, for the figures of its operators.

Pure. Neighbours: `penstock.figures` makes the figures, `remembered` keeps the samples, `status` shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.figures.operators import Look
from penstock.figures.samples import Samples, next_sample, operators_told, sampled, within_window
from penstock.metrics.rows import tells_of_now
from penstock.schedule.record import OperatorSchedule
from penstock.schedule.remote import with_remote
from penstock_operator.cluster.observing.lags import lags_in
from penstock_operator.cluster.observing.observed import Observed
from penstock_operator.cluster.workers.demand import counters_of
from penstock_operator.cluster.workers.schedule_figures import running_in

WINDOW_S = 10.0
INTERVAL_S = 1.0
"""Samples are at least so far apart."""


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
        if tells_of_now(row, reading.now_us)
    )
    before = samples[-1] if samples else None
    return within_window((*samples, next_sample(before, now_s, shards, rows, heard)), WINDOW_S)


def look_at(observed: Observed, schedules: Mapping[str, OperatorSchedule], samples: Samples) -> Look:
    """What this look saw of all operators that have a schedule."""
    remote = {executor: nodes for seen in observed.schedules for executor, nodes in seen.remote.items()}
    return Look(
        samples,
        {name: tuple(schedule.shards) for name, schedule in schedules.items()},
        {name: counters_of(observed, schedule) for name, schedule in schedules.items()},
        {name: with_remote(schedule, remote) for name, schedule in schedules.items()},
        running_in(observed),
        lags=lags_in(observed.readings, schedules),
    )
