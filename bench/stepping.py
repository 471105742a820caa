"""The processor of the scale-out bench: waits 5 ms for each record, and says which process did.

So two cores can host several tasks, each with the rate of a core of its own. Named by
`topologies/stepping.yaml`, which is copied beside this; `flink_peer` does the same on Flink.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

SERVICE_NS = 5_000_000
LATE_NS_MAX = 500_000
"""How much a wait that took too long shortens the next one, as in `waiting`."""


class Step(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """The zipf source's rows in; one (number, records of its key so far, process) out for each."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "value bigint")
        self._late_ns = 0

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._total.get()
        total = 0 if before is None else before[0]
        for row in rows:
            self._wait()
            total += 1
            yield Row(number=row.number, total=total, process=os.getpid())
        self._total.update((total,))

    def close(self) -> None:
        """Nothing is held open."""

    def _wait(self) -> None:
        wanted_ns = SERVICE_NS - self._late_ns
        began_ns = time.perf_counter_ns()
        time.sleep(wanted_ns / 1e9)
        self._late_ns = min(LATE_NS_MAX, max(0, time.perf_counter_ns() - began_ns - wanted_ns))
