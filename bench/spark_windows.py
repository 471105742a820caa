"""The peer's windows: records per CPU-second, and how long after its end a window's result was there.

As `spark_side` runs the counting peer. Records are told by Spark itself, batch by batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench import sink_log
from bench.spark_peer import WINDOW_MS, Run, Settings
from bench.spark_side import Played, play
from bench.window_delays import delays_us
from numpy.typing import NDArray

WINDOW_US = WINDOW_MS * 1000


@dataclass(frozen=True, slots=True)
class SparkWindows:
    """One measured run. `delays_us` is of each row of a window that ended in the time that was measured."""

    records_per_cpu_s: float
    processed_per_s: float
    cores_used: float
    batches: int
    delays_us: NDArray[np.int64]


def measure(
    query: str,
    settings: Settings,
    rate_per_s: float,
    warmup_s: float,
    seconds: float,
    folder: Path,
    tell: Callable[[str], None],
    *,
    saturated: bool = False,
) -> SparkWindows:
    """Run `query` of the peer at `rate_per_s` and measure `seconds` after the warm-up.

    `saturated` says that the rate is beyond reach: results are late as records are. `folder` must be empty.
    Raises PeerFailedError.
    """
    run = Run(str(folder), settings, query)

    def all_came(played: Played) -> bool:
        rows = sink_log.read(run.log)
        last_us = played.last_s * 1e6 // WINDOW_US * WINDOW_US
        return saturated or bool((rows.keys >= last_us).any())

    played = play(run, rate_per_s, warmup_s, seconds, tell, all_came)
    rows = sink_log.read(run.log)
    seen = zip(rows.at_us.tolist(), rows.keys.tolist(), strict=True)
    batches = json.loads(run.batches.read_text()) if run.batches.exists() else []
    inside = [each for each in batches if each[0] >= played.first_s and each[0] + each[1] <= played.last_s]
    counted, from_s, to_s = whole_batches(inside)
    cpu_s = played.cpu.seconds(from_s, to_s) if counted else 0.0
    return SparkWindows(
        records_per_cpu_s=counted / cpu_s if cpu_s else 0.0,
        processed_per_s=counted / (to_s - from_s) if counted else 0.0,
        cores_used=cpu_s / (to_s - from_s) if counted else 0.0,
        batches=len(inside),
        delays_us=delays_us(seen, played.first_s * 1e6, played.last_s * 1e6),
    )


def whole_batches(batches: list[tuple[float, float, int]]) -> tuple[int, float, float]:
    """Records of all batches (beginning in s, length in s, records), the first beginning, the last end."""
    if not batches:
        return 0, 0.0, 0.0
    return sum(each[2] for each in batches), batches[0][0], batches[-1][0] + batches[-1][1]
