"""The processor of the live SLA bench: its service time is spent waiting, not computing.

So two cores can host eight executors, each with the rate of a core of its own. Every record asks for its time
in the column service_time_us, as the zipf source gives it. Named by `topologies/waiting.yaml`, which
is copied beside this.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

OUTPUT_SCHEMA = "key bigint, total bigint"
LATE_NS_MAX = 500_000
"""How much a wait that took too long shortens the next one: what a timer is late by. More than that is time
that the machine did not give, and counts as service."""


class Waiter:
    """Waits so long for each record that the sum is right: the timer's lateness does not add up."""

    def __init__(self) -> None:
        self._late_ns = 0

    def wait(self, service_time_us: int) -> None:
        """Let `service_time_us` pass, less what the wait before took too long."""
        wanted_ns = service_time_us * 1000 - self._late_ns
        if wanted_ns <= 0:
            self._late_ns = -wanted_ns
            return
        began_ns = time.perf_counter_ns()
        time.sleep(wanted_ns / 1e9)
        self._late_ns = min(LATE_NS_MAX, max(0, time.perf_counter_ns() - began_ns - wanted_ns))


class Wait(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """The zipf source's rows in; one (key, records of this key so far) out for each group."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "value bigint")
        self._waiter = Waiter()

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._total.get()
        total = 0 if before is None else before[0]
        for row in rows:
            self._waiter.wait(row.service_time_us)
            total += 1
        self._total.update((total,))
        yield Row(key=key[0], total=total)

    def close(self) -> None:
        """Nothing is held open."""
