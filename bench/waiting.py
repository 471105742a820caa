"""The processors of the benches whose service time is spent waiting, not computing.

So two cores can host eight executors, each with the rate of a core of its own. `Wait` and `Calculate` take as
long as each record asks in the column service_time_us, as the zipf source gives it; `Step` always as long.
Named by `topologies/waiting.yaml`, `migrating.yaml`, `stepping.yaml` and `shuffling.yaml`, which are copied
beside this.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

OUTPUT_SCHEMA = "key bigint, total bigint"
LATE_NS_MAX = 500_000
"""How much a wait that took too long shortens the next one: what a timer is late by. More than that is time
that the machine did not give, and counts as service."""
STEP_US = 5_000
"""What `Step` takes for a record; `flink_peer` takes as long."""
TOKENS = Path(__file__).with_name("tokens")
"""A folder with a file for each core that there is to be; made by the bench."""
TOKEN_LOOK_S = 0.0005
HELD_CHARACTERS = 13_443
"""State of a key besides its total: 32 KiB a shard, as in Elasticutor, with 312 keys in 128 shards."""


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


class Tokens:
    """Cores of a machine that has as many as there are files: who serves records holds one, in whatever
    process it is, and gives it back when it ends, however that is."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._descriptors = [os.open(file, os.O_RDWR | os.O_CLOEXEC) for file in files]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold one from when one is free."""
        while (descriptor := self._free()) is None:
            time.sleep(TOKEN_LOOK_S)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            # What was free a moment ago is likely to be so again.
            self._descriptors.remove(descriptor)
            self._descriptors.insert(0, descriptor)

    def _free(self) -> int | None:
        for descriptor in self._descriptors:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            return descriptor
        return None

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


class Serving(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """A total a key, and service that is waited for."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "value bigint")
        self._waiter = Waiter()

    def _service_time_us(self, row: Row) -> int:
        asked: int = row.service_time_us
        return asked

    def _served(self, rows: Iterator[Row]) -> Iterator[tuple[Row, int]]:
        """Each row as it is served, with the records of its key so far; the total is kept after the last."""
        before = self._total.get()
        total = 0 if before is None else before[0]
        for row in rows:
            self._waiter.wait(self._service_time_us(row))
            total += 1
            yield row, total
        self._total.update((total,))

    def close(self) -> None:
        """Nothing is held open."""


class Wait(Serving):
    """The zipf source's rows in; one (key, records of this key so far) out for each group."""

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        *_, total = (total for _, total in self._served(rows))
        yield Row(key=key[0], total=total)


class Step(Serving):
    """The zipf source's rows in; one (number, records of its key so far, process) out for each."""

    def _service_time_us(self, row: Row) -> int:
        return STEP_US

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        for row, total in self._served(rows):
            yield Row(number=row.number, total=total, process=os.getpid())


class Relay(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """Rows out as they come: the operator upstream of `Calculate`, that can be paused while the source's
    records go on falling due."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """It has no state."""

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        yield from rows

    def close(self) -> None:
        """Nothing is held open."""


class Calculate(Serving):
    """As `Wait`, but a row for each record as `Step` has it, only while one of the `TOKENS` is held, and with
    state that has to be loaded by whoever takes a key over."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self._held = handle.getValueState("held", "value string")
        self._tokens = Tokens(sorted(TOKENS.iterdir()))

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        if self._held.get() is None:
            self._held.update(("x" * HELD_CHARACTERS,))
        with self._tokens.held():
            for row, total in self._served(rows):
                yield Row(number=row.number, total=total, process=os.getpid())

    def close(self) -> None:
        self._tokens.close()
