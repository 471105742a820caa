"""How far sources are behind, by what all stores that were read were told. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.figures.lag import Lag, lags_of
from penstock.metrics.rows import tells_of_now
from penstock.schedule.record import OperatorSchedule
from penstock_operator.cluster.observing.observed import StoreReading


def lags_in(
    readings: Mapping[str, StoreReading | None], schedules: Mapping[str, OperatorSchedule]
) -> dict[str, Lag]:
    """Source -> how far it is behind, by what its tasks tell of now; without those of which a store that was
    not read may know more."""
    rows = (
        row
        for reading in readings.values()
        if reading is not None
        for row in reading.tasks.values()
        if tells_of_now(row, reading.now_us)
    )
    return lags_of(rows, {name: len(schedule.shards) for name, schedule in schedules.items()})
