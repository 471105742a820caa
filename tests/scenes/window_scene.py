"""Windows and joins in PySpark's own TwsTester: rows by key, in batches, and the watermark between."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
END_MS = 10**12
"""Later than all rows of a test."""


def at(ms: float) -> datetime.datetime:
    """Milliseconds since 1970, of which parts are kept, as a time."""
    return EPOCH + datetime.timedelta(microseconds=round(ms * 1000))


def ms_of(time: datetime.datetime) -> float:
    return (time - EPOCH) / datetime.timedelta(milliseconds=1)


class WindowScene:
    """One processor. Rows are tuples of the columns `names`, of which the first is the key; `time_ms` says
    when one happened. What came out so far is in `made`, as tuples."""

    def __init__(
        self, processor: StatefulProcessor, names: Sequence[str], time_ms: Callable[[Row], float]
    ) -> None:
        self.tester = TwsTester(processor, timeMode="EventTime", eventTimeExtractor=time_ms)
        self.made: list[tuple[Any, ...]] = []
        self._row = Row(*names)
        self._time_ms = time_ms
        self._latest_ms = 0.0
        self._watermark_ms = 0

    def give(self, *rows: tuple[Any, ...]) -> None:
        """One batch; the watermark stays."""
        groups: dict[Any, list[Row]] = defaultdict(list)
        for values in rows:
            row = self._row(*values)
            groups[values[0]].append(row)
            self._latest_ms = max(self._latest_ms, self._time_ms(row))
        for key, group in groups.items():
            self.made += map(tuple, self.tester.test(key, group))

    def watermark(self, ms: int) -> None:
        """Have it be so late."""
        if ms > self._watermark_ms:
            self._watermark_ms = ms
            self.made += map(tuple, self.tester.setWatermark(ms))

    def play(self, rows: Sequence[tuple[Any, ...]], batch_rows: int, delay_ms: int) -> list[tuple[Any, ...]]:
        """Give the rows in batches, the watermark so far behind the latest row after each; then let
        everything end. What came out of it all."""
        for begin in range(0, len(rows), batch_rows):
            self.give(*rows[begin : begin + batch_rows])
            self.watermark(int(self._latest_ms) - delay_ms)
        self.watermark(END_MS)
        return self.made

    def timers(self) -> dict[Any, list[int]]:
        """Of each key, when its timers are set for."""
        known = self.tester.handle._timers
        return {key: list(known.listTimers(key)) for key in known.getAllKeysWithTimers()}

    def holds_nothing(self) -> bool:
        """Whether no key has any state or timer left."""
        handle = self.tester.handle
        values = [state.state for state in handle.value_states.values()]
        maps = [entries for state in handle.map_states.values() for entries in state.state.values()]
        return not any(values) and not any(maps) and not any(self.timers().values())


def by_start(made: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Results of windows with their bounds in milliseconds, by key and start."""
    return sorted((key, ms_of(start), ms_of(end), *rest) for key, start, end, *rest in made)
