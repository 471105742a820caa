"""Draws the orders of a short trading session, and the rate at which they come, from a seed.

The shape is that of the Shanghai Stock Exchange as StreamSwitch publishes it (section 6): 1 156 stocks, of
which the heaviest has more than 2% of the orders and the first eleven more than 10%; a rush at the
opening, and a rate that wanders and bursts. Which stocks are wanted changes over time (Elasticutor, figure
18). Sizes are those of a demonstration; `--orders`, `--seconds` and `--stocks` set others.

    orders/orders-1.csv, ...    number,stock,account,side,price,volume,cancels,at_ms
    rates.csv                   seconds,rate_per_s
    user-alarms/alarms.jsonl    {"stock": ..., "account": ..., "above": ...}

All orders of a stock are in one file, in the order of their numbers. Prices are whole cents. `cancels` is 0,
or the number of the order that is taken back. `at_ms` is when an order is due, counted from the opening.
Users' alarms are at `ALARMS_PERCENT` above the first price that somebody named for a stock.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent

EXPONENT = 0.58
"""Stock i of the session is wanted in proportion to i ** -EXPONENT: 2.3% for the first, 10.8% for eleven."""
DRIFT_SIGMA, DRIFT_S = 0.4, 20.0
"""Spread (of the log) and correlation time of what a stock's share is multiplied by."""
OPENING_HEIGHT, OPENING_S = 5.0, 3.0
"""The rush at the opening: this many times the usual rate, and how fast it fades."""
WANDER_SIGMA, WANDER_S = 0.25, 10.0
BURST_EVERY_S, BURST_HEIGHT, BURST_S = 30.0, (1.5, 3.0), (2.0, 6.0)
"""Bursts: mean distance, height over the usual rate, and length."""
PRICE_MEDIAN, PRICE_SIGMA = 1_200, 0.7
"""Of the stocks' first prices, in cents; the spread is of the log."""
STEP_SIGMA = 0.002
"""By what share a stock's price moves with an order."""
OFFSET_MEAN, OFFSET_SIGMA = 0.0015, 0.003
"""By what share a buyer stays below the stock's price, and a seller above it; below 0 they meet at once."""
CANCEL_CHANCE, CANCEL_BACK = 0.12, 20
"""How often somebody takes an order back, and how many orders of the stock it is ago at most."""
ACCOUNTS = 100_000
ALARMS_PERCENT = (0, 1, 3)
"""One alarm each for every stock."""
LOT = 100


@dataclass(frozen=True, slots=True)
class Session:
    """`rates_per_s` has one rate for each second; `orders` is a list of lines' values for each stock."""

    rates_per_s: NDArray[np.float64]
    orders: dict[str, list[tuple[object, ...]]]


def draw(seed: int, orders: int, stocks: int, seconds: int) -> Session:
    """The session of `seed`, with so many orders of at most so many stocks in so many seconds."""
    random = np.random.default_rng(seed)
    rates_per_s = draw_rates(random, orders, seconds)
    due_ms = due_times_ms(rates_per_s, orders)
    stock_of = draw_stocks(random, due_ms, stocks, seconds)
    codes = [str(600_000 + code) for code in random.permutation(stocks)]
    found: dict[str, list[tuple[object, ...]]] = {}
    for stock in range(stocks):
        numbers = np.flatnonzero(stock_of == stock)
        if len(numbers):
            found[codes[stock]] = draw_orders(random, codes[stock], numbers, due_ms)
    return Session(rates_per_s, found)


def draw_rates(random: np.random.Generator, orders: int, seconds: int) -> NDArray[np.float64]:
    """Orders a second, for each second; rounded to tenths."""
    at_s = np.arange(seconds, dtype=np.float64)
    level = np.exp(wander(random, seconds, 1, WANDER_SIGMA, WANDER_S)[:, 0])
    level += (OPENING_HEIGHT - 1) * np.exp(-at_s / OPENING_S)
    burst_s = random.exponential(BURST_EVERY_S)
    while burst_s < seconds:
        end_s = burst_s + random.uniform(*BURST_S)
        level[(at_s >= burst_s) & (at_s < end_s)] *= random.uniform(*BURST_HEIGHT)
        burst_s = end_s + random.exponential(BURST_EVERY_S)
    return np.maximum(0.1, np.round(level * orders / level.sum(), 1))


def due_times_ms(rates_per_s: NDArray[np.float64], orders: int) -> NDArray[np.int64]:
    """When each order is due: where the rates have given as many before."""
    before = np.concatenate([[0.0], np.cumsum(rates_per_s)])
    return (np.interp(np.arange(orders), before, np.arange(len(before))) * 1000).astype(np.int64)


def draw_stocks(
    random: np.random.Generator, due_ms: NDArray[np.int64], stocks: int, seconds: int
) -> NDArray[np.int64]:
    """The stock of each order, by rank."""
    shares = np.arange(1, stocks + 1, dtype=np.float64) ** -EXPONENT
    wanted = shares * np.exp(wander(random, seconds, stocks, DRIFT_SIGMA, DRIFT_S))
    # Each stock keeps its share of the session, however it is spread over the seconds.
    wanted *= shares / wanted.mean(axis=0)
    stock_of = np.empty(len(due_ms), dtype=np.int64)
    second_of = np.minimum(due_ms // 1000, seconds - 1)
    for second in range(seconds):
        begin, end = np.searchsorted(second_of, (second, second + 1))
        chances = np.cumsum(wanted[second])
        stock_of[begin:end] = np.searchsorted(chances, random.random(end - begin) * chances[-1], side="right")
    return stock_of


def wander(
    random: np.random.Generator, steps: int, series: int, sigma: float, correlation: float
) -> NDArray[np.float64]:
    """Series of normal numbers with mean 0 that forget within `correlation` steps, [steps, series]."""
    kept = np.exp(-1 / correlation)
    values = np.empty((steps, series))
    values[0] = random.normal(0, sigma, series)
    for step in range(1, steps):
        values[step] = kept * values[step - 1] + random.normal(0, sigma * np.sqrt(1 - kept**2), series)
    return values


def draw_orders(
    random: np.random.Generator, stock: str, numbers: NDArray[np.int64], due_ms: NDArray[np.int64]
) -> list[tuple[object, ...]]:
    """The orders of one stock; `numbers` are the places in the session that are its own, from 0 on."""
    count = len(numbers)
    first = random.lognormal(np.log(PRICE_MEDIAN), PRICE_SIGMA)
    prices = first * np.exp(np.cumsum(random.normal(0, STEP_SIGMA, count)))
    buys = random.random(count) < 0.5
    offsets = prices * random.normal(OFFSET_MEAN, OFFSET_SIGMA, count)
    limits = np.maximum(1, np.rint(np.where(buys, prices - offsets, prices + offsets))).astype(int)
    volumes = (LOT * random.geometric(0.3, count)).tolist()
    accounts = random.integers(1, ACCOUNTS + 1, count).tolist()
    back = random.integers(1, CANCEL_BACK + 1, count).tolist()
    cancels = random.random(count) < CANCEL_CHANCE
    made: list[tuple[object, ...]] = []
    for place, number in enumerate(numbers.tolist()):
        side = "buy" if buys[place] else "sell"
        account, limit, volume, cancelled = accounts[place], int(limits[place]), volumes[place], 0
        target = place - back[place]
        if cancels[place] and target >= 0 and made[target][6] == 0:
            cancelled, _, account, side, limit = made[target][:5]
            volume = 0
        made.append((number + 1, stock, account, side, limit, volume, cancelled, int(due_ms[number])))
    return made


def write(session: Session, folder: Path, files: int) -> None:
    """Make `folder` hold the session's files, and no orders of an earlier one."""
    (folder / "orders").mkdir(parents=True, exist_ok=True)
    for path in (folder / "orders").glob("orders-*.csv"):
        path.unlink()
    # Stocks are dealt out by weight, so that files are about equally large.
    by_weight = sorted(session.orders.values(), key=len, reverse=True)
    for file in range(files):
        lines = sorted(order for orders in by_weight[file::files] for order in orders)
        text = "".join(",".join(map(str, order)) + "\n" for order in lines)
        (folder / "orders" / f"orders-{file + 1}.csv").write_text(text, encoding="utf-8")
    (folder / "user-alarms").mkdir(exist_ok=True)
    alarms = [
        {"stock": stock, "account": account, "above": orders[0][4] * (100 + percent) // 100}
        for stock, orders in sorted(session.orders.items())
        for account, percent in enumerate(ALARMS_PERCENT, start=1)
    ]
    lines_of_alarms = "".join(json.dumps(alarm) + "\n" for alarm in alarms)
    (folder / "user-alarms" / "alarms.jsonl").write_text(lines_of_alarms, encoding="utf-8")
    rates = "".join(f"{second},{rate:.1f}\n" for second, rate in enumerate(session.rates_per_s.tolist()))
    (folder / "rates.csv").write_text("seconds,rate_per_s\n" + rates, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the orders of a short trading session from a seed.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--orders", type=int, default=60_000)
    parser.add_argument("--stocks", type=int, default=1_156)
    parser.add_argument("--seconds", type=int, default=120, help="length of the session")
    parser.add_argument("--files", type=int, default=4, help="shards of the source")
    parser.add_argument("--folder", type=Path, default=HERE, help="where orders/ and rates.csv are written")
    arguments = parser.parse_args()
    for name in ("orders", "stocks", "seconds", "files"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is {getattr(arguments, name)}; give 1 or more")
    session = draw(arguments.seed, arguments.orders, arguments.stocks, arguments.seconds)
    write(session, arguments.folder, arguments.files)
    rates = session.rates_per_s
    print(
        f"{arguments.orders} orders of {len(session.orders)} stocks in {arguments.seconds} s, "
        f"from {rates.min():.0f} to {rates.max():.0f} a second, are in {arguments.folder}"
    )


if __name__ == "__main__":
    main()
