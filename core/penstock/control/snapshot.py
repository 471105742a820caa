"""What a policy is shown: a topology at one moment, counted from outside.

Everything is cumulative since a shard was born, as the stores and the tasks' rows count it; policies take
differences. What is not known is None, never zero (promise 7). The live loop makes snapshots from the stores,
the simulator from virtual time: a policy cannot tell which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec


class ShardSample(msgspec.Struct, frozen=True, gc=False):
    """One shard (the paper's substream k). `arrived`, `completed` are rows: a^k[m], c^k[m] (section 4.1).

    `waited_us` is the sum over completed rows of (start of work - arrival), `served_us` the same of (end of
    work - start of work); (waited + served) / completed is the mean latency without the paper's error of a
    slot. `busy_us` is useful time (rho): work only, so that rows / busy time is the service rate. These three
    are None where only counts are known. `writer` tells samples that may be subtracted from each other: a
    difference across two writers (epochs, generations) is missing.
    """

    arrived: int
    completed: int
    waited_us: float | None = None
    served_us: float | None = None
    busy_us: float | None = None
    writer: object = None
    state_bytes: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None


@dataclass(frozen=True, slots=True)
class ExecutorSeen:
    """One executor. `tasks` is what it is given, `tasks_ready` what runs now. `cores` is node -> cores given
    to it (Elasticutor's x_ij; remote ones are those of other nodes than `node`, the paper's I(j))."""

    name: str
    tasks: int
    tasks_ready: int
    node: str = ""
    cores: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """One operator: its executors, which shard is on which, and what its shards have counted.

    A shard without sample was not read. `treatment`: a move or scale command of it is still under way, so
    nothing is decided (section 4.3).
    """

    operator: str
    executors: tuple[ExecutorSeen, ...]
    assignment: Mapping[str, str]
    samples: Mapping[str, ShardSample | None]
    treatment: bool = False

    @property
    def tasks(self) -> int:
        """What the operator costs."""
        return sum(executor.tasks for executor in self.executors)


@dataclass(frozen=True, slots=True)
class TopologySnapshot:
    """All operators in scope at `at_us`. `nodes` is node -> cores it has for tasks (c_i); `cores_max` is what
    others leave to the operators together, of a budget that they share."""

    at_us: int
    operators: Mapping[str, OperatorSnapshot]
    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: tuple[tuple[str, str], ...] = ()
    """(upstream, downstream) among the operators."""
    cores_max: float = math.inf

    @property
    def tasks(self) -> dict[str, int]:
        """Operator -> tasks."""
        return {name: operator.tasks for name, operator in self.operators.items()}
