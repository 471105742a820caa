"""A stock exchange: a continuous auction of limit orders, and what is told of its trades. Plain PySpark.

Orders meet in `ContinuousAuction`, which puts out trades; `Turnover`, `MovingAverage` and `Alarms` read
these, and `UserAlarms`. All are keyed by stock. Prices are whole cents. What windows compute of the trades
stands in topology.yaml; `TurnoverOf` and `listed` are what they need of code.
"""

from __future__ import annotations

import datetime
from bisect import insort
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import MapState

DEPTH = 500
"""Orders that wait on one side of a stock's book at most; the one that would be served last falls out."""
WINDOW = 20
"""Trades that a moving average is of."""
ALARM_PERCENT = 3
"""How far a price is from that of the last alarm when there is the next one."""


MARKET = "all stocks"
_OPENING = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def time_of(at_ms: int) -> datetime.datetime:
    """So long after the opening."""
    return _OPENING + datetime.timedelta(milliseconds=at_ms)


def parse(line: Row) -> Iterator[tuple[int, str, int, str, int, int, int, int, datetime.datetime]]:
    """ "number,stock,account,side,price,volume,cancels,at_ms" -> an order.

    `cancels` is 0, or the order that this one takes back, whose side and price stand here again.
    """
    number, stock, account, side, price, volume, cancels, at_ms = line.value.split(",")
    due = int(at_ms), time_of(int(at_ms))
    yield int(number), stock, int(account), side, int(price), int(volume), int(cancels), *due


class Fill(NamedTuple):
    """A part of a waiting order that was served."""

    price: int
    volume: int
    number: int
    account: int


class Level:
    """The orders that wait at one price, longest waiting first."""

    def __init__(self, numbers: list[int], accounts: list[int], volumes: list[int]) -> None:
        self.numbers = numbers
        self.accounts = accounts
        self.volumes = volumes

    def remove(self, place: int) -> None:
        del self.numbers[place], self.accounts[place], self.volumes[place]


class BookSide:
    """One side of a stock's book, while a batch is worked on.

    Levels are read when they are needed, and `write` puts back those that were touched: a large book costs
    no more than a small one.

    `sign` is 1 for sellers, whose lowest price comes first, and -1 for buyers.
    """

    def __init__(self, sign: int, levels: MapState, prices: list[int], orders: int) -> None:
        self._sign = sign
        self._levels = levels
        self._touched: dict[int, Level] = {}
        self._ranks = sorted(sign * price for price in prices)
        self.orders = orders

    @property
    def prices(self) -> list[int]:
        return [self._sign * rank for rank in self._ranks]

    def take(self, limit: int, volume: int) -> Iterator[Fill]:
        """Serve waiting orders to someone who gives or asks `limit`, best price first and in turn."""
        while volume > 0 and self._ranks and self._ranks[0] <= self._sign * limit:
            price = self._sign * self._ranks[0]
            level = self._level(price)
            filled = min(volume, level.volumes[0])
            yield Fill(price, filled, level.numbers[0], level.accounts[0])
            volume -= filled
            level.volumes[0] -= filled
            if level.volumes[0] == 0:
                self._remove(price, 0)

    def add(self, price: int, number: int, account: int, volume: int) -> None:
        """Put an order last in the queue at its price."""
        if self._sign * price not in self._ranks:
            insort(self._ranks, self._sign * price)
            self._touched[price] = Level([], [], [])
        level = self._level(price)
        level.numbers.append(number)
        level.accounts.append(account)
        level.volumes.append(volume)
        self.orders += 1
        if self.orders > DEPTH:
            self._remove(self._sign * self._ranks[-1], -1)

    def cancel(self, price: int, number: int) -> None:
        """Take an order back; nothing happens if it does not wait any more."""
        if self._sign * price in self._ranks and number in (numbers := self._level(price).numbers):
            self._remove(price, numbers.index(number))

    def write(self) -> None:
        for price, level in self._touched.items():
            if level.numbers:
                self._levels.updateValue((price,), (level.numbers, level.accounts, level.volumes))
            else:
                self._levels.removeKey((price,))

    def _level(self, price: int) -> Level:
        if price not in self._touched:
            numbers, accounts, volumes = self._levels.getValue((price,))
            self._touched[price] = Level(list(numbers), list(accounts), list(volumes))
        return self._touched[price]

    def _remove(self, price: int, place: int) -> None:
        level = self._level(price)
        level.remove(place)
        self.orders -= 1
        if not level.numbers:
            self._ranks.remove(self._sign * price)


class ContinuousAuction(StatefulProcessor):
    """Orders of a stock in; its trades out.

    A better price is served first, and among equal ones who came first; the price of a trade is that of
    the order that waited. What is not served waits.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._book = handle.getValueState(
            "book", "bids array<long>, asks array<long>, bid_orders long, ask_orders long, trades long"
        )
        level = "numbers array<long>, accounts array<long>, volumes array<long>"
        self._bids = handle.getMapState("bids", "price long", level)
        self._asks = handle.getMapState("asks", "price long", level)

    def handleInputRows(  # the signature is pyspark's
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        bid_prices, ask_prices, bid_orders, ask_orders, trades = self._book.get() or ((), (), 0, 0, 0)
        bids = BookSide(-1, self._bids, list(bid_prices), bid_orders)
        asks = BookSide(1, self._asks, list(ask_prices), ask_orders)
        for order in sorted(rows, key=lambda row: row.number):
            own, other = (bids, asks) if order.side == "buy" else (asks, bids)
            if order.cancels:
                own.cancel(order.price, order.cancels)
                continue
            left = order.volume
            for fill in other.take(order.price, order.volume):
                left -= fill.volume
                trades += 1
                yield trade(key[0], trades, order, fill)
            if left:
                own.add(order.price, order.number, order.account, left)
        bids.write()
        asks.write()
        self._book.update((bids.prices, asks.prices, bids.orders, asks.orders, trades))

    def close(self) -> None:
        """Nothing is held open."""


def trade(stock: str, number: int, order: Row, fill: Fill) -> Row:
    """The trade that an order made with one that waited; trades of a stock are numbered from 1."""
    came, waited = (order.number, order.account), (fill.number, fill.account)
    (buy_order, buyer), (sell_order, seller) = (came, waited) if order.side == "buy" else (waited, came)
    return Row(
        stock=stock,
        trade=number,
        price=fill.price,
        volume=fill.volume,
        buy_order=buy_order,
        sell_order=sell_order,
        buyer=buyer,
        seller=seller,
        at_ms=order.at_ms,
        at=time_of(order.at_ms),
    )


class Turnover(StatefulProcessor):
    """Trades in; for each batch of a stock its last, lowest and highest price and what was traded so far."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._quote = handle.getValueState(
            "quote", "trades long, price long, low long, high long, volume long, turnover long"
        )

    def handleInputRows(
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        known = self._quote.get()
        trades, price, low, high, volume, turnover = known if known is not None else (0, 0, 0, 0, 0, 0)
        for row in sorted(rows, key=lambda row: row.trade):
            price = row.price
            low = min(low, price) if trades else price
            high = max(high, price)
            trades += 1
            volume += row.volume
            turnover += row.volume * price
        self._quote.update((trades, price, low, high, volume, turnover))
        yield Row(
            stock=key[0], trades=trades, price=price, low=low, high=high, volume=volume, turnover=turnover
        )

    def close(self) -> None:
        """Nothing is held open."""


class MovingAverage(StatefulProcessor):
    """Trades in; for each one the mean price of the stock's last `WINDOW` trades, weighted by volume."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getListState("last", "price long, volume long")

    def handleInputRows(
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        last = [(price, volume) for price, volume in self._last.get()] if self._last.exists() else []
        for row in sorted(rows, key=lambda row: row.trade):
            last = [*last[1 - WINDOW :], (row.price, row.volume)]
            turnover = sum(price * volume for price, volume in last)
            mean = turnover / sum(volume for _, volume in last)
            yield Row(stock=key[0], trade=row.trade, price=row.price, mean=mean)
        self._last.put(last)

    def close(self) -> None:
        """Nothing is held open."""


class Alarms(StatefulProcessor):
    """Trades in; a row out when a stock's price is `ALARM_PERCENT` or more from that of its last alarm, or
    from its first price."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._reference = handle.getValueState("reference", "price long")

    def handleInputRows(
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        known = self._reference.get()
        reference = known[0] if known is not None else None
        for row in sorted(rows, key=lambda row: row.trade):
            if reference is None:
                reference = row.price
            if abs(row.price - reference) * 100 >= ALARM_PERCENT * reference:
                yield Row(stock=key[0], trade=row.trade, price=row.price, reference=reference)
                reference = row.price
        self._reference.update((reference,))

    def close(self) -> None:
        """Nothing is held open."""


class UserAlarms(StatefulProcessor):
    """Trades in; a row out for each alarm that a user has set at a price of the stock, once a trade is at it
    or above. The alarms are there before the session: they are the processor's initial state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._set = handle.getMapState("set", "account long", "above long")

    def handleInitialState(
        self,
        key: tuple[str],
        initialState: Row,  # noqa: N803
        timerValues: Any,  # noqa: N803
    ) -> None:
        self._set.updateValue((initialState.account,), (initialState.above,))

    def handleInputRows(
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        waiting = {account: above for (account,), (above,) in self._set.iterator()}
        for row in sorted(rows, key=lambda row: row.trade):
            for account in sorted(one for one, above in waiting.items() if row.price >= above):
                above = waiting.pop(account)
                self._set.removeKey((account,))
                yield Row(stock=key[0], account=account, above=above, trade=row.trade, price=row.price)

    def close(self) -> None:
        """Nothing is held open."""


class TurnoverOf:
    """What the trades of a window came to, in cents: an aggregator."""

    buffer = int

    def zero(self) -> int:
        return 0

    def reduce(self, buffer: int, row: Row) -> int:
        return buffer + int(row.price) * int(row.volume)

    def merge(self, one: int, other: int) -> int:
        return one + other

    def finish(self, buffer: int) -> int:
        return buffer


def listed(candle: Row) -> Iterator[tuple[str, datetime.datetime, int, int]]:
    """A stock's candle as a part of its market's index."""
    yield MARKET, candle.windowEnd, candle.volume, candle.turnover
