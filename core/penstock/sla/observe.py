"""Observe: from a look to the snapshot that a policy decides on.

The counters of shards are read by difference, so each operator has an observer that remembers the last look.
Neighbours: `look` is what comes in, `penstock.control.snapshot` what goes out; `judge` sees the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.control.samples.sampling import ShardSampler
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, ShardSample
from penstock.schedule.record import OperatorSchedule
from penstock.sla.look import Samples, SlaLook

TASK_SILENT_US = 3_000_000
"""A task that works or waits speaks at least once a second; an executor that is silent for so long is not
known."""


class Observer:
    """For one operator."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._sampler = ShardSampler()

    def snapshot(self, look: SlaLook) -> OperatorSnapshot:
        """The operator as it is now; a shard of which nothing is known has no sample."""
        name, told = self._operator, look.samples
        schedule = look.places.schedules[name]
        samples: dict[str, ShardSample | None] = self._sampler.take(told.counters[name], told.rows)
        executors = _executors(schedule, told, look.at_us - TASK_SILENT_US)
        # What a silent executor's shards have told is of no moment that is known.
        silent = {executor.name for executor in executors if executor.tasks and not executor.tasks_ready}
        assignment = {shard: place.executor for shard, place in schedule.shards.items()}
        for shard, executor_name in assignment.items():
            if executor_name in silent:
                samples[shard] = None
        return OperatorSnapshot(name, executors, assignment, samples)


def waiting_rows(operator: str, samples: Samples) -> Mapping[str, int | None]:
    """Shard -> rows that have arrived and are not completed, None where that is not known."""
    return {
        shard: None if known is None else known.arrived_rows - known.completed_rows
        for shard, known in samples.counters[operator].items()
    }


def _executors(schedule: OperatorSchedule, told: Samples, since_us: int) -> tuple[ExecutorSeen, ...]:
    nodes = {worker.name: worker.node for worker in schedule.workers}
    return tuple(
        ExecutorSeen(
            name=executor.name,
            tasks=executor.tasks,
            tasks_ready=min(executor.tasks, told.speaking(executor.name, since_us)),
            node=nodes[executor.worker],
            cores={nodes[executor.worker]: executor.tasks},
        )
        for executor in schedule.executors
    )
