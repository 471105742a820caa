"""The user code of NEXMark's queries: functions of a row, processors, an aggregator, nothing of Penstock."""

# ruff: noqa: N803 - pyspark's own names
from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

EUROS_PER_DOLLAR = Decimal("0.908")
SELECTED_EVERY = 123


def in_euros(bid: Row) -> list[tuple[Any, ...]]:
    """Query 1: every bid with its price converted from dollars."""
    return [(bid.auction, bid.bidder, EUROS_PER_DOLLAR * bid.price, bid.dateTime, bid.extra)]


def selected(bid: Row) -> list[tuple[Any, ...]]:
    """Query 2: bids on every 123rd auction."""
    return [(bid.auction, bid.price)] if bid.auction % SELECTED_EVERY == 0 else []


# --- query 4 ---------------------------------------------------------------------------------------


def in_time(bid: Row) -> list[tuple[Any, ...]]:
    """Bids on an auction that is open; the join knows of no end of its own for each."""
    return [(bid.id, bid.category, bid.price)] if bid.dateTime <= bid.expires else []


class AverageOfHighest(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types here
    """Of a category: the average of its auctions' highest bids, anew whenever one of them was raised."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._highest = handle.getMapState("highest", "id long", "price long")
        self._sum = handle.getValueState("sum", "prices long, auctions long")

    def handleInputRows(
        self, key: tuple[int], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        prices, auctions = self._sum.get() or (0, 0)
        before = prices
        for bid in rows:
            highest = self._highest.getValue((bid.id,))
            if highest is None or bid.price > highest[0]:
                self._highest.updateValue((bid.id,), (bid.price,))
                prices += bid.price - (highest[0] if highest else 0)
                auctions += highest is None
        if prices != before:
            self._sum.update((prices, auctions))
            yield Row(category=key[0], final=prices / auctions)

    def close(self) -> None:
        """Nothing is held open."""


# --- query 5 ---------------------------------------------------------------------------------------


def by_window(counted: Row) -> list[tuple[Any, ...]]:
    """What an auction has in a window, to be kept by that window: its end in milliseconds."""
    ended_ms = round(counted.windowEnd.timestamp() * 1000)
    return [(ended_ms, counted.windowStart, counted.windowEnd, counted.auction, counted.num)]


class Hottest(StatefulProcessor):  # type: ignore[misc]
    """Of a window: the auctions with most bids, once the counts of all auctions are there."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._most = handle.getListState(
            "most", "starttime timestamp, endtime timestamp, auction long, num long"
        )

    def handleInputRows(
        self, key: tuple[int], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterable[Row]:
        most = [tuple(row) for row in self._most.get()]
        for row in rows:
            if most and row.num > most[0][3]:
                most = []
            if not most or row.num == most[0][3]:
                most.append((row.starttime, row.windowEnd, row.auction, row.num))
        self._most.put(most)
        # Counts of this window happened when it ended: behind that moment none comes.
        self._handle.registerTimer(key[0] + 1)
        return []

    def handleExpiredTimer(
        self, key: tuple[int], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        for start, end, auction, num in self._most.get():
            yield Row(starttime=start, endtime=end, auction=auction, num=num)
        self._most.clear()

    def close(self) -> None:
        """Nothing is held open."""


# --- query 7 ---------------------------------------------------------------------------------------


def together(bid: Row) -> list[tuple[Any, ...]]:
    """All bids under one key."""
    return [(0, bid.auction, bid.bidder, bid.price, bid.dateTime, bid.extra)]


class Highest:
    """An aggregator: all bids of the highest price."""

    buffer = list[Any]

    def zero(self) -> list[Any]:
        return []

    def reduce(self, buffer: list[Any], bid: Row) -> list[Any]:
        return self.merge(buffer, [[bid.auction, bid.bidder, bid.price, bid.dateTime, bid.extra]])

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        if not one or not other:
            return one or other
        if one[0][2] == other[0][2]:
            return one + other
        return one if one[0][2] > other[0][2] else other

    def finish(self, buffer: list[Any]) -> list[Any]:
        return buffer


def each(found: Row) -> list[tuple[Any, ...]]:
    """The highest bids of a window, one by one."""
    return [tuple(bid) if not isinstance(bid, dict) else tuple(bid.values()) for bid in found.bids]
