"""A decision is a value: what was seen, what is predicted with and without it, which rule chose it.

Doing nothing is one too. `outcome` of the same module is added later: what it brought (promise 8).
Neighbours: policies make decisions, `penstock.sla.treatment` turns actions into the next schedule, the
simulator into moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Health(StrEnum):
    """StreamSwitch, section 3.2. Ordered from best to worst."""

    GOOD = "good"
    MODERATE = "moderate"
    SEVERE = "severe"
    UNKNOWN = "unknown"
    """A metric is missing: hold (promise 7)."""


class Treatment(StrEnum):
    """What kind of change a decision is. The first four are StreamSwitch's (section 3.1)."""

    NONE = "none"
    SCALE_IN = "scale-in"
    LOAD_BALANCE = "load-balance"
    SCALE_OUT = "scale-out"
    CORES = "cores"
    """Elasticutor: tasks given to or taken from executors that stay."""
    REPARTITION = "repartition"
    """Many shards at once between executors: executors split and merged, or a resource-centric key space."""
    HOLD = "hold"
    """Something should be done, and a rule forbids it now: missing metrics, a cool-down, a bound, a block."""


@dataclass(frozen=True, slots=True)
class MoveShards:
    """The paper's unit strategy x = (K, s, d): `shards` go from executor `source` to `destination`."""

    shards: tuple[str, ...]
    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class AddExecutor:
    """A new executor with `tasks` tasks; on `node` where that matters, else wherever there is room."""

    name: str
    tasks: int = 1
    node: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveExecutor:
    """`name` has no shard any more once the moves of the same decision are done."""

    name: str


@dataclass(frozen=True, slots=True)
class AssignCores:
    """Executor `name` runs as many tasks as `cores` (node -> cores) has, on those nodes."""

    name: str
    cores: Mapping[str, int]


Action = MoveShards | AddExecutor | RemoveExecutor | AssignCores
"""In a decision they are in the order in which they take effect."""


@dataclass(frozen=True, slots=True)
class ExecutorView:
    """One executor as examined. Rates in rows per second, latencies in microseconds; None is not known.

    `service_per_s` is what all of its `tasks` serve together; `instantaneous_us` is l_i, `expected_us` L_i
    (math.inf when it would never catch up).
    """

    name: str
    arrival_per_s: float | None
    service_per_s: float | None
    instantaneous_us: float | None
    expected_us: float | None
    health: Health
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class Prediction:
    """`latency_us` is the worst expected one over executors; math.inf: it never catches up."""

    latency_us: float
    tasks: int


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """`operator` is empty for one about a whole topology. `rule` names what chose it, in a word or two that
    stay the same over versions; `reason` is one sentence for people with the figures in it."""

    at_us: int
    policy: str
    operator: str
    treatment: Treatment
    rule: str
    reason: str
    health: Health
    actions: tuple[Action, ...] = ()
    seen: tuple[ExecutorView, ...] = ()
    without: Prediction | None = None
    """What is expected if nothing is done."""
    expected: Prediction | None = None
    """What is expected of it."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Conditions that hold now, as MetricsUnavailable or Infeasible, each with its sentence."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a decision brought, measured a window after it was carried out. `share` is the measured gain over
    the promised one; None where nothing was promised."""

    decision: PolicyDecision
    latency_us: float | None
    tasks: int
    share: float | None
