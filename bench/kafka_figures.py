"""What the totals in a topic tell: how old each record was, what is missing, what is there twice. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from bench import sink_log
from bench.load import RatePlan


@dataclass(frozen=True, slots=True)
class Kept:
    """`lost`: records that no total counts. `duplicated`: rows that are there again, and records that a
    total counts and nobody fed."""

    lost: int
    duplicated: int


def kept(rows: sink_log.Rows, keys: np.ndarray) -> Kept:
    """Of rows that are all there, `keys` being those of the records that were fed."""
    size = int(max(keys.max(initial=-1), rows.keys.max(initial=-1))) + 1
    fed = np.bincount(keys, minlength=size)
    counted = np.zeros(size, dtype=np.int64)
    np.maximum.at(counted, rows.keys, rows.totals)
    pairs = np.stack([rows.keys, rows.totals])
    again = pairs.shape[1] - np.unique(pairs, axis=1).shape[1]
    return Kept(
        lost=int(np.maximum(fed - counted, 0).sum()),
        duplicated=again + int(np.maximum(counted - fed, 0).sum()),
    )


@dataclass(frozen=True, slots=True)
class Ages:
    """Of the records that were due in some time. None where none of them came."""

    p50_ms: float | None
    p99_ms: float | None
    due: int


def ages(arrived: sink_log.Arrivals, plan: RatePlan, first_s: float, last_s: float) -> Ages:
    """Between two wall clock times."""
    due_us = plan.due_us(arrived.number)
    inside = (due_us >= first_s * 1e6) & (due_us < last_s * 1e6)
    ages_ms = (arrived.at_us - due_us)[inside] / 1000
    due = plan.due_before(int(last_s * 1e6)) - plan.due_before(int(first_s * 1e6))
    if not len(ages_ms):
        return Ages(None, None, due)
    p50_ms, p99_ms = np.quantile(ages_ms, (0.5, 0.99))
    return Ages(round(float(p50_ms), 1), round(float(p99_ms), 1), due)


@dataclass(frozen=True, slots=True)
class Came:
    """`records` came behind `first_s`, up to `last_s`: both are times at which some came, so that a batch is
    in with all the time that it took, or not at all."""

    records: int
    first_s: float
    last_s: float

    @property
    def span_s(self) -> float:
        return self.last_s - self.first_s


def came(arrived: sink_log.Arrivals, first_s: float, last_s: float) -> Came | None:
    """What came between two wall clock times; None where that was at one moment, or never."""
    inside = arrived.at_us[(arrived.at_us >= first_s * 1e6) & (arrived.at_us < last_s * 1e6)]
    if not len(inside) or inside.min() == inside.max():
        return None
    begin_us, end_us = int(inside.min()), int(inside.max())
    return Came(int((inside > begin_us).sum()), begin_us / 1e6, end_us / 1e6)


def once(rows: sink_log.Rows) -> sink_log.Rows:
    """Of rows that are there again, the one that came first."""
    order = np.lexsort((rows.at_us, rows.totals, rows.keys))
    keys, totals = rows.keys[order], rows.totals[order]
    first = np.ones(len(keys), dtype=bool)
    first[1:] = (keys[1:] != keys[:-1]) | (totals[1:] != totals[:-1])
    left = order[first]
    return sink_log.Rows(rows.keys[left], rows.totals[left], rows.at_us[left])


FULL_SHARE = 0.99
"""Of what a batch may have: a bound over partitions is rounded for each of them."""
Batch = tuple[float, float, int]
"""When it began in s since 1970, how long it took in s, records."""


def full_batches(batches: Sequence[Batch], max_records: int, warmup_s: float, seconds: float) -> list[Batch]:
    """Those with all that a batch may have, for `seconds`, from the first that begins `warmup_s` behind the
    very first one."""
    found: list[Batch] = []
    for began_s, took_s, records in batches:
        if began_s - batches[0][0] < warmup_s or records < FULL_SHARE * max_records:
            continue
        if found and began_s - found[0][0] >= seconds:
            break
        found.append((began_s, took_s, records))
    return found
