"""The generated workloads keep to what the papers publish of theirs, under any seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.workloads import nexmark, word_count
from bench.workloads.sinusoid import Sinusoid
from bench.workloads.stock_exchange import PARAMETERS, SLOTS_PER_S, StockTrace, draw, read_parameters

MINUTE_S = 60


@pytest.fixture(scope="module", params=[1, 20_260])
def day(request: pytest.FixtureRequest) -> StockTrace:
    return draw(request.param)


def per_second(day: StockTrace) -> np.ndarray:
    return day.orders.sum(axis=1).reshape(-1, SLOTS_PER_S).sum(axis=1)


def test_orders_stocks_hours_and_substreams_are_the_published_ones(day: StockTrace) -> None:
    # StreamSwitch, section 6: 14,854,215 orders, 1,156 stocks, 4 hours; section 6.1: 64 substreams.
    assert day.orders.shape == (4 * 3600 * SLOTS_PER_S, 64)
    assert day.orders.sum() == day.of_stock.sum() == 14_854_215
    assert day.of_stock.shape == day.substream_of.shape == (1_156,)
    assert day.orders.min() >= 0


def test_a_substream_holds_the_orders_of_its_stocks(day: StockTrace) -> None:
    of_stocks = np.bincount(day.substream_of, weights=day.of_stock, minlength=64)
    assert day.orders.sum(axis=0).tolist() == of_stocks.tolist()


def test_a_hundredth_of_the_stocks_has_a_tenth_of_the_orders_and_one_has_a_fiftieth(day: StockTrace) -> None:
    # Section 6: the top 1% of the stocks and the heaviest one have "more than 10% and 2%" of the orders.
    shares = np.sort(day.of_stock)[::-1] / day.of_stock.sum()
    assert 0.10 < shares[:11].sum() < 0.12
    assert 0.02 < shares[0] < 0.03


def test_each_session_opens_with_seventy_to_eighty_thousand_in_a_second(day: StockTrace) -> None:
    # "spikes of 70K-80K/s at the opening of the trading sessions", 70-80 times the average rate (section 6.2)
    rates = per_second(day)
    openings = rates[[0, 7_200]]
    assert ((openings >= 70_000) & (openings <= 80_000)).all()
    elsewhere = np.delete(rates, [s + start for start in (0, 7_200) for s in range(MINUTE_S)])
    assert elsewhere.max() < 15_000


def test_else_the_rate_varies_from_hundreds_to_thousands(day: StockTrace) -> None:
    rates = per_second(day).reshape(2, 7_200)[:, MINUTE_S:]
    low, middle, high = np.quantile(rates, [0.02, 0.5, 0.98])
    assert 100 <= low < 700
    assert 700 < middle < 1_200
    assert 1_700 < high < 10_000


def test_the_skew_drifts_over_the_day(day: StockTrace) -> None:
    halves = day.orders.reshape(8, -1, 64).sum(axis=1).astype(np.float64)
    shares = halves / halves.sum(axis=1, keepdims=True)
    # Between two half hours at the two ends of the day substreams differ by far more than counting alone
    # does.
    noise = np.sqrt(shares[0] / halves[0].sum() + shares[7] / halves[7].sum())
    assert np.median(np.abs(shares[0] - shares[7]) / noise) > 5


def test_substreams_burst_within_seconds(day: StockTrace) -> None:
    # "bursty workload in the order of seconds and the granularity of substreams" (section 1)
    seconds = day.orders.reshape(-1, SLOTS_PER_S, 64).sum(axis=1).astype(np.float64)
    fives = seconds.reshape(-1, 5, 64).sum(axis=1)
    usual = fives.reshape(-1, 60, 64).mean(axis=1).repeat(60, axis=0)
    later = fives[24:]
    bursts = (later > 3 * usual[24:]) & (usual[24:] > 25)
    assert (bursts.any(axis=0)).mean() > 0.5


def test_a_seed_is_a_day_and_another_seed_another() -> None:
    small = read_parameters()
    first, again, other = draw(3, small), draw(3, small), draw(4, small)
    assert (first.orders == again.orders).all()
    assert (first.orders != other.orders).any()
    assert (first.substream_of != other.substream_of).any()


def test_the_parameters_hold_the_published_figures() -> None:
    p = read_parameters()
    assert (p.orders, p.stocks, p.seconds, p.substreams) == (14_854_215, 1_156, 4 * 3600, 64)
    assert (p.alert_ms, p.interval_ms, p.safety_margin) == (100, 100, 0.2)


def test_a_parameter_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PARAMETERS.read_text(encoding="utf-8") + "  latency_of_hope: 1\n")
    with pytest.raises(ValueError, match="latency_of_hope"):
        read_parameters(tmp_path / "p.yaml")


def test_a_sinusoid_swings_around_its_base_and_ends_where_it_began() -> None:
    wave = Sinusoid(30_000, 10_000, 600).per_slot(600)
    assert len(wave) == 6_000
    assert wave.mean() * SLOTS_PER_S == pytest.approx(30_000)
    assert wave.max() * SLOTS_PER_S == pytest.approx(40_000, rel=1e-6)
    assert wave.min() * SLOTS_PER_S == pytest.approx(20_000, rel=1e-6)
    assert wave.argmax() == pytest.approx(1_500, abs=1)


def test_a_sinusoid_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="no load"):
        Sinusoid(10, 11, 60)


def test_queries_have_the_published_loads() -> None:
    # Sections 6.3, 6.4, 6.5.
    assert nexmark.q8().load == Sinusoid(30_000, 30_000, 600)
    assert nexmark.q2(0.5, 0.2).load == Sinusoid(30_000, 10_000, 600)
    assert nexmark.q2(0.5, 0.2).service_per_s == 4_000
    assert nexmark.q5(10_000, 90).service_per_s == 10_000
    assert nexmark.q5(10_000, 90, 2_000).switching_ms - nexmark.q5(10_000, 90).switching_ms == 2_000
    rows = nexmark.q5(10_000, 90).rows(seed=5)
    assert rows.shape == (660 * SLOTS_PER_S, nexmark.SHARDS)
    assert rows.sum() / 660 == pytest.approx(30_000, rel=0.02)


def test_word_count_needs_ten_splits_and_twenty_counts_at_its_base_rate() -> None:
    # Section 6.6.
    sentences = word_count.LOAD.base_per_s
    assert np.ceil(sentences / word_count.SPLIT_PER_S) == 10
    assert np.ceil(sentences * word_count.WORDS_PER_SENTENCE / word_count.COUNT_PER_S) == 20
    assert word_count.LOAD.amplitude_per_s / sentences == 0.25
    assert {split + count for split, count in word_count.SPLITS_MS} == {word_count.LATENCY_MS}
    assert word_count.word_shares(seed=1).sum() == pytest.approx(1)
    assert word_count.sentences(seed=1).shape == (9_000, 64)
