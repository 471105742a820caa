"""What Elasticutor's scheduler decides on: rates of all executors at one moment. Neighbours: `policy`
measures it, `plant` has the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.control.elasticutor.jackson import Floats, Integers
from penstock.control.elasticutor.pinned_shards import ShardLoad
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, TopologySnapshot


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured: one entry an executor, operator after operator. Rates per second; NaN: not known.
    `service_per_s` is (1 - epsilon) mu of one core; `demand_per_s` arrivals, and what waits for too long as
    if it arrived. `operator` is an index into `operators`."""

    snapshot: TopologySnapshot
    operators: tuple[OperatorSnapshot, ...]
    filling: tuple[bool, ...]
    executors: tuple[ExecutorSeen, ...]
    operator: Integers
    arrival_per_s: Floats
    service_per_s: Floats
    demand_per_s: Floats
    latency_us: Floats
    bytes_per_s: Floats
    state_bytes: Floats
    shards: Integers
    shard_loads: tuple[ShardLoad | None, ...] = ()
    """What the shards of each executor ask for, None where not known; empty for the paper's model, which
    knows executors alone."""


def cores_of(executor: ExecutorSeen) -> Mapping[str, int]:
    """x_j: a schedule without nodes' cores has all of an executor's tasks at home."""
    return executor.cores or ({executor.node: executor.tasks} if executor.tasks else {})
