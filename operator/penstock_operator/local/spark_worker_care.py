"""The Spark workers of `penstock run`: with remote tasks a second one beside a worker plays the other node.

Pure. Neighbours: `penstock.supervision.beside` says when one leaves, `run_decisions` calls, `run_publishing`
says which tasks go there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.metrics.rows import WorkerRow
from penstock.supervision.beside import Beside, why_it_leaves
from penstock.supervision.since_when import SinceWhen
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
AGAIN_AFTER_S = 1.0
GRACE_S = 5.0


def keep_spark_workers(
    state: RunState,
    rows: Iterable[WorkerRow],
    fleet: Sequence[FleetWorker],
    since: SinceWhen,
) -> tuple[RunState, list[Action]]:
    """Spark workers for those who have remote tasks and are up. `rows` are what workers say of themselves, of
    the starts that count."""
    now_s, tasks = since.now_s, _remote_tasks(state)
    joining = {
        row.worker: row for row in rows if tasks[row.worker] and row.state == "ready" and row.spark_master
    }
    ended = {seen.worker for seen in fleet if seen.state is WorkerState.ENDED}
    kept: dict[str, SparkWorkerCare] = {}
    actions: list[Action] = []
    for worker, before in state.spark_workers.items():
        care = before
        if care.ended_at_s is None and care.name in ended:
            care = replace(care, ended_at_s=now_s)
        if care.ended_at_s is None and not care.is_leaving:
            beside = Beside(f"{care.name}/{care.attempt}", care.home_uid, tasks[worker])
            if why := why_it_leaves(beside, _uid_of(state, worker), since):
                care = replace(care, is_leaving=True)
                actions += [Say(f"Spark worker {care.name} leaves: {why}"), StopWorker(care.name, GRACE_S)]
        kept[worker] = care
    for worker, row in joining.items():
        last = kept.get(worker)
        if last is not None and (last.ended_at_s is None or now_s < last.ended_at_s + AGAIN_AFTER_S):
            continue
        attempt = last.attempt + 1 if last is not None else 0
        care = kept[worker] = SparkWorkerCare(f"{worker}-{BESIDE}", attempt, row.uid)
        start = StartSparkWorker(care.name, attempt, row.uid, row.spark_master)
        actions += [Say(f"Spark worker {care.name} starts, for remote tasks"), start]
    return replace(state, spark_workers=kept), actions


def _remote_tasks(state: RunState) -> Counter[str]:
    """By worker."""
    found = Counter[str]()
    for schedule in state.schedules.values():
        for executor in schedule.executors:
            found[executor.worker] += sum(count for _, count in state.remote.get(executor.name, ()))
    return found


def _uid_of(state: RunState, worker: str) -> str:
    """Of its present start; "" when there is none."""
    care = state.workers.get(worker)
    return care.uid if care is not None and not care.is_down else ""
