"""What Elasticutor's scheduler decides on: rates of all executors at one moment. Neighbours: `policy`
measures it, `plant` has the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.control.elasticutor.jackson import Floats, Integers
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, TopologySnapshot


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured: one entry an executor, operator after operator. Rates per second; NaN: not known.
    `service_per_s` is (1 - epsilon) mu of one core. `operator` is an index into `operators`."""

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


def cores_of(executor: ExecutorSeen) -> Mapping[str, int]:
    """x_j: a schedule without nodes' cores has all of an executor's tasks at home."""
    return executor.cores or ({executor.node: executor.tasks} if executor.tasks else {})
