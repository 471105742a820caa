"""How far a source is behind, by what all stores that were read were told."""

from __future__ import annotations

from penstock.figures.lag import Lag
from penstock.metrics.rows import ROW_AGE_US_MAX, TaskRow
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock_operator.cluster.observing.lags import lags_in
from penstock_operator.cluster.observing.observed import StoreReading

NOW_US = 10 * ROW_AGE_US_MAX
SCHEDULES = {
    "orders": OperatorSchedule(
        operator="orders",
        version=1,
        term=1,
        workers=(WorkerPlace("w0", "n0", "host", "uid"), WorkerPlace("w1", "n1", "host", "uid")),
        executors=(ExecutorPlace("orders-w0", "w0", 1), ExecutorPlace("orders-w1", "w1", 1)),
        shards={f"orders/t/{n}": ShardPlace(f"orders-w{n}", f"n{n}", 0) for n in range(2)},
        stores=(StorePlace("n0", "n0", "address"), StorePlace("n1", "n1", "address")),
        is_source=True,
    )
}


def reading(part: int, records: int, behind_ms: int, at_us: int = NOW_US) -> StoreReading:
    lag = {f"orders/t/{part}": (records, behind_ms)}
    row = TaskRow(f"orders-w{part}", "orders", 0, "ready", 1, at_us, {}, {}, 0, 0, lag)
    return StoreReading(1, NOW_US, tasks={"task": row})


def test_a_source_is_behind_by_what_the_tasks_of_all_its_stores_tell() -> None:
    readings = {"n0": reading(0, 5, 300), "n1": reading(1, 7, 900)}
    assert lags_in(readings, SCHEDULES) == {"orders": Lag(12, 900)}


def test_a_store_that_was_not_read_or_tells_nothing_new_leaves_the_lag_unknown() -> None:
    old = reading(1, 7, 900, NOW_US - ROW_AGE_US_MAX - 1)
    assert lags_in({"n0": reading(0, 5, 300), "n1": None}, SCHEDULES) == {}
    assert lags_in({"n0": reading(0, 5, 300), "n1": old}, SCHEDULES) == {}
