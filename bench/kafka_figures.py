"""What the totals in a topic tell: the age of every record, what is missing, what is there twice. Pure."""

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
    """Of the records that were due in some time; `arrived` are those that came in it. None where there are
    none."""

    p50_ms: float | None
    p99_ms: float | None
    due: int
    arrived: int


def ages(rows: sink_log.Rows, keys: np.ndarray, plan: RatePlan, first_s: float, last_s: float) -> Ages:
    """Between two wall clock times. Raises WrongTotalsError where totals are there twice."""
    found = sink_log.arrivals(rows, keys)
    due_us = plan.due_us(found.number)
    inside = (due_us >= first_s * 1e6) & (due_us < last_s * 1e6)
    came = (found.at_us >= first_s * 1e6) & (found.at_us < last_s * 1e6)
    ages_ms = (found.at_us - due_us)[inside] / 1000
    due = plan.due_before(int(last_s * 1e6)) - plan.due_before(int(first_s * 1e6))
    if not len(ages_ms):
        return Ages(None, None, due, int(came.sum()))
    p50_ms, p99_ms = np.quantile(ages_ms, (0.5, 0.99))
    return Ages(round(float(p50_ms), 1), round(float(p99_ms), 1), due, int(came.sum()))


def once(rows: sink_log.Rows) -> sink_log.Rows:
    """Of rows that are there again, the one that came first."""
    order = np.lexsort((rows.at_us, rows.totals, rows.keys))
    keys, totals = rows.keys[order], rows.totals[order]
    first = np.ones(len(keys), dtype=bool)
    first[1:] = (keys[1:] != keys[:-1]) | (totals[1:] != totals[:-1])
    left = order[first]
    return sink_log.Rows(rows.keys[left], rows.totals[left], rows.at_us[left])


Batch = tuple[float, float, int]
"""When it began in s since 1970, how long it took in s, records."""


def full_batches(batches: Sequence[Batch], max_records: int, warmup_s: float, seconds: float) -> list[Batch]:
    """Those with all that a batch may have, for `seconds`, from the first that begins `warmup_s` behind the
    very first one."""
    found: list[Batch] = []
    for began_s, took_s, records in batches:
        if began_s - batches[0][0] < warmup_s or records < max_records:
            continue
        if found and began_s - found[0][0] >= seconds:
            break
        found.append((began_s, took_s, records))
    return found
