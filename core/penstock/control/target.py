"""What a `LatencySLA` asks, as a value: StreamSwitch's parameters under the paper's names beside them.

Neighbours: `snapshot` is what was seen, `policy` what both are given to, `decision` what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Tasks of one operator over all its executors: no decision leaves these bounds."""

    min: int
    max: int


_NO_LIMITS = TaskLimits(1, 1 << 30)


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """The average latency over any window of `window_us` (T) stays at or below `latency_us` (L).

    `alert_us` is l, the alert threshold of the instantaneous latency; `safety_margin` is epsilon, the share
    of a service rate held in reserve, in [0, 1); `interval_us` is delta, how often is looked. StreamSwitch,
    sections 2.1, 3.3, 4. ValueError for a target that contradicts itself.
    """

    latency_us: float
    window_us: int = 1_000_000
    alert_us: float = 100_000.0
    safety_margin: float = 0.2
    interval_us: int = 100_000

    def __post_init__(self) -> None:
        if self.latency_us <= 0 or self.alert_us < 0:
            raise ValueError(f"latency {self.latency_us} us, alert threshold {self.alert_us} us")
        if not 0 < self.interval_us <= self.window_us:
            raise ValueError(f"window {self.window_us} us holds no interval of {self.interval_us} us")
        if not 0 <= self.safety_margin < 1:
            raise ValueError(f"safety margin {self.safety_margin} is not in [0, 1)")


@dataclass(frozen=True, slots=True)
class Scope:
    """What a policy is to keep: each operator's target (an end-to-end bound is split before), within its
    limits, and all together within `cores_max` if that is set."""

    targets: Mapping[str, LatencyTarget]
    limits: Mapping[str, TaskLimits]
    cores_max: float | None = None
    task_cpu: Mapping[str, float] = field(default_factory=dict)
    """Cores that one task of an operator asks for; 1 where not given."""

    def cores_of(self, operator: str) -> float:
        """Cores that one task of `operator` asks for."""
        return self.task_cpu.get(operator, 1.0)

    def cores_allowed(self, left: float) -> float:
        """Cores that all tasks in scope may ask for where others leave `left`; math.inf without a budget."""
        return left if self.cores_max is None else min(self.cores_max, left)

    def limits_of(self, operator: str) -> TaskLimits:
        """Its limits; without any it has one task at least, and as many as one likes."""
        return self.limits.get(operator, _NO_LIMITS)

    def cores_used(self, tasks: Mapping[str, int]) -> float:
        """Cores that so many tasks ask for (operator -> tasks); operators out of scope do not count."""
        return sum(count * self.cores_of(name) for name, count in tasks.items() if name in self.targets)
