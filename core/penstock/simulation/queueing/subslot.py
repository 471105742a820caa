"""What slots hide: how long rows wait for each other within a slot.

In slots a queue is looked at only at their ends, and rows come and are worked like water in between. Waiting
is the maximum of a random walk, and the maximum over slots' ends is less than that over all times. For
Brownian motion with negative drift both are known, so is their difference (Chang and Peres, Ladder heights,
Gaussian random walks and the Riemann zeta function, 1997): sigma sqrt(delta) d(x), with x = (1 - rho)
sqrt(delta) / sigma. At low load that is all of Pollaczek and Khinchine's waiting time, at high load 0.58
sigma sqrt(delta). Neighbour: `slots` adds it to what it has counted.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from penstock.simulation.queueing.model import FloatArray

_ZETA_HALF = -1.4603545088095868
_ZETAS = (-0.20788622497735457, -0.025485201889833035, 0.008516928778, 0.004441010837)
"""zeta(-1/2 - r) for r = 0, 1, 2, 3."""

_X_MAX = 8.0
_POINTS = 801


def hidden_waiting_us(
    load: FloatArray, work_rate_us: FloatArray, slot_us: float, width: FloatArray
) -> FloatArray:
    """Mean waiting of a row that a queue in slots does not show, in microseconds; any shape.

    `load` is rho of the server, 0 to beyond 1; `work_rate_us` is the variance that work arrives with per
    time, lambda E[S^2] in microseconds, S being the work of a row; `width` is how many rows are worked at
    once.
    """
    sigma_us = np.sqrt(work_rate_us * slot_us) / width
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.where(sigma_us > 0, (1 - load) * slot_us / sigma_us, np.inf)
        hidden = np.where(
            x > _X_MAX,
            work_rate_us / (2 * width**2 * (1 - load)),
            sigma_us * _difference(np.clip(x, 0, _X_MAX)),
        )
        if (width > 1).any():
            # Of several servers one is often free: Erlang's probability of waiting in place of one server's.
            share = np.array([_erlang_c(int(k), k * rho) for k, rho in zip(*_flat(width, load), strict=True)])
            hidden = hidden * np.where(load > 0, share.reshape(hidden.shape) / np.minimum(load, 1), 0.0)
    return np.where(sigma_us > 0, hidden, 0.0)


def _flat(width: FloatArray, load: FloatArray) -> tuple[list[float], list[float]]:
    return np.broadcast_to(width, load.shape).ravel().tolist(), load.ravel().tolist()


def _erlang_c(servers: int, offered: float) -> float:
    """The probability that a row has to wait in M/M/k with `offered` = lambda / mu; 1 from saturation on."""
    if offered >= servers:
        return 1.0
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = offered * blocked / (k + offered * blocked)
    return servers * blocked / (servers - offered * (1 - blocked))


def _difference(x: FloatArray) -> FloatArray:
    """d(x) for 0 <= x <= 8."""
    points, values = _table()
    return np.interp(x, points, values)


@cache
def _table() -> tuple[FloatArray, FloatArray]:
    points = np.linspace(0, _X_MAX, _POINTS)
    return points, np.array([difference_at(float(x)) for x in points])


def difference_at(x: float) -> float:
    """E[sup of Brownian motion with drift -x] - E[max of it at whole times], x >= 0."""
    root = math.sqrt(2 * math.pi)
    if x < 1:
        series = sum(
            zeta / (math.factorial(r) * (2 * r + 1) * (2 * r + 2)) * (-(x**2) / 2) ** r
            for r, zeta in enumerate(_ZETAS)
        )
        return -_ZETA_HALF / root - x / 4 - x**2 / root * series
    # Spitzer's identity; from y = 8 on a term is nothing.
    total = 0.0
    for k in range(1, int((8 / x) ** 2) + 2):
        y = x * math.sqrt(k)
        tail = math.exp(-(y**2) / 2) / root - y * math.erfc(y / math.sqrt(2)) / 2
        total += tail / math.sqrt(k)
    return 1 / (2 * x) - total
