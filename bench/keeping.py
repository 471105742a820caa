"""Processors that keep state and put nothing out, one for each form of state. `state_size` measures them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

ELEMENTS = 10
TEXT = "x" * 100
FAR_MS = 4_000_000_000_000
"""When the timers are due: not while anybody looks."""


class _Keeping(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    """Rows of a key in, none out."""

    def handleInputRows(  # noqa: N802  # pyspark's own method name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: object,  # noqa: N803
    ) -> Iterator[Row]:
        for _ in rows:
            self.keep()
        yield from ()

    @abstractmethod
    def keep(self) -> None:
        """What is kept of the key."""

    def close(self) -> None:
        """Nothing is held open."""


class Long(_Keeping):
    """A value of one bigint."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._value = handle.getValueState("value", "value bigint")

    def keep(self) -> None:
        self._value.update((1_000_000,))


class Text(_Keeping):
    """A value of one string of 100 bytes."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._value = handle.getValueState("value", "value string")

    def keep(self) -> None:
        self._value.update((TEXT,))


class Longs(_Keeping):
    """A list of ten bigints."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._values = handle.getListState("values", "value bigint")

    def keep(self) -> None:
        self._values.put([(1_000_000 + number,) for number in range(ELEMENTS)])


class Counts(_Keeping):
    """A map of ten bigints by bigints."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._counts = handle.getMapState("counts", "name bigint", "count bigint")

    def keep(self) -> None:
        for number in range(ELEMENTS):
            self._counts.updateValue((1_000_000 + number,), (number,))


class Timers(_Keeping):
    """A timer."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle: Any = handle

    def keep(self) -> None:
        self._handle.registerTimer(FAR_MS)
