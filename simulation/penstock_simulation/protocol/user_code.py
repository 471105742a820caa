"""What users would have written of the simulated topology: processors that know which row must come next.

They keep values, a value that comes and goes, and a map that is dropped whole now and then; each row sets a
timer that fires once. So a lost, doubled or reordered row, a timer likewise, and state that does not go with
the rest show at once. User code "raises" then, like a processor that checks its input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming import StatefulProcessor

from penstock_simulation.protocol.workload import (
    CLASSES,
    INITIAL_TIMERS_MAX,
    KEYS,
    SHARDS,
    TIMER_STEP_MS,
    TIMERS_MAX,
    OutOfOrder,
    Row,
    initial_timers,
    row_of_timer,
)


class Numbered(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types here
    """Counts the rows of a key. Those of one part of it are numbered by who sends them.

    `parts` are a key's parts, `part_column` and `number_column` where rows have them.
    """

    parts: tuple[int, ...]

    def init(self, handle: Any) -> None:
        self.last = handle.getValueState("last", "n array<int>")
        self.total = handle.getValueState("total", "n int")
        self.odd = handle.getValueState("odd", "n int")
        self.threes = handle.getMapState("threes", "n int", "n int")
        self.fired = handle.getValueState("fired", "n array<int>")
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Row]:  # noqa: N802 - pyspark's
        last = self.last.get()
        numbers = list(last[0]) if last else [0] * len(self.parts)
        total = self.total.get()
        count = total[0] if total else 0
        for row in rows:
            count += 1
            part, number = row[1], row[2]
            place = self.parts.index(part)
            if number != numbers[place] + 1:
                raise OutOfOrder(f"row {number} of {(key[0], part)} after {numbers[place]}")
            numbers[place] = number
            if count % 3:
                self.threes.updateValue((count,), (count,))
            else:
                self.threes.clear()
            self._set_timers(count, timers.getCurrentProcessingTimeInMs())
            yield self.out(key[0], part, number, count)
        self.last.update((numbers,))
        self.total.update((count,))
        if count % 2:
            self.odd.update((count,))
        else:
            self.odd.clear()

    def _set_timers(self, count: int, now_ms: int) -> None:
        """One that tells its row by its expiry, some of them at once; and one that is taken away again."""
        steps = now_ms // TIMER_STEP_MS
        expiries = list(self.handle.listTimers())
        if len(expiries) < TIMERS_MAX:
            self.handle.registerTimer((steps + count % 4) * TIMER_STEP_MS + count)
        else:
            self._fires(count)
        for expiry_ms in expiries:
            if not row_of_timer(expiry_ms):
                self.handle.deleteTimer(expiry_ms)
        if count % 2:
            self.handle.registerTimer((steps + 9) * TIMER_STEP_MS)

    def _fires(self, row: int) -> None:
        fired = self.fired.get()
        self.fired.update(([*fired[0], row] if fired else [row],))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803 - pyspark's
        row = row_of_timer(expiredTimerInfo.getExpiryTimeInMs())
        if row:
            fired = self.fired.get()
            if fired and row in fired[0]:
                raise OutOfOrder(f"the timer of row {row} of {key[0]} after {fired[0]}")
            self._fires(row)
        return iter(())

    def out(self, key: int, part: int, number: int, count: int) -> Row:
        """The row that follows from one."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""


class Mid(Numbered):
    """Rows of a key come from two partitions; they go on by class, numbered over both."""

    parts = (0, 1)

    def out(self, key: int, part: int, number: int, count: int) -> Row:
        return CLASSES[KEYS.index(key) % len(CLASSES)], key, count


class MidWithInitial(Mid):
    """The same, which begins with rows that come before all others of their key, and before its timers."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.begun = handle.getValueState("begun", "n array<int>")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803 - pyspark's
        _, partition, number = initialState
        begun = self.begun.get()
        numbers = list(begun[0]) if begun else [0] * len(SHARDS.initial)
        if number != numbers[partition] + 1:
            raise OutOfOrder(f"initial row {number} of {(key[0], partition)} after {numbers[partition]}")
        if self.total.exists() or self.fired.exists():
            raise OutOfOrder(f"initial row {number} of {(key[0], partition)} behind a row, or a timer")
        numbers[partition] = number
        self.begun.update((numbers,))
        if sum(numbers) <= INITIAL_TIMERS_MAX:
            steps = timerValues.getCurrentProcessingTimeInMs() // TIMER_STEP_MS
            self.handle.registerTimer(steps * TIMER_STEP_MS + initial_timers(sum(numbers))[-1])


class End(Numbered):
    """Rows of a class, numbered by their keys; they go into the sink as they are."""

    parts = KEYS

    def out(self, key: int, part: int, number: int, count: int) -> Row:
        return key, part, number
