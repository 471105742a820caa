"""What the suites of StreamSwitch's diagnosis ask: an examination, what is found, what moves."""

from __future__ import annotations

import numpy as np

from penstock.control.streamswitch.diagnose import (
    Diagnosis,
    Room,
    capacity_per_s,
    diagnose,
)
from penstock.control.streamswitch.examination import Examination, Floats
from penstock.control.target import LatencyTarget

TARGET = LatencyTarget(latency_us=1_000_000)


LATE_US = 140_000.0


FINE_US = 5_000.0


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def capacity(seen: Examination) -> Floats:
    return capacity_per_s(seen.service_per_s, TARGET.safety_margin)


def room(seen: Examination, more: int = 8, may_go: bool = True) -> Room:
    return Room(may_go=np.full(len(seen.executors), may_go), more=more)


def found(seen: Examination, more: int = 8, may_go: bool = True) -> Diagnosis:
    return diagnose(seen, TARGET, room(seen, more, may_go))


def moved(seen: Examination, diagnosis: Diagnosis) -> list[str]:
    assert diagnosis.strategy is not None
    return [seen.shards[i] for i in diagnosis.strategy.moved]
