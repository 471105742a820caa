"""Elasticutor's stock exchange (SIGMOD 2019, section 5.4, figure 17): a transactor and eleven operators
behind it, 6 for statistics and 5 for events, on orders as StreamSwitch's are drawn (`stock_exchange`), but as
many as saturate the cluster.

Sizes of tuples and states are published; shares of the work and the cost of an order are `bench.scheduler`'s
and assumed. Neighbours: `bench.elasticity_trials` runs policies on it, `shuffled_keys` has the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from bench.scheduler import EVENTS, STATISTICS, TRANSACTOR
from bench.workloads.shuffled_keys import NODE_CORES, OVERLOAD
from bench.workloads.stock_exchange import draw as draw_orders
from bench.workloads.stock_exchange import read_parameters
from numpy.typing import NDArray

ORDER_MS = 1.17
"""Work of one order in all operators together. Assumed from table 3: 256 cores do 218.6 thousand a second."""
SHARDS_PER_NODE = 64
"""Of each operator. Published: 256 an executor; with 1 156 stocks nearly all of them would be empty."""
ANALYTIC_EXECUTORS = 1 / 4
"""Elastic executors a node of each operator behind the transactor, which has one a node: assumed, since 12
operators with an executor on every node would have more executors than cores."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One operator: its share of the work, the bytes of a row in and out, and of its state."""

    name: str
    share: float
    bytes_in: float
    bytes_out: float
    state_bytes: float

    @property
    def row_us(self) -> float:
        """Work of a row. Each order is one transaction here, for every operator behind the transactor."""
        return self.share * ORDER_MS * 1e3


def stages() -> tuple[Stage, ...]:
    """The transactor first."""
    kinds = [("transactor", TRANSACTOR)]
    kinds += [(f"statistics-{n}", STATISTICS) for n in range(6)]
    kinds += [(f"events-{n}", EVENTS) for n in range(5)]
    whole = sum(kind[0] for _, kind in kinds)
    return tuple(Stage(name, kind[0] / whole, kind[2], kind[3], kind[4]) for name, kind in kinds)


def draw(nodes: int, seconds: float, seed: int) -> NDArray[np.int64]:
    """Orders offered to each shard of the transactor in each slot, [slots, shards]; without an opening."""
    p = read_parameters()
    offered = OVERLOAD * nodes * NODE_CORES * 1000 / ORDER_MS * seconds
    session = replace(
        p,
        substreams=nodes * SHARDS_PER_NODE,
        orders=round(offered),
        session_s=round(seconds),
        sessions=1,
        # A height between nothing and nothing: the market's own orders are left out of it.
        opening_per_s=(0.0, 2 * round(offered) / round(seconds)),
    )
    return draw_orders(seed, session).orders
