"""Compares what Penstock's stock exchange put out with one pass over the same orders, made apart from it.

It imports nothing of Penstock and nothing of `stock_exchange`: the rules stand here a second time on purpose,
and are written another way, so that a fault in either shows. Each trade, mean, alarm, candle, trend and value
of the index has to be there once, as it was worked out here, and each row of the turnover has to be what the
stock's trades up to it make. Of windows those have to be there that the last watermark has passed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from bisect import insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DEPTH = 500
WINDOW = 20
ALARM_PERCENT = 3
SHOWN_MAX = 20
SECOND_MS = 1000
TREND_MS = 4 * SECOND_MS
DELAY_MS = 1000
"""How far behind the latest order the watermark is."""
SINKS = ("trades", "turnover", "averages", "alarms", "user-alarms", "candles", "trends", "index")

Row = dict[str, Any]


@dataclass
class Stock:
    """The waiting orders of a stock, by side, each side in the order of service, and its trades."""

    waiting: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {"buy": [], "sell": []})
    """(the price, for buyers below 0, number)."""
    left: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Number -> (account, volume) of those that wait."""
    trades: list[Row] = field(default_factory=list)


def run_auction(orders: Path) -> dict[str, Stock]:
    """Every stock after all orders in the folder's files. ValueError names a line that is no order."""
    stocks: dict[str, Stock] = {}
    for path in sorted(orders.glob("*.csv")):
        for place, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                number, code, account, side, price, volume, cancels, at_ms = line.split(",")
                order = (int(number), int(account), side, int(price), int(volume), int(cancels), int(at_ms))
            except ValueError as error:
                raise ValueError(f"{path}, line {place}, is no order") from error
            serve(stocks.setdefault(code, Stock()), code, order)
    return stocks


def serve(stock: Stock, code: str, order: tuple[int, int, str, int, int, int, int]) -> None:
    number, account, side, price, volume, cancels, at_ms = order
    sign = -1 if side == "buy" else 1
    own = stock.waiting[side]
    if cancels:
        if (sign * price, cancels) in own:
            own.remove((sign * price, cancels))
        return
    other = stock.waiting["sell" if side == "buy" else "buy"]
    while volume and other and sign * price <= -other[0][0]:
        rank, waited = other[0]
        waited_account, waited_volume = stock.left[waited]
        traded = min(volume, waited_volume)
        volume -= traded
        stock.left[waited] = (waited_account, waited_volume - traded)
        if traded == waited_volume:
            other.pop(0)
        came, met = (number, account), (waited, waited_account)
        buyer, seller = (came, met) if side == "buy" else (met, came)
        stock.trades.append(
            {
                "stock": code,
                "trade": len(stock.trades) + 1,
                "price": abs(rank),
                "volume": traded,
                "buy_order": buyer[0],
                "sell_order": seller[0],
                "buyer": buyer[1],
                "seller": seller[1],
                "at_ms": at_ms,
            }
        )
    if volume:
        insort(own, (sign * price, number))
        stock.left[number] = (account, volume)
        del own[DEPTH:]


def turnovers(code: str, trades: list[Row]) -> Iterator[Row]:
    """What is told of a stock after each of its trades."""
    for count in range(1, len(trades) + 1):
        so_far = trades[:count]
        prices = [trade["price"] for trade in so_far]
        yield {
            "stock": code,
            "trades": count,
            "price": prices[-1],
            "low": min(prices),
            "high": max(prices),
            "volume": sum(trade["volume"] for trade in so_far),
            "turnover": sum(trade["volume"] * trade["price"] for trade in so_far),
        }


def averages(trades: list[Row]) -> Iterator[Row]:
    for place, trade in enumerate(trades):
        window = trades[max(0, place + 1 - WINDOW) : place + 1]
        volume = sum(one["volume"] for one in window)
        mean = sum(one["volume"] * one["price"] for one in window) / volume
        yield {"stock": trade["stock"], "trade": trade["trade"], "price": trade["price"], "mean": mean}


def alarms(trades: list[Row]) -> Iterator[Row]:
    reference = trades[0]["price"] if trades else 0
    for trade in trades:
        if abs(trade["price"] - reference) * 100 >= ALARM_PERCENT * reference:
            yield {
                "stock": trade["stock"],
                "trade": trade["trade"],
                "price": trade["price"],
                "reference": reference,
            }
            reference = trade["price"]


def read_user_alarms(folder: Path) -> dict[str, list[Row]]:
    """Stock -> the alarms that users have set at it. ValueError names a line that is none."""
    found: dict[str, list[Row]] = {}
    for alarm in read_rows(folder):
        found.setdefault(alarm["stock"], []).append(alarm)
    return found


def user_alarms(trades: list[Row], alarms: list[Row]) -> Iterator[Row]:
    for alarm in alarms:
        reached = next((trade for trade in trades if trade["price"] >= alarm["above"]), None)
        if reached is not None:
            yield {**alarm, "trade": reached["trade"], "price": reached["price"]}


def watermark_ms(orders: Path) -> int:
    """That of the end: behind the latest order of all."""
    lines = [line for path in orders.glob("*.csv") for line in path.read_text(encoding="utf-8").splitlines()]
    return max(int(line.rsplit(",", 1)[1]) for line in lines) - DELAY_MS


def in_windows(trades: list[Row], size_ms: int, until_ms: int) -> Iterator[tuple[Row, list[Row]]]:
    """Windows that begin with each second, with the trades in them, if any; those over by then."""
    for end_ms in range(SECOND_MS, until_ms + 1, SECOND_MS):
        inside = [trade for trade in trades if end_ms - size_ms <= trade["at_ms"] < end_ms]
        if inside:
            yield {"windowStart": end_ms - size_ms, "windowEnd": end_ms}, inside


def candles(code: str, trades: list[Row], until_ms: int) -> Iterator[Row]:
    for window, inside in in_windows(trades, SECOND_MS, until_ms):
        prices = [trade["price"] for trade in inside]
        yield {
            "stock": code,
            **window,
            "trades": len(inside),
            "low": min(prices),
            "high": max(prices),
            "volume": sum(trade["volume"] for trade in inside),
            "turnover": sum(trade["volume"] * trade["price"] for trade in inside),
        }


def trends(code: str, trades: list[Row], until_ms: int) -> Iterator[Row]:
    for window, inside in in_windows(trades, TREND_MS, until_ms):
        mean = sum(trade["price"] for trade in inside) / len(inside)
        yield {"stock": code, **window, "trades": len(inside), "mean": mean}


def index(candles_: list[Row], until_ms: int) -> Iterator[Row]:
    """Of all stocks: the candles that end with a second are in the window that begins there."""
    for start_ms in sorted({candle["windowEnd"] for candle in candles_}):
        inside = [candle for candle in candles_ if candle["windowEnd"] == start_ms]
        if start_ms + SECOND_MS <= until_ms:
            yield {
                "market": "all stocks",
                "windowStart": start_ms,
                "windowEnd": start_ms + SECOND_MS,
                "stocks": len(inside),
                "volume": sum(candle["volume"] for candle in inside),
                "turnover": sum(candle["turnover"] for candle in inside),
            }


def with_milliseconds(row: Row) -> Row:
    """The same, its times as milliseconds since the opening."""
    times = {name: row[name] for name in ("at", "windowStart", "windowEnd") if name in row}
    return {**row, **{name: milliseconds(time) for name, time in times.items()}}


def milliseconds(time: str) -> int:
    return round(datetime.datetime.fromisoformat(time).timestamp() * 1000)


def read_rows(folder: Path) -> list[Row]:
    """All rows of a sink. ValueError names a line that is no row."""
    rows: list[Row] = []
    for path in sorted(folder.rglob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                rows.append(with_milliseconds(json.loads(line)))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}, is no row") from error
    return rows


def differences(what: str, expected: list[Row], found: list[Row]) -> list[str]:
    """One line for each row that is missing, or that is there and should not be, or too often."""
    wanted, seen = (Counter(json.dumps(row, sort_keys=True) for row in rows) for rows in (expected, found))
    missing = [f"{what}: missing: {row}" for row in sorted((wanted - seen).elements())]
    return missing + [f"{what}: should not be there: {row}" for row in sorted((seen - wanted).elements())]


def turnover_differences(expected: dict[str, list[Row]], found: list[Row]) -> list[str]:
    """Rows come once for each batch, so any may be left out, but not the last one, and none may differ."""
    last = {code: rows[-1] for code, rows in expected.items() if rows}
    by_count = {(code, row["trades"]): row for code, rows in expected.items() for row in rows}
    faults = [
        f"turnover: {row}, where a plain auction gives {by_count.get((row['stock'], row['trades']))}"
        for row in found
        if by_count.get((row["stock"], row["trades"])) != row
    ]
    told = Counter((row["stock"], row["trades"]) for row in found)
    faults += [f"turnover: told {times} times: {place}" for place, times in told.items() if times > 1]
    faults += [
        f"turnover: the last row of {code} is missing: {row}"
        for code, row in last.items()
        if (code, row["trades"]) not in told
    ]
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the stock exchange's output with a plain auction.")
    parser.add_argument("--orders", type=Path, default=HERE / "orders", help="the folder that was read")
    parser.add_argument("--alarms", type=Path, default=HERE / "user-alarms", help="the users' alarms")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="the folder that the sinks wrote")
    arguments = parser.parse_args()
    try:
        stocks = run_auction(arguments.orders)
        users = read_user_alarms(arguments.alarms)
        found = {name: read_rows(arguments.out / name) for name in SINKS}
    except ValueError as error:
        print(error)
        return 1
    if not stocks:
        print(f"There are no orders in {arguments.orders}: run generate_orders.py first.")
        return 1
    trades = [{**trade, "at": trade["at_ms"]} for stock in stocks.values() for trade in stock.trades]
    means = [row for stock in stocks.values() for row in averages(stock.trades)]
    alarmed = [row for stock in stocks.values() for row in alarms(stock.trades)]
    told = {code: list(turnovers(code, stock.trades)) for code, stock in stocks.items()}
    faults = differences("trades", trades, found["trades"])
    faults += turnover_differences(told, found["turnover"])
    faults += differences("averages", means, found["averages"])
    faults += differences("alarms", alarmed, found["alarms"])
    reached = [
        row for code, stock in stocks.items() for row in user_alarms(stock.trades, users.get(code, []))
    ]
    faults += differences("user-alarms", reached, found["user-alarms"])
    until_ms = watermark_ms(arguments.orders)
    over = [row for code, stock in stocks.items() for row in candles(code, stock.trades, until_ms)]
    faults += differences("candles", over, found["candles"])
    sliding = [row for code, stock in stocks.items() for row in trends(code, stock.trades, until_ms)]
    faults += differences("trends", sliding, found["trends"])
    faults += differences("index", list(index(over, until_ms)), found["index"])
    for fault in faults[:SHOWN_MAX]:
        print(fault)
    if faults:
        more = len(faults) - SHOWN_MAX
        print(f"{len(faults)} rows differ from a plain auction" + (f", {more} not shown" if more > 0 else ""))
        return 1
    value = sum(trade["volume"] * trade["price"] for trade in trades) / 100
    print(
        f"All {len(trades)} trades of {len(stocks)} stocks, worth {value:,.2f}, and what is told of them "
        f"({len(alarmed)} alarms, {len(reached)} of users, {len(over)} candles) equal those of "
        "a plain auction of the same orders."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
