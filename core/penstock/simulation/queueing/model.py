"""The values of the queueing simulator: what is simulated, what arrives, what came out.

Shard k of operator `o` is named `o/k`. Arrays over shards are in the order of their numbers, arrays over time
in slots. Times are microseconds since the start. Neighbours: `exact` and `slots` work a topology off,
`replay` puts a policy to it, `success` judges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from penstock.control.decision import PolicyDecision
from penstock.metrics.latency import value_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Service(StrEnum):
    """How the work of single rows is spread around its mean."""

    DETERMINISTIC = "deterministic"
    EXPONENTIAL = "exponential"
    NORMAL = "normal"
    """Cut off at zero. Elasticutor, section 5.1: variance half the mean (in ms); the deviation is a
    parameter."""


class Pauses(StrEnum):
    """Who stands still while shards change hands."""

    SHARDS = "shards"
    """The moved ones alone, one after another: executor-centric (Elasticutor 3.2), and Penstock's own
    moves."""
    EXECUTORS = "executors"
    """Source and destination with all their shards: StreamSwitch on Samza and Flink (section 5)."""
    OPERATOR = "operator"
    """Every executor: resource-centric repartitioning (Elasticutor 2.2, its global synchronisation)."""


class Sharing(StrEnum):
    """What several tasks of one executor may work on at once."""

    BY_SHARD = "by-shard"
    """A shard belongs to one task at a time; which one is balanced anew twice a second, as workers do."""
    BY_ROW = "by-row"
    """Any task takes the next row: the M/M/k of the closed forms. No keyed operator works like this."""


@dataclass(frozen=True, slots=True)
class Switching:
    """What a change of hands costs.

    One `MoveShards` pauses for fixed_us + us_per_upstream * (executors of the upstream operators) +
    us_per_shard * shards + us_per_byte * (state bytes that go over the network). Under `Pauses.SHARDS` the
    fixed part is paid before (nothing stands still yet) and each shard pauses for its own part only.
    `copies_within_node`: state is copied even between executors of one node (a checkpoint); else that is
    free. `drains`: the switch waits until source and destination have worked off what they had queued (a
    barrier goes through the queue: StreamSwitch 5.2, 6.5). `task_us_per_shard` is the pause of one shard that
    goes to another task of its executor (Elasticutor: about 2 ms), plus us_per_byte where that is on another
    node.
    """

    fixed_us: float = 0.0
    us_per_upstream: float = 0.0
    us_per_shard: float = 0.0
    us_per_byte: float = 0.0
    pauses: Pauses = Pauses.SHARDS
    copies_within_node: bool = True
    drains: bool = False
    task_us_per_shard: float = 0.0


@dataclass(frozen=True, slots=True)
class SpeedMix:
    """A new executor's speed is `alpha` with probability `beta`, else 1 (StreamSwitch, section 6.4)."""

    alpha: float = 1.0
    beta: float = 0.0


@dataclass(frozen=True, slots=True)
class InitialExecutor:
    """`tasks` on `node` at the start; `speed` None draws it from the operator's mix. `cores` (node -> cores,
    with `tasks` in all) where some are on other nodes."""

    name: str
    tasks: int = 1
    node: str = ""
    speed: float | None = None
    cores: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimulatedOperator:
    """One operator. `service_us` is the mean work of a row on a core of speed 1, one value or one a shard
    (of NORMAL: before it is cut off at zero).

    `assignment` is shard -> position in `executors`; empty spreads them in even blocks. `state_bytes` is a
    shard's. `bytes_in`, `bytes_out` are those of a row, which count when a remote core works it.
    `start_delay_us`: from asking for an executor until it works, `task_start_delay_us` the same for more
    tasks of one that is there. `queue_rows_max`:
    rows that an executor may hold before its sources wait (back-pressure); None is without bound. ValueError
    for what contradicts itself.
    """

    name: str
    shards: int
    service_us: float | tuple[float, ...]
    executors: tuple[InitialExecutor, ...]
    assignment: tuple[int, ...] = ()
    service: Service = Service.DETERMINISTIC
    service_sd_us: float | None = None
    """For NORMAL; None is sqrt(mean in ms / 2) in ms, as Elasticutor has it."""
    sharing: Sharing = Sharing.BY_SHARD
    start_delay_us: int = 0
    task_start_delay_us: int = 0
    speeds: SpeedMix = SpeedMix()
    switching: Switching = Switching()
    state_bytes: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    queue_rows_max: float | None = None

    def __post_init__(self) -> None:
        if self.shards < 1 or not self.executors:
            raise ValueError(f"operator {self.name} needs a shard and an executor")
        if not isinstance(self.service_us, float | int) and len(self.service_us) != self.shards:
            raise ValueError(
                f"operator {self.name}: {len(self.service_us)} service times, {self.shards} shards"
            )
        if np.min(self.service_us) <= 0:
            raise ValueError(f"operator {self.name}: a row must take some time")
        if self.assignment and len(self.assignment) != self.shards:
            raise ValueError(f"operator {self.name}: {len(self.assignment)} assigned, {self.shards} shards")
        if self.assignment and not 0 <= min(self.assignment) <= max(self.assignment) < len(self.executors):
            raise ValueError(f"operator {self.name}: assigned to an executor that is not there")
        for executor in self.executors:
            if executor.tasks < 1 or (executor.cores and sum(executor.cores.values()) != executor.tasks):
                raise ValueError(f"executor {executor.name}: {executor.tasks} tasks, cores {executor.cores}")

    @property
    def shard_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}/{k}" for k in range(self.shards))

    @property
    def service_sds_us(self) -> FloatArray:
        """[shards], the deviation of a row's work before it is cut off."""
        centres_us = np.broadcast_to(np.asarray(self.service_us, dtype=np.float64), (self.shards,))
        if self.service is Service.DETERMINISTIC:
            return np.zeros_like(centres_us)
        if self.service is Service.EXPONENTIAL:
            return centres_us.copy()
        if self.service_sd_us is not None:
            return np.full_like(centres_us, self.service_sd_us)
        return np.sqrt(centres_us * 1_000 / 2)

    @property
    def service_means_us(self) -> FloatArray:
        """[shards], of one row's work."""
        return self._moments()[0]

    @property
    def service_variances_us2(self) -> FloatArray:
        """[shards], of one row's work."""
        return self._moments()[1]

    def _moments(self) -> tuple[FloatArray, FloatArray]:
        centres_us = np.broadcast_to(np.asarray(self.service_us, dtype=np.float64), (self.shards,)).copy()
        sds_us = self.service_sds_us
        if self.service is not Service.NORMAL or not sds_us.any():
            return centres_us, sds_us**2
        # Cutting off at zero moves both.
        above = centres_us / sds_us
        density = np.exp(-(above**2) / 2) / math.sqrt(2 * math.pi)
        below = np.array([math.erfc(-a / math.sqrt(2)) / 2 for a in above.tolist()])
        means_us = centres_us * below + sds_us * density
        squares = (centres_us**2 + sds_us**2) * below + centres_us * sds_us * density
        return means_us, squares - means_us**2

    @property
    def initial_assignment(self) -> IntArray:
        """[shards] -> position in `executors`."""
        if self.assignment:
            return np.asarray(self.assignment, dtype=np.int64)
        return np.arange(self.shards, dtype=np.int64) * len(self.executors) // self.shards


@dataclass(frozen=True, slots=True)
class Edge:
    """Each row that `upstream` completes becomes `selectivity` rows of `downstream` on average.

    `routing` is [upstream shards, downstream shards], rows summing to 1; None keeps the shard's number where
    both have as many, and else spreads evenly.
    """

    upstream: str
    downstream: str
    selectivity: float = 1.0
    routing: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class SimulatedTopology:
    """`operators` in an order where each comes after those upstream of it. `nodes` is node -> cores. A node
    sends to remote cores at most `bandwidth_bytes_per_s`, state and rows together; None is without bound.
    ValueError for edges that go back or nowhere."""

    operators: tuple[SimulatedOperator, ...]
    edges: tuple[Edge, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)
    bandwidth_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        order = {operator.name: i for i, operator in enumerate(self.operators)}
        if len(order) != len(self.operators):
            raise ValueError("two operators have one name")
        for edge in self.edges:
            if order.get(edge.upstream, len(order)) >= order.get(edge.downstream, -1):
                raise ValueError(f"edge {edge.upstream} -> {edge.downstream} does not go downstream")
            if edge.routing is not None and edge.routing.shape != (
                self.operator(edge.upstream).shards,
                self.operator(edge.downstream).shards,
            ):
                raise ValueError(f"edge {edge.upstream} -> {edge.downstream}: routing {edge.routing.shape}")
        names = [executor.name for operator in self.operators for executor in operator.executors]
        if len(set(names)) != len(names):
            raise ValueError("two executors have one name")

    def operator(self, name: str) -> SimulatedOperator:
        return next(operator for operator in self.operators if operator.name == name)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows that come from outside: `rows` is operator -> [slots, shards], whole numbers. `exact` spreads
    those of a slot at random over it, `slots` evenly. Under back-pressure they are what is offered, and what
    is not taken is not made up for: the source is slower."""

    slot_us: int
    rows: Mapping[str, IntArray]

    def __post_init__(self) -> None:
        if self.slot_us <= 0 or len({len(rows) for rows in self.rows.values()}) != 1:
            raise ValueError("arrivals need slots of some length, as many for every operator")

    @property
    def slots(self) -> int:
        return len(next(iter(self.rows.values())))


@dataclass(frozen=True, slots=True)
class Switch:
    """One carried out treatment: from the decision to the end of its last move. `switching_us` is the time
    that executors stood still or shards were under way, the longest move's; `bytes` is state over the
    network."""

    asked_us: float
    done_us: float
    switching_us: float
    shards: int
    bytes: float


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """What came out for one operator. Series are by slot; latency is from arrival to completion.

    `success` is [shards], the share of windows (t - T, t], one at every slot t >= T, in which the shard's SLA
    held: see `success.met`. `completed` and `latency_sum_us` are [slots, shards] by slot of completion, and
    None unless the run was asked to keep them. `latency_counts` are rows by bucket of `metrics.latency`.
    `tasks` counts from the moment they are asked for; `mixed_tasks` are those among them whose executor's
    speed is not 1.
    """

    operator: str
    success: FloatArray
    arrived: FloatArray
    completed: FloatArray
    tasks: FloatArray
    executors: FloatArray
    mixed_tasks: FloatArray
    latency_mean_us: FloatArray
    """Of rows completed in the slot; nan without any."""
    latency_max_us: FloatArray
    """The mean latency of the slot's worst shard; nan without any."""
    switches: tuple[Switch, ...]
    remote_bytes: float
    latency_counts: FloatArray
    shard_completed: FloatArray | None = None
    shard_latency_sum_us: FloatArray | None = None

    @property
    def mean_tasks(self) -> float:
        """What it cost: the paper's mean number of executors."""
        return float(self.tasks.mean())

    @property
    def success_rate(self) -> float:
        """The paper's figure: the mean over substreams."""
        return float(self.success.mean())

    @property
    def mean_latency_us(self) -> float:
        """Over all completed rows; nan without any."""
        some = self.completed > 0
        if not some.any():
            return float("nan")
        return float(np.average(self.latency_mean_us[some], weights=self.completed[some]))

    @property
    def switching_us(self) -> float:
        return sum(switch.switching_us for switch in self.switches)

    @property
    def migrated_bytes(self) -> float:
        return sum(switch.bytes for switch in self.switches)

    def latency_quantile_us(self, q: float) -> float:
        """The latency that a share `q` of the rows stays at or below; nan without rows."""
        total = self.latency_counts.sum()
        if total <= 0:
            return float("nan")
        return value_of(int(np.searchsorted(np.cumsum(self.latency_counts), q * total)))


@dataclass(frozen=True, slots=True)
class Run:
    """`decisions` are those with actions, and holds when the rule for them changed, of looks shown one by
    one."""

    slot_us: int
    operators: Mapping[str, OperatorRun]
    decisions: tuple[PolicyDecision, ...]
    path_success: float | None = None
    """End to end: the share of windows in which the operators' mean latencies add up to at most the bound
    that was given for the path; None if none was."""

    @property
    def mean_tasks(self) -> float:
        return sum(operator.mean_tasks for operator in self.operators.values())

    @property
    def success(self) -> FloatArray:
        """Of all shards of all operators."""
        return np.concatenate([operator.success for operator in self.operators.values()])

    @property
    def success_rate(self) -> float:
        return float(self.success.mean())

    @property
    def duration_us(self) -> int:
        return self.slot_us * len(next(iter(self.operators.values())).tasks)
