"""The Spark workers of `penstock run`: with remote tasks a second one beside a worker plays the other node.

Pure. Neighbours: `run_decisions` calls, `run_publishing` says which tasks go there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.metrics.rows import WorkerRow
from penstock_operator.fleet.port import FleetWorker, WorkerState
from penstock_operator.local.run_state import (
    Action,
    RunState,
    Say,
    SparkWorkerCare,
    StartSparkWorker,
    StopWorker,
)

BESIDE = "beside"
"""What schedules call the place."""
LINGER_S = 20.0
"""A Spark worker without tasks stays for so long: its start takes seconds."""
AGAIN_AFTER_S = 1.0
GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class _Joining:
    """A worker that is up and has remote tasks: the uid of its start, and its Spark master."""

    uid: str
    master: str


def keep_spark_workers(
    state: RunState, rows: Iterable[WorkerRow], fleet: Sequence[FleetWorker], now_s: float
) -> tuple[RunState, list[Action]]:
    """Spark workers for those who have remote tasks and are up. `rows` are what workers say of themselves, of
    the starts that count."""
    lending = {
        executor.worker
        for schedule in state.schedules.values()
        for executor in schedule.executors
        if executor.name in state.remote
    }
    joining = {
        row.worker: _Joining(row.uid, row.spark_master)
        for row in rows
        if row.worker in lending and row.state == "ready" and row.spark_master
    }
    ended = {seen.worker for seen in fleet if seen.state is WorkerState.ENDED}
    kept: dict[str, SparkWorkerCare] = {}
    actions: list[Action] = []
    for worker, before in state.spark_workers.items():
        care = kept[worker] = _looked_at(before, joining.get(worker), before.name in ended, now_s)
        if care.is_leaving and not before.is_leaving:
            actions += [Say(f"Spark worker {care.name} leaves"), StopWorker(care.name, GRACE_S)]
    for worker, wanted in joining.items():
        last = kept.get(worker)
        if last is not None and (last.ended_at_s is None or now_s < last.ended_at_s + AGAIN_AFTER_S):
            continue
        attempt = last.attempt + 1 if last is not None else 0
        care = kept[worker] = SparkWorkerCare(f"{worker}-{BESIDE}", attempt, wanted.uid)
        start = StartSparkWorker(care.name, attempt, wanted.uid, wanted.master)
        actions += [Say(f"Spark worker {care.name} starts, for remote tasks"), start]
    return replace(state, spark_workers=kept), actions


def _looked_at(
    care: SparkWorkerCare, wanted: _Joining | None, has_ended: bool, now_s: float
) -> SparkWorkerCare:
    """It is to leave when it is of another start of its worker, or when there has been nothing to do."""
    if care.ended_at_s is not None or has_ended:
        return replace(care, ended_at_s=care.ended_at_s if care.ended_at_s is not None else now_s)
    if wanted is not None:
        is_leaving = care.is_leaving or wanted.uid != care.home_uid
        return replace(care, idle_since_s=None, is_leaving=is_leaving)
    since_s = care.idle_since_s if care.idle_since_s is not None else now_s
    return replace(care, idle_since_s=since_s, is_leaving=care.is_leaving or now_s - since_s >= LINGER_S)
