"""A day of orders in the shape of StreamSwitch's stock exchange (section 6), drawn from a seed.

All parameters are in `stock_exchange.yaml`, which says what is published, what assumed and what fitted.
What is exact under every seed: the number of orders, of stocks, of substreams and of slots. The shares of the
stocks over the day are a power law up to the noise of drawing; over time each wanders and bursts around it.
Neighbours: `bench.sla` runs policies on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

PARAMETERS = Path(__file__).with_name("stock_exchange.yaml")
SLOT_MS = 100
SLOTS_PER_S = 1000 // SLOT_MS
_STREAM = 1
_STEP_S = 10
"""The drift of the skew is drawn so often, and straight in between."""


@dataclass(frozen=True, slots=True)
class StockParameters:
    """`stock_exchange.yaml` under its own names; pairs of a burst are (median, deviation of the log)."""

    orders: int
    stocks: int
    session_s: int
    sessions: int
    substreams: int
    opening_per_s: tuple[float, float]
    top_stocks: int
    top_share_min: float
    heaviest_share_min: float
    alert_ms: float
    interval_ms: int
    safety_margin: float
    nodes: int
    node_cores: int
    network_bytes_per_s: float
    order_bytes: float
    zipf_exponent: float
    opening_fall_per_s: float
    level: tuple[tuple[tuple[float, float], ...], ...]
    market_sigma: float
    market_correlation_s: float
    market_bursts_per_hour: float
    market_burst_height: tuple[float, float]
    market_burst_s: tuple[float, float]
    drift_sigma: float
    drift_correlation_s: float
    stock_bursts_per_hour: float
    stock_burst_height: tuple[float, float]
    stock_burst_s: tuple[float, float]
    burst_s_max: float
    switching_ms: float
    start_up_ms: float
    service_scv: float
    executors_at_start: int
    executors_max: int
    state_bytes_per_substream: float
    elastic_executors: int
    task_start_up_ms: float
    task_switching_ms: float
    service_per_s: float
    static8_substreams_above: int

    @property
    def seconds(self) -> int:
        """Of the whole trace."""
        return self.session_s * self.sessions

    @property
    def slots(self) -> int:
        """Of 100 ms each."""
        return self.seconds * SLOTS_PER_S


def read_parameters(path: Path = PARAMETERS) -> StockParameters:
    """The frozen parameters. ValueError for a file that lacks one or has one too many."""
    sections: Mapping[str, Mapping[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    given = {name: value for section in sections.values() for name, value in section.items()}
    wanted = {field.name for field in fields(StockParameters)}
    if given.keys() != wanted:
        raise ValueError(f"{path.name}: {sorted(given.keys() ^ wanted)} missing or unknown")
    given = {name: _frozen(value) for name, value in given.items()}
    return StockParameters(**given)


@dataclass(frozen=True, slots=True)
class StockTrace:
    """`orders` is how many orders of each substream are due in each slot, [slots, substreams]; `of_stock` how
    many each stock has over the day; `substream_of` which substream a stock is in."""

    orders: NDArray[np.int64]
    of_stock: NDArray[np.int64]
    substream_of: NDArray[np.int64]


def draw(seed: int, parameters: StockParameters | None = None) -> StockTrace:
    """The day of `seed`: the same one for the same seed and parameters."""
    p = parameters or read_parameters()
    random = np.random.default_rng((_STREAM, seed))
    ranks = np.arange(1, p.stocks + 1, dtype=np.float64)
    shares = ranks**-p.zipf_exponent
    shares /= shares.sum()
    substream_of = random.permutation(p.stocks) % p.substreams
    market = _market(random, p)
    opening = _opening(random, p)
    # Where a substream's orders lie: the market's level times the substream's wandering share, and the bursts
    # of
    # its stocks. Each stock keeps its share of the day, so the sum over the day is the sum of its stocks'
    # shares.
    places = _wandering(random, p, shares, substream_of, market)
    _add_stock_bursts(random, p, shares, substream_of, market, places)
    whole = np.bincount(substream_of, weights=shares, minlength=p.substreams)
    places *= whole * (p.orders - opening.sum()) / places.sum(axis=0)
    places += opening[:, None] * whole
    of_stock = random.multinomial(p.orders, shares)
    of_substream = np.bincount(substream_of, weights=of_stock, minlength=p.substreams).astype(np.int64)
    orders = np.empty((p.slots, p.substreams), dtype=np.int64)
    for substream in range(p.substreams):
        weights = places[:, substream]
        orders[:, substream] = random.multinomial(int(of_substream[substream]), weights / weights.sum())
    return StockTrace(orders, of_stock.astype(np.int64), substream_of.astype(np.int64))


def _market(random: np.random.Generator, p: StockParameters) -> NDArray[np.float64]:
    """The market's level in each slot, without the openings; relative."""
    seconds = np.arange(p.slots) / SLOTS_PER_S
    within = seconds % p.session_s
    level = np.empty(p.slots)
    for session, knots in enumerate(p.level):
        there = (seconds // p.session_s).astype(np.int64) == session
        minutes, levels = zip(*knots, strict=True)
        level[there] = np.interp(within[there] / 60, minutes, levels)
    wavering = _ornstein_uhlenbeck(random, p.seconds + 1, 1.0 / p.market_correlation_s, 1)[:, 0]
    level *= np.exp(p.market_sigma * np.interp(seconds, np.arange(p.seconds + 1), wavering))
    raised = np.zeros(p.slots)
    count = random.poisson(p.market_bursts_per_hour * p.seconds / 3600)
    for start, shape in _bursts(random, p, count, p.market_burst_height, p.market_burst_s):
        window = raised[start : start + len(shape)]
        np.maximum(window, shape, out=window)
    return level * (1 + raised)


def _opening(random: np.random.Generator, p: StockParameters) -> NDArray[np.float64]:
    """Orders of the openings in each slot: a first second of 70 000 to 80 000, then a geometric fall.

    The market's own orders come on top of it: they are left out of the drawn height.
    """
    low, high = p.opening_per_s
    usual = 2 * p.orders / p.seconds
    orders = np.zeros(p.slots)
    for session in range(p.sessions):
        height = random.uniform(low, high - usual)
        for second in range(60):
            start = (session * p.session_s + second) * SLOTS_PER_S
            orders[start : start + SLOTS_PER_S] += height * p.opening_fall_per_s**second / SLOTS_PER_S
    return orders


def _wandering(
    random: np.random.Generator,
    p: StockParameters,
    shares: NDArray[np.float64],
    substream_of: NDArray[np.int64],
    market: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Level of each substream in each slot, [slots, substreams]: skew that drifts, shares of the day that
    stay."""
    steps = p.seconds // _STEP_S + 1
    drift = np.exp(
        p.drift_sigma * _ornstein_uhlenbeck(random, steps, _STEP_S / p.drift_correlation_s, p.stocks)
    )
    at_step = market[np.minimum(np.arange(steps) * _STEP_S * SLOTS_PER_S, p.slots - 1)]
    drift *= shares / np.average(drift, axis=0, weights=at_step)
    of_substream = np.zeros((steps, p.substreams))
    for substream in range(p.substreams):
        of_substream[:, substream] = drift[:, substream_of == substream].sum(axis=1)
    seconds = np.arange(p.slots) / SLOTS_PER_S
    places = np.empty((p.slots, p.substreams))
    for substream in range(p.substreams):
        places[:, substream] = market * np.interp(
            seconds, np.arange(steps) * _STEP_S, of_substream[:, substream]
        )
    return places


def _add_stock_bursts(
    random: np.random.Generator,
    p: StockParameters,
    shares: NDArray[np.float64],
    substream_of: NDArray[np.int64],
    market: NDArray[np.float64],
    places: NDArray[np.float64],
) -> None:
    """Bursts of single stocks on top of `places`, in place."""
    count = random.poisson(p.stock_bursts_per_hour * p.seconds / 3600)
    stocks = random.choice(p.stocks, size=count, p=shares)
    bursts = _bursts(random, p, count, p.stock_burst_height, p.stock_burst_s)
    for stock, (start, shape) in zip(stocks, bursts, strict=True):
        end = start + len(shape)
        places[start:end, substream_of[stock]] += shares[stock] * shape * market[start:end]


def _bursts(
    random: np.random.Generator,
    p: StockParameters,
    count: int,
    height: tuple[float, float],
    length_s: tuple[float, float],
) -> list[tuple[int, NDArray[np.float64]]]:
    """(first slot, what comes on top of the usual 1 in each slot), `count` times, cut at the end of the
    trace."""
    starts = random.integers(0, p.slots, size=count)
    heights = np.maximum(height[0] * np.exp(height[1] * random.standard_normal(count)) - 1, 0)
    lengths_s = np.minimum(length_s[0] * np.exp(length_s[1] * random.standard_normal(count)), p.burst_s_max)
    slots = np.maximum(np.round(lengths_s * SLOTS_PER_S), 1).astype(np.int64)
    return [
        (int(start), (top * (1 - np.arange(length) / length))[: p.slots - start])
        for start, top, length in zip(starts, heights, slots, strict=True)
    ]


def _ornstein_uhlenbeck(
    random: np.random.Generator, steps: int, step: float, width: int
) -> NDArray[np.float64]:
    """Standard Gaussian paths, [steps, width], whose correlation over n steps is exp(-n * step)."""
    keep = np.exp(-step)
    noise = random.standard_normal((steps, width))
    noise[1:] *= np.sqrt(1 - keep**2)
    for at in range(1, steps):
        noise[at] += keep * noise[at - 1]
    return noise


def _frozen(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value
