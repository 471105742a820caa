"""What users would have written of the simulated topology by event time: processors that count windows.

A row tells how many there are of its key in its window. A window's timer is set for its last millisecond, and
fires when no row of it can come any more: then the count is whole, whatever was killed, moved or late. So a
watermark that is too early shows as a window that lacks rows, in a processor that "raises", and one that is
too late as one that is left. What a window comes to goes on with the last time that lies in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming import StatefulProcessor

from penstock_simulation.protocol.event_workload import FIRED, INITIAL_MS, TimedRow, class_of, window_end_ms
from penstock_simulation.protocol.workload import KEYS, SHARDS, OutOfOrder


class Counting(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types here
    """Counts the rows of a key by window. Those of one part of it are numbered by who sends them."""

    parts: tuple[int, ...]

    def init(self, handle: Any) -> None:
        self.last = handle.getValueState("last", "n array<int>")
        self.done = handle.getValueState("done", "n int")
        self.windows = handle.getMapState("windows", "end int", "rows int, all int, of_next_window int")
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[TimedRow]:  # noqa: N802 - pyspark's
        numbers = self._numbers()
        watermark_ms = timers.getCurrentWatermarkInMs()
        for row in rows:
            _, part, number, at_us, of_window, of_next_window = row
            if at_us < watermark_ms * 1000:
                raise OutOfOrder(f"row {number} of {(key[0], part)} at {at_us}, behind {watermark_ms} ms")
            place = self.parts.index(part)
            if number != numbers[place] + 1:
                raise OutOfOrder(f"row {number} of {(key[0], part)} after {numbers[place]}")
            numbers[place] = number
            end_ms = window_end_ms(at_us)
            window = self.windows.getValue((end_ms,))
            self.windows.updateValue((end_ms,), (window[0] + 1 if window else 1, of_window, of_next_window))
            self.handle.registerTimer(end_ms - 1)
            yield self.out(key[0], part, sum(numbers), at_us, of_next_window, number)
        self.last.update((numbers,))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[TimedRow]:  # noqa: N802, N803 - pyspark's
        due_ms = expiredTimerInfo.getExpiryTimeInMs()
        if timerValues.getCurrentWatermarkInMs() <= due_ms:
            watermark_ms = timerValues.getCurrentWatermarkInMs()
            raise OutOfOrder(f"the timer of {key[0]} for {due_ms} at watermark {watermark_ms}")
        window = self.windows.getValue((due_ms + 1,))
        if window is None:
            raise OutOfOrder(f"the timer of {key[0]} for {due_ms}, without a window")
        count, of_window, of_next_window = window
        if count != of_window:
            raise OutOfOrder(f"{count} rows of {key[0]} up to {due_ms}, of {of_window}")
        self.windows.removeKey((due_ms + 1,))
        done = self.done.get()
        self.done.update(((done[0] if done else 0) + count,))
        numbers = self._numbers()
        numbers[-1] += 1
        self.last.update((numbers,))
        yield self.out(key[0], FIRED, sum(numbers), due_ms * 1000, of_next_window, numbers[-1])

    def _numbers(self) -> list[int]:
        last = self.last.get()
        return list(last[0]) if last else [0] * len(self.parts)

    def out(self, key: int, part: int, count: int, at_us: int, of_next_window: int, number: int) -> TimedRow:
        """What follows from a row, or from a window: the `count`th of its key, the `number`th of its part."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""


class Mid(Counting):
    """Rows of a key come from two partitions; they go on by class, and with them what windows come to."""

    parts = (0, 1, FIRED)

    def out(self, key: int, part: int, count: int, at_us: int, of_next_window: int, number: int) -> TimedRow:
        return class_of(key), key, count, at_us, of_next_window, 0


class MidWithInitial(Mid):
    """The same, which begins with rows that come before all others of their key, and before its timers: one
    of those is set for a time before all watermarks."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.begun = handle.getValueState("begun", "n array<int>")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803 - pyspark's
        _, partition, number = initialState
        begun = self.begun.get()
        numbers = list(begun[0]) if begun else [0] * len(SHARDS.initial) + [0]
        if number != numbers[partition] + 1:
            raise OutOfOrder(f"initial row {number} of {(key[0], partition)} after {numbers[partition]}")
        if self.last.exists() or numbers[-1]:
            raise OutOfOrder(f"initial row {number} of {(key[0], partition)} behind a row, or a timer")
        numbers[partition] = number
        self.begun.update((numbers,))
        self.handle.registerTimer(INITIAL_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[TimedRow]:  # noqa: N802, N803 - pyspark's
        if expiredTimerInfo.getExpiryTimeInMs() != INITIAL_MS:
            return super().handleExpiredTimer(key, timerValues, expiredTimerInfo)
        *numbers, fired = self.begun.get()[0]
        if fired:
            raise OutOfOrder(f"the timer of the initial rows of {key[0]} once more")
        self.begun.update(([*numbers, 1],))
        return iter(())


class End(Counting):
    """Rows of a class, numbered by their keys; they go into the sink, and with them what windows come to."""

    parts = (*KEYS, FIRED)

    def out(self, key: int, part: int, count: int, at_us: int, of_next_window: int, number: int) -> TimedRow:
        return key, part, number, at_us, 0, 0
