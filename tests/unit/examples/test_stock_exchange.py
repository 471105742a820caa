"""The stock-exchange example: the auction's rules by hand and against another auction, and its orders."""

from __future__ import annotations

import datetime
import importlib.util
import itertools
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import Row

from house import ROOT
from penstock.api.compile import compile_topology
from penstock.api.load import load_manifest, load_topology
from penstock.dataflow.plan import Processor
from penstock.dataflow.rate_trace import read_rate_trace

EXAMPLE = ROOT / "examples" / "stock-exchange"
COLUMNS = ("number", "stock", "account", "side", "price", "volume", "cancels", "at_ms")
STOCK = "600000"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"stock_exchange_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


exchange = load("stock_exchange")
compare = load("compare")
generator = load("generate_orders")


def order(number: int, side: str, price: int, volume: int, cancels: int = 0) -> Row:
    values = (number, STOCK, 1000 + number, side, price, volume, cancels, number * 10)
    return Row(**dict(zip(COLUMNS, values, strict=True)))


def trades_of(*batches: list[Row]) -> list[Row]:
    tester = TwsTester(exchange.ContinuousAuction())
    return [trade for batch in batches for trade in tester.test(STOCK, batch)]


def told(trades: list[Row]) -> list[tuple[int, int, int, int, int]]:
    return [(row.trade, row.price, row.volume, row.buy_order, row.sell_order) for row in trades]


# --- the auction, by hand -------------------------------------------------------------------------


def test_orders_that_do_not_meet_wait() -> None:
    assert trades_of([order(1, "buy", 999, 100), order(2, "sell", 1000, 100)]) == []


def test_a_trade_has_the_price_of_the_order_that_waited_and_names_both() -> None:
    (trade,) = trades_of([order(1, "sell", 1000, 300)], [order(2, "buy", 1005, 100)])
    assert trade == Row(
        stock=STOCK,
        trade=1,
        price=1000,
        volume=100,
        buy_order=2,
        sell_order=1,
        buyer=1002,
        seller=1001,
        at_ms=20,
        at=datetime.datetime(1970, 1, 1, 0, 0, 0, 20_000, tzinfo=datetime.UTC),
    )


def test_a_better_price_is_served_first_and_then_who_came_first() -> None:
    waiting = [order(1, "sell", 1002, 100), order(2, "sell", 1001, 100), order(3, "sell", 1001, 200)]
    trades = trades_of(waiting, [order(4, "buy", 1002, 350)])
    assert told(trades) == [(1, 1001, 100, 4, 2), (2, 1001, 200, 4, 3), (3, 1002, 50, 4, 1)]


def test_a_seller_meets_the_highest_buyer_first() -> None:
    waiting = [order(1, "buy", 998, 100), order(2, "buy", 1000, 100), order(3, "buy", 999, 100)]
    trades = trades_of(waiting, [order(4, "sell", 999, 500)], [order(5, "buy", 999, 50)])
    assert told(trades) == [(1, 1000, 100, 2, 4), (2, 999, 100, 3, 4), (3, 999, 50, 5, 4)]


def test_the_rest_of_an_order_keeps_its_place() -> None:
    trades = trades_of(
        [order(1, "buy", 1000, 300), order(2, "buy", 1000, 100)],
        [order(3, "sell", 1000, 100)],
        [order(4, "sell", 1000, 250)],
    )
    assert told(trades) == [(1, 1000, 100, 1, 3), (2, 1000, 200, 1, 4), (3, 1000, 50, 2, 4)]


def test_an_order_that_was_taken_back_meets_nobody() -> None:
    waiting = [order(1, "sell", 1000, 100), order(2, "sell", 1000, 100)]
    trades = trades_of(waiting, [order(3, "sell", 1000, 0, cancels=1)], [order(4, "buy", 1000, 150)])
    assert told(trades) == [(1, 1000, 100, 4, 2)]


def test_who_takes_back_what_is_served_already_changes_nothing() -> None:
    trades = trades_of(
        [order(1, "sell", 1000, 100)],
        [order(2, "buy", 1000, 100)],
        [order(3, "sell", 1000, 0, cancels=1), order(4, "sell", 1000, 0, cancels=99)],
        [order(5, "sell", 1000, 100), order(6, "buy", 1000, 100)],
    )
    assert told(trades) == [(1, 1000, 100, 2, 1), (2, 1000, 100, 6, 5)]


def test_orders_of_a_batch_are_served_by_number() -> None:
    mixed = [order(3, "buy", 1000, 100), order(1, "sell", 1000, 100), order(2, "sell", 999, 100)]
    assert told(trades_of(mixed)) == [(1, 999, 100, 3, 2)]


def test_the_book_is_bounded_and_the_last_to_be_served_falls_out() -> None:
    depth = exchange.DEPTH
    tester = TwsTester(exchange.ContinuousAuction())
    tester.test(STOCK, [order(1, "sell", 2000, 100)])
    tester.test(STOCK, [order(2 + place, "sell", 1000 + place, 100) for place in range(depth)])
    book = tester.peekValueState("book", STOCK)
    assert book is not None
    _, asks, _, ask_orders, _ = book
    assert (len(asks), ask_orders, max(asks)) == (depth, depth, 999 + depth)
    tester.test(STOCK, [order(9_000, "sell", 3000, 100)])
    assert tester.peekValueState("book", STOCK) == book
    assert tester.test(STOCK, [order(9_001, "buy", 3000, 100 * depth + 100)])[-1].price == 999 + depth


# --- what is told of trades -----------------------------------------------------------------------


def trade(number: int, price: int, volume: int) -> Row:
    """As far as what is told of trades reads it."""
    return Row(stock=STOCK, trade=number, price=price, volume=volume)


def test_the_turnover_is_told_once_a_batch() -> None:
    tester = TwsTester(exchange.Turnover())
    rows = tester.test(STOCK, [trade(1, 1000, 100), trade(2, 990, 200)])
    assert rows == [Row(stock=STOCK, trades=2, price=990, low=990, high=1000, volume=300, turnover=298_000)]
    (row,) = tester.test(STOCK, [trade(3, 1010, 100)])
    assert (row.trades, row.price, row.low, row.high, row.volume) == (3, 1010, 990, 1010, 400)


def test_a_mean_is_of_the_last_20_trades_by_volume() -> None:
    tester = TwsTester(exchange.MovingAverage())
    rows = tester.test(STOCK, [trade(1, 1000, 100), trade(2, 1030, 200)])
    assert [row.mean for row in rows] == [1000.0, 1020.0]
    rows = tester.test(STOCK, [trade(number, 900, 100) for number in range(3, 24)])
    assert rows[-3].mean == (1030 * 2 + 900 * 19) / 21, "trade 21: trade 2 with twice the volume, and 19 more"
    assert [row.mean for row in rows[-2:]] == [900.0, 900.0]


def test_an_alarm_is_at_3_percent_from_the_last_one() -> None:
    tester = TwsTester(exchange.Alarms())
    prices = [1000, 1029, 1030, 1001, 999, 1000]
    rows = tester.test(STOCK, [trade(number, price, 100) for number, price in enumerate(prices, start=1)])
    assert [(row.trade, row.price, row.reference) for row in rows] == [(3, 1030, 1000), (5, 999, 1030)]
    assert tester.test(STOCK, [trade(7, 1029, 1)]) == [Row(stock=STOCK, trade=7, price=1029, reference=999)]


# --- against the auction of compare.py ------------------------------------------------------------


@st.composite
def sessions(draw: Any) -> list[list[Row]]:
    """Batches of orders of one stock, some of which take earlier ones back."""
    orders: list[Row] = []
    for number in range(1, draw(st.integers(1, 60)) + 1):
        earlier = [row for row in orders if not row.cancels]
        if earlier and draw(st.integers(0, 7)) == 0:
            target = draw(st.sampled_from(earlier))
            orders.append(order(number, target.side, target.price, 0, cancels=target.number))
        else:
            side = draw(st.sampled_from(["buy", "sell"]))
            orders.append(order(number, side, draw(st.integers(995, 1005)), draw(st.integers(1, 9))))
    cuts = sorted(draw(st.lists(st.integers(0, len(orders)), max_size=5)))
    borders = [0, *cuts, len(orders)]
    return [orders[begin:end] for begin, end in itertools.pairwise(borders) if begin < end]


@pytest.mark.parametrize("depth", [3, 500])
@given(batches=sessions())
@settings(deadline=None)
def test_two_auctions_agree_however_the_orders_are_batched(depth: int, batches: list[list[Row]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "DEPTH", depth)
        patch.setattr(compare, "DEPTH", depth)
        trades = trades_of(*batches)
        plain = compare.Stock()
        for row in (row for batch in batches for row in batch):
            compare.serve(plain, STOCK, tuple(row)[:1] + tuple(row)[2:])
    assert [row.asDict() for row in trades] == [
        {**trade, "at": exchange.time_of(trade["at_ms"])} for trade in plain.trades
    ]


def test_what_differs_from_a_plain_auction_is_told() -> None:
    rows = [{"stock": "a", "trades": count, "price": 7} for count in (1, 2, 3)]
    assert compare.turnover_differences({"a": rows}, [rows[0], rows[2]]) == []
    assert len(compare.turnover_differences({"a": rows}, rows[:2])) == 1
    assert len(compare.turnover_differences({"a": rows}, [rows[2], rows[2]])) == 1
    assert len(compare.turnover_differences({"a": rows}, [{**rows[1], "price": 8}, rows[2]])) == 1
    assert compare.differences("trades", rows, rows[::-1]) == []
    faults = compare.differences("trades", rows, [rows[0], rows[0], rows[1]])
    assert [fault.split(": {")[0] for fault in faults] == ["trades: missing", "trades: should not be there"]


# --- the orders -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session() -> Any:
    return generator.draw(seed=1, orders=60_000, stocks=1_156, seconds=120)


def test_the_skew_is_the_papers(session: Any) -> None:
    # StreamSwitch, section 6: the top 1% (11 stocks) and the heaviest stock contribute more than 10% and 2%.
    weights = sorted((len(orders) for orders in session.orders.values()), reverse=True)
    assert sum(weights) == 60_000
    assert 0.02 < weights[0] / 60_000 < 0.03
    assert 0.10 < sum(weights[:11]) / 60_000 < 0.13
    shares = np.arange(1, 1157) ** -generator.EXPONENT / np.sum(np.arange(1, 1157) ** -generator.EXPONENT)
    assert (shares[0], shares[:11].sum()) == (pytest.approx(0.0226, abs=1e-3), pytest.approx(0.108, abs=1e-3))


def test_there_is_a_rush_at_the_opening_and_bursts_after_it(session: Any) -> None:
    rates = session.rates_per_s
    assert rates.sum() == pytest.approx(60_000, rel=0.001)
    usual = np.median(rates)
    assert rates[0] > 3 * usual
    assert rates[10:].max() > 1.4 * usual
    assert rates.min() > 0


def test_orders_are_such_that_people_place(session: Any) -> None:
    by_number = {row[0]: row for orders in session.orders.values() for row in orders}
    assert sorted(by_number) == list(range(1, 60_001))
    counts: Counter[str] = Counter()
    for number, stock, account, side, price, volume, cancels, _ in by_number.values():
        counts["cancels" if cancels else side] += 1
        assert price >= 1
        if cancels:
            target = by_number[cancels]
            assert cancels < number
            assert (target[1:5], target[6]) == ((stock, account, side, price), 0)
        else:
            assert volume > 0
            assert volume % generator.LOT == 0
    assert counts["cancels"] / 60_000 == pytest.approx(0.1, abs=0.03)
    assert counts["buy"] / counts["sell"] == pytest.approx(1, abs=0.05)
    due_ms = [by_number[number][7] for number in sorted(by_number)]
    assert due_ms == sorted(due_ms)
    assert due_ms[-1] < 120_000


def test_which_stocks_are_wanted_changes(session: Any) -> None:
    orders = max(session.orders.values(), key=len)
    rates = session.rates_per_s
    shares = [
        sum(begin * 1000 <= row[7] < (begin + 20) * 1000 for row in orders) / rates[begin : begin + 20].sum()
        for begin in range(0, 120, 20)
    ]
    assert max(shares) > 1.3 * min(shares)


def test_a_seed_gives_the_same_files_and_another_one_others(tmp_path: Path) -> None:
    texts = []
    for run, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(run)
        generator.write(generator.draw(seed, orders=2_000, stocks=50, seconds=10), folder, files=3)
        texts.append({path.name: path.read_text() for path in sorted(folder.rglob("*.csv"))})
    assert list(texts[0]) == ["orders-1.csv", "orders-2.csv", "orders-3.csv", "rates.csv"]
    assert texts[0] == texts[1] != texts[2]


def test_files_keep_each_stock_together_in_order_and_are_about_equally_large(tmp_path: Path) -> None:
    generator.write(generator.draw(3, orders=20_000, stocks=300, seconds=10), tmp_path, files=4)
    generator.write(generator.draw(3, orders=20_000, stocks=300, seconds=10), tmp_path, files=2)
    files = sorted((tmp_path / "orders").iterdir())
    assert len(files) == 2, "orders of an earlier session are removed"
    rows = [[line.split(",") for line in file.read_text().splitlines()] for file in files]
    assert not {row[1] for row in rows[0]} & {row[1] for row in rows[1]}
    assert all([int(row[0]) for row in file] == sorted(int(row[0]) for row in file) for file in rows)
    assert len(rows[0]) == pytest.approx(len(rows[1]), rel=0.1)
    assert read_rate_trace(tmp_path / "rates.csv").rates_per_s[-1] > 0


# --- the manifests --------------------------------------------------------------------------------


def test_the_manifests_compile_and_fit_together() -> None:
    topology = load_topology(EXAMPLE / "topology.yaml")
    plan = compile_topology(topology)
    told = [
        "turnover",
        "averages",
        "alarms",
        "user-alarms-initial",
        "user-alarms",
        "candles",
        "trends",
        "index",
    ]
    assert [stage.operator for stage in plan.stages] == ["lines", "auction", *told]
    auction = plan.stage("auction")
    assert isinstance(auction.head, Processor)
    assert auction.head.input.names == (*COLUMNS, "at")
    assert auction.head.shards == 64
    behind = {"turnover", "averages", "alarms", "user-alarms", "candles", "trends"}
    assert {edge.operator for edge in auction.out.edges} == behind
    (sla,) = load_manifest(EXAMPLE / "sla.yaml").latency_slas
    assert (sla.spec.topology, sla.spec.policy) == (topology.metadata.name, "StreamSwitch")
    assert sla.spec.operator in {operator.name for operator in topology.spec.operators}
    assert (sla.spec.latency, sla.spec.window) == ("250ms", "1s")


def test_a_users_alarm_goes_off_once_and_from_its_price_on() -> None:
    set_alarms = [Row(stock=STOCK, account=7, above=1010), Row(stock=STOCK, account=8, above=1000)]
    tester = TwsTester(exchange.UserAlarms(), initialStateRow=[(STOCK, row) for row in set_alarms])
    (row,) = tester.test(STOCK, [trade(1, 999, 100), trade(2, 1005, 100)])
    assert row == Row(stock=STOCK, account=8, above=1000, trade=2, price=1005)
    (row,) = tester.test(STOCK, [trade(3, 1005, 100), trade(4, 1010, 100)])
    assert row == Row(stock=STOCK, account=7, above=1010, trade=4, price=1010)
    assert tester.test(STOCK, [trade(5, 1020, 100)]) == []


def test_the_code_and_the_comparison_have_the_same_rules() -> None:
    for name in ("DEPTH", "WINDOW", "ALARM_PERCENT"):
        assert getattr(exchange, name) == getattr(compare, name)
