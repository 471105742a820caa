"""Whether an SLA was kept: the average latency of each shard over (t - T, t], looked at every delta.

StreamSwitch, section 6: the success rate of a substream is the share of time windows in which its average
latency stayed at or below L, and that of an operator is the average over its substreams. A window in which
nothing of a shard was completed says nothing and is not judged, unless rows have waited there for longer than
L without one of them being completed: that window has failed, whatever comes later.

Pure. Neighbours: rows come from the tasks (`penstock.metrics.rows`), the live loop shows and sums up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.control.target import LatencyTarget
from penstock.metrics.rows import ShardRow

RECENT_US = 300_000_000
"""Success is shown over five minutes, and since the start."""
_BUCKET_US = 1_000_000

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Judged:
    """One look. Latencies in microseconds over the window that ends now, None without completions.

    `mean_us` weighs shards by their rows, `worst_us` is the shard with the highest average (`worst_shard`);
    `kept` of `judged` shards kept the bound. `completed_per_s` is the rows completed in the window over T.
    """

    at_us: int
    mean_us: float | None
    worst_us: float | None
    worst_shard: str
    kept: int
    judged: int
    completed_per_s: float
    busy_cores: float


class WindowJudge:
    """One operator. `shards` are all that it has."""

    def __init__(self, target: LatencyTarget, shards: Sequence[str]) -> None:
        self._target = target
        self._shards = tuple(shards)
        size = len(self._shards)
        self._before: list[ShardRow | None] = [None] * size
        self._window: deque[tuple[int, npt.NDArray[np.float64]]] = deque()
        self._sums: npt.NDArray[np.float64] = np.zeros((3, size))
        self._waiting_since: npt.NDArray[np.float64] = np.full(size, np.inf)
        self._kept: Counts = np.zeros(size, dtype=np.int64)
        self._judged: Counts = np.zeros(size, dtype=np.int64)
        self._recent: deque[tuple[int, Counts, Counts]] = deque()
        self._began_us: int | None = None

    def take(
        self, at_us: int, rows: Mapping[str, ShardRow], waiting: Mapping[str, int | None]
    ) -> Judged | None:
        """Judge the window that ends at `at_us`; None at the first look, which nothing can be compared with.

        `waiting` is shard -> rows that have arrived and are not completed, None where that is not known.
        """
        step = self._step(rows)
        if self._began_us is None:
            self._began_us = at_us
            return None
        self._window.append((at_us, step))
        self._sums += step
        while self._window and self._window[0][0] <= at_us - self._target.window_us:
            self._sums -= self._window.popleft()[1]
        if not self._window or not any(rows.any() for _, rows in self._window):
            self._sums[:] = 0.0  # what rounding left behind
        return self._judge(at_us, step, waiting)

    def retarget(self, target: LatencyTarget) -> None:
        """Another bound from now on, over the same window; what was judged stays as it was."""
        self._target = target

    def success(self) -> float | None:
        """Since the start: the mean over shards of the share of their windows that kept the bound."""
        return _share(self._kept, self._judged)

    def success_recent(self) -> float | None:
        """The same over the last five minutes."""
        if not self._recent:
            return None
        kept = np.sum([kept for _, kept, _ in self._recent], axis=0)
        judged = np.sum([judged for _, _, judged in self._recent], axis=0)
        return _share(kept, judged)

    def success_of_shards(self) -> dict[str, float | None]:
        """Since the start, shard by shard; None where no window was judged."""
        return {
            shard: float(kept / judged) if judged else None
            for shard, kept, judged in zip(
                self._shards, self._kept.tolist(), self._judged.tolist(), strict=True
            )
        }

    def latencies_us(self) -> dict[str, float | None]:
        """Average latency over the last window by shard; None without completions."""
        rows, latency, _ = self._sums
        return {
            shard: float(latency[i] / rows[i]) if rows[i] > 0.5 else None
            for i, shard in enumerate(self._shards)
        }

    def _step(self, rows: Mapping[str, ShardRow]) -> npt.NDArray[np.float64]:
        """(rows, latency, busy) of each shard since the last look. A row under a new epoch began at zero
        after that look, so all of it is news; what the old owner had not told is lost, and counts neither
        way."""
        step = np.zeros((3, len(self._shards)))
        for i, shard in enumerate(self._shards):
            row, before = rows.get(shard), self._before[i]
            if row is None:
                continue
            self._before[i] = row
            if before is not None and (row.epoch, row.generation) == (before.epoch, before.generation):
                if row.rows == before.rows:
                    continue
                step[:, i] = (
                    row.rows - before.rows,
                    row.waited_us + row.served_us - before.waited_us - before.served_us,
                    row.busy_us - before.busy_us,
                )
            elif self._began_us is not None:
                step[:, i] = (row.rows, row.waited_us + row.served_us, row.busy_us)
        return step

    def _judge(self, at_us: int, step: npt.NDArray[np.float64], waiting: Mapping[str, int | None]) -> Judged:
        rows, latency_sum, busy = self._sums
        has_rows = rows > 0.5
        latency = np.divide(latency_sum, rows, out=np.zeros_like(rows), where=has_rows)
        is_waiting = np.array([bool(waiting.get(shard)) for shard in self._shards], dtype=bool)
        progressed = (step[0] > 0) | ~is_waiting
        self._waiting_since[progressed] = np.inf
        begins = is_waiting & np.isinf(self._waiting_since)
        self._waiting_since[begins] = at_us
        stalled = ~has_rows & (at_us - self._waiting_since > self._target.latency_us)
        judged = has_rows | stalled
        kept = has_rows & (latency <= self._target.latency_us)
        self._count(at_us, kept, judged)
        worst = int(np.argmax(np.where(has_rows, latency, -1.0)))
        total = float(rows.sum())
        return Judged(
            at_us=at_us,
            mean_us=float(latency_sum.sum() / total) if total > 0.5 else None,
            worst_us=float(latency[worst]) if has_rows[worst] else None,
            worst_shard=self._shards[worst] if has_rows[worst] else "",
            kept=int(kept.sum()),
            judged=int(judged.sum()),
            completed_per_s=total / (self._target.window_us / 1e6),
            busy_cores=float(busy.sum()) / self._target.window_us,
        )

    def _count(self, at_us: int, kept: npt.NDArray[np.bool_], judged: npt.NDArray[np.bool_]) -> None:
        self._kept += kept
        self._judged += judged
        bucket = at_us // _BUCKET_US
        if self._recent and self._recent[-1][0] == bucket:
            _, kept_there, judged_there = self._recent[-1]
            kept_there += kept
            judged_there += judged
        else:
            self._recent.append((bucket, kept.astype(np.int64), judged.astype(np.int64)))
        while self._recent[0][0] < (at_us - RECENT_US) // _BUCKET_US:
            self._recent.popleft()


def _share(kept: Counts, judged: Counts) -> float | None:
    """The mean over shards that were judged; None when none was."""
    there = judged > 0
    return float(np.mean(kept[there] / judged[there])) if there.any() else None
