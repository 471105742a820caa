"""What totals in a topic tell of one system among its peers, and how the result names it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench import sink_log
from bench.load import RatePlan

LATE_SHARE_MAX = 0.005
"""With a larger share of a time's records missing at its end, p99 is not told: the rate was not held."""


@dataclass(frozen=True, slots=True)
class Held:
    """Records that were due in some time at a rate. `p50_ms` and `p99_ms` are None where too many did not
    come; `per_cpu_s` are records a CPU-second of the system."""

    rate_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    per_s: float
    cores: float
    broker_cores: float

    @property
    def per_cpu_s(self) -> float:
        return self.per_s / self.cores if self.cores else 0.0

    def within(self, p99_ms: float) -> bool:
        """Whether it holds a bound."""
        return self.p99_ms is not None and self.p99_ms <= p99_ms


@dataclass(frozen=True, slots=True)
class Full:
    """Records were worked as fast as it goes. `by_feed` where the feed was what it waited for."""

    per_s: float
    cores: float
    broker_cores: float
    by_feed: bool

    @property
    def per_cpu_s(self) -> float:
        return self.per_s / self.cores if self.cores else 0.0


@dataclass(frozen=True, slots=True)
class Killed:
    """`duplicates`: rows that came behind a kill and told no more than was told before. `lost`: records that
    no total counts, though they were waited for. `back_s`: from the kill to the first row that
    told something new."""

    duplicates: int
    lost: int
    back_s: float | None
    records: int
    """That were out before the kill."""


def quantiles(
    arrived: sink_log.Arrivals, plan: RatePlan, first_s: float, last_s: float
) -> tuple[float | None, float | None]:
    """p50 and p99 in ms of the records that were due between two wall clock times; None where some of them,
    more than `LATE_SHARE_MAX`, did not come."""
    due_us = plan.due_us(arrived.number)
    ages_ms = (arrived.at_us - due_us)[(due_us >= first_s * 1e6) & (due_us < last_s * 1e6)] / 1000
    due = plan.due_before(int(last_s * 1e6)) - plan.due_before(int(first_s * 1e6))
    if not due or len(ages_ms) < due * (1 - LATE_SHARE_MAX):
        return None, None
    p50_ms, p99_ms = np.quantile(ages_ms, (0.5, 0.99))
    return round(float(p50_ms), 1), round(float(p99_ms), 1)


def told_again(rows: sink_log.Rows, killed_us: int) -> tuple[int, int | None]:
    """Of rows that came behind a kill: how many tell no more than those before, and when the first came that
    does, in microseconds since 1970."""
    before = rows.at_us < killed_us
    size = int(rows.keys.max(initial=-1)) + 1
    known = np.zeros(size, dtype=np.int64)
    np.maximum.at(known, rows.keys[before], rows.totals[before])
    order = np.argsort(rows.at_us[~before], kind="stable")
    keys, totals, at_us = (column[~before][order] for column in (rows.keys, rows.totals, rows.at_us))
    again, new_us = 0, None
    for key, total, at in zip(keys.tolist(), totals.tolist(), at_us.tolist(), strict=True):
        if total <= known[key]:
            again += 1
            continue
        known[key] = total
        new_us = at if new_us is None else new_us
    return again, new_us


def named(
    promise: str,
    paced: Mapping[float, tuple[Held, Held | None]],
    steps: Mapping[float, Held],
    full: Full | None,
    killed: Killed | None,
    bounds_ms: Mapping[str, float],
) -> dict[str, Any]:
    """A system's part of the result. `paced`: quiet, and busy; `steps` by rate, those of `paced` among
    them."""
    found: dict[str, Any] = {"promise": promise}
    for rate, (quiet, busy) in paced.items():
        found[f"{rate:.0f}"] = {
            "p50_ms": quiet.p50_ms,
            "p99_ms": quiet.p99_ms,
            "cores": round(quiet.cores, 3),
            "broker_cores": round(quiet.broker_cores, 3),
            "busy_p50_ms": busy and busy.p50_ms,
            "busy_p99_ms": busy and busy.p99_ms,
            "busy_cores": busy and round(busy.cores, 3),
        }
    for name, bound_ms in bounds_ms.items():
        best = max((step for step in steps.values() if step.within(bound_ms)), key=rate_of, default=None)
        found[f"{name}_per_s"] = best and best.rate_per_s
        found[f"{name}_per_cpu_s"] = best and round(best.per_cpu_s, 1)
    found["unbounded_per_s"] = full and round(full.per_s, 1)
    found["unbounded_per_cpu_s"] = full and round(full.per_cpu_s, 1)
    found["unbounded_by_feed"] = full and full.by_feed
    found["duplicates_after_kill"] = killed and killed.duplicates
    found["lost_after_kill"] = killed and killed.lost
    found["back_after_kill_s"] = killed and killed.back_s
    found["records_before_kill"] = killed and killed.records
    found["steps"] = [
        {"per_s": step.rate_per_s, "p99_ms": step.p99_ms, "cores": round(step.cores, 3)}
        for step in sorted(steps.values(), key=rate_of)
    ]
    return found


def rate_of(held: Held) -> float:
    return held.rate_per_s
