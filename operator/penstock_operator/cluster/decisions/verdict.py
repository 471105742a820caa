"""How a topology is, from one look at it: its phase, and the findings that become its conditions.

Pure. Neighbours: `turn` is the look, `status` makes the document of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.schedule.store_ids import in_words, node_of
from penstock.store.failure_names import failures_of
from penstock.supervision.worker import Worker, WorkerState
from penstock_operator.cluster.decisions.identity import begun_operators
from penstock_operator.cluster.decisions.status import Finding, Verdict
from penstock_operator.cluster.decisions.turn import Turn
from penstock_operator.cluster.observing.observed import stores_there

_FAILURE_LINES_MAX = 4


def verdict_of(turn: Turn) -> Verdict:
    """The phase, and each condition with its reason."""
    store = _store_finding(turn)
    phase, ready = _ready_finding(turn, store)
    return Verdict(
        phase=phase,
        ready=ready,
        progressing=_progressing(turn, phase),
        reconciling=_reconciling(turn, phase, ready),
        store_available=store,
        metrics_unavailable=_metrics_finding(turn),
        quota=turn.quota,
        state_uid=turn.state.uid,
        begun=tuple(sorted({*begun_operators(turn.observed.topology, turn.former), *turn.schedules})),
        workers_desired=sum(group.workers_wanted for group in turn.groups),
        workers_ready=sum(
            worker.state is WorkerState.READY and not worker.is_leaving for worker in turn.workers
        ),
        tasks_wanted={name: wish.tasks for name, wish in turn.wishes.items()},
        shards_moving=turn.settled.shards_moving,
        losses=turn.losses.found,
    )


def _ready_finding(turn: Turn, store: Finding) -> tuple[str, Finding]:
    failures = _failures(turn)
    if turn.is_finished:
        return "Finished", Finding(True, "Finished", "all input is read and worked off")
    if failures:
        operator, message = min(failures.items())
        lines = "\n".join(message.strip().splitlines()[-_FAILURE_LINES_MAX:])
        return "Failed", Finding(False, "UserCodeFailed", f"operator {operator}: {lines}")
    if len(turn.schedules) < len(turn.plan.stages):
        return _before_start(turn, store)
    if turn.topology.spec.paused:
        if turn.is_at_rest:
            return "Paused", Finding(True, "Paused", "sources are stopped, and what was read is worked off")
        return "Draining", Finding(False, "Draining", "sources stop; what was read is being worked off")
    return _running(turn, store)


def _before_start(turn: Turn, store: Finding) -> tuple[str, Finding]:
    if not store.holds:
        return "Pending", store
    if turn.code_missing and turn.topology.spec.code is not None:
        name = turn.topology.spec.code.config_map
        return "Pending", Finding(
            False, "CodeMissing", f"there is no ConfigMap {name}; its .py files are the code"
        )
    if turn.observed.refused:
        first = turn.observed.refused[0]
        return "Pending", Finding(False, "PodRefused", f"pod {first.name} is refused: {first.message}")
    if turn.found.missing_room and not any(w.state is WorkerState.READY for w in turn.workers):
        return "Pending", Finding(False, "InsufficientResources", turn.found.missing_room)
    pods = [turn.pods[worker.name] for worker in turn.workers if worker.is_there]
    stuck = [pod for pod in pods if not pod.ready and pod.reason]
    if stuck:
        told = f"worker {stuck[0].name}: {stuck[0].reason} {stuck[0].message}".strip()
        return "Starting", Finding(False, "WorkersStarting", told)
    return "Starting", Finding(False, "WorkersStarting", turn.found.waits_for or "workers are starting")


def _running(turn: Turn, store: Finding) -> tuple[str, Finding]:
    if not store.holds:
        return "Running", store
    holders = [worker for worker in turn.workers if worker.holds_executors]
    if holders and not any(worker.state is WorkerState.READY for worker in holders):
        return "Starting", Finding(False, "WorkersStarting", _waiting(turn, holders))
    failed = _failed_workers(turn)
    if failed:
        return "Running", Finding(False, "WorkerFailed", failed)
    waiting = [worker for worker in holders if worker.state is not WorkerState.READY]
    if waiting:
        return "Running", Finding(False, "WorkersMissing", _waiting(turn, waiting))
    if turn.quota.holds:
        return "Running", replace(turn.quota, holds=False)
    return "Running", Finding(True, "Running", "every shard has a worker")


def _waiting(turn: Turn, workers: Sequence[Worker]) -> str:
    parts = []
    for worker in workers:
        pod = turn.pods.get(worker.name)
        reason = f" ({pod.reason})" if pod is not None and pod.reason else ""
        parts.append(f"{worker.holding.shards} shards wait for worker {worker.name}{reason}")
    return "; ".join(parts)


def _failures(turn: Turn) -> dict[str, str]:
    return {
        operator: message
        for reading in turn.observed.readings.values()
        if reading is not None
        for operator, message in failures_of(reading.failures, turn.template).items()
    }


def _failed_workers(turn: Turn) -> str:
    rows = {
        name: row
        for reading in turn.observed.readings.values()
        if reading is not None
        for name, row in reading.workers.items()
    }
    for worker in turn.workers:
        row = rows.get(worker.name)
        if row is not None and row.uid == worker.uid and row.state == "failed":
            return f"worker {worker.name} cannot go on: {row.message}"
    return ""


def _progressing(turn: Turn, phase: str) -> Finding:
    if turn.settled.is_overdue:
        return Finding(False, "DeadlineExceeded", "; ".join(turn.settled.waits[:3]))
    if turn.observed.refused:
        first = turn.observed.refused[0]
        return Finding(False, "PodRefused", f"pod {first.name} is refused: {first.message}")
    if turn.found.missing_room and not turn.found.is_handing_over:
        return Finding(False, "InsufficientResources", turn.found.missing_room)
    if turn.found.treatments:
        reason, message = turn.found.treatments[0]
        return Finding(True, reason, message)
    if phase == "Starting":
        return Finding(True, "Starting", turn.found.waits_for or "workers are starting")
    if turn.found.spark_workers_wait_for:
        return Finding(True, "SparkWorkersStarting", turn.found.spark_workers_wait_for)
    if turn.settled.waits:
        return Finding(True, "ApplyingSchedule", "; ".join(turn.settled.waits[:3]))
    return Finding(False, "Settled")


def _reconciling(turn: Turn, phase: str, ready: Finding) -> Finding | None:
    """What of the spec is not carried out yet. What an SLA changes is the course of things."""
    if phase in ("Starting", "Draining"):
        return Finding(True, ready.reason, ready.message)
    pods = turn.observed.pods
    outdated = sum(pod.template_hash != turn.template for pod in pods)
    if outdated and phase in ("Running", "Paused") and not turn.code_missing:
        told = f"{outdated} of {len(pods)} workers are of what they were made from before"
        return Finding(True, "RollingTemplate", told)
    return None


def _store_finding(turn: Turn) -> Finding:
    lost = _lost(turn)
    if lost:
        return Finding(False, "StateLost", lost)
    if turn.plan.durability == "Disk" and turn.config.store.durability != "Disk":
        told = (
            "durability Disk is asked for, and the node stores are installed with Process; "
            "ask for Process, or install with store.durability=Disk and a storage class"
        )
        return Finding(False, "DurabilityUnavailable", told)
    waiting = away(turn)
    if waiting:
        return Finding(False, "StoreAway", "; ".join(waiting))
    if not turn.schedules and not turn.rooms.open_nodes():
        return Finding(False, "StoresMissing", turn.rooms.why_closed())
    return Finding(True, "StoresReady")


def _lost(turn: Turn) -> str:
    """What is gone for good, and what can be done about it."""
    found, name = turn.losses.found, turn.topology.metadata.name
    if found:
        shards = "; ".join(f"{len(one.shards)} shards of {one.operator} ({one.parts})" for one in found)
        why = "; ".join(dict.fromkeys(one.why for one in found))
        unclear = f". {turn.losses.unclear}" if turn.losses.unclear else ""
        return (
            f"state is lost: {why}. These wait: {shards}. All others work on. To begin these alone anew, "
            f"with nothing: penstock accept-loss {name} --namespace {turn.observed.namespace}{unclear}"
        )
    if turn.losses.unclear:
        return turn.losses.unclear
    told = [
        f"{place.lost_shards} shards of {seen.schedule.operator} on {in_words(place.store)}"
        for seen in turn.observed.schedules
        for place in seen.applied
        if place.lost_shards
    ]
    return (
        f"stores have lost state: {', '.join(told)}; which shards that are is being found out" if told else ""
    )


def away(turn: Turn) -> list[str]:
    """Stores that hold shards and are not there, each with how many wait for it."""
    seen = turn.observed
    there = stores_there(seen.nodes, seen.stores)
    told = {store.id: store.message for store in seen.stores}
    waiting: dict[str, int] = {}
    for schedule in turn.schedules.values():
        for place in schedule.shards.values():
            if place.home not in there:
                waiting[place.home] = waiting.get(place.home, 0) + 1
    nodes = {node.name for node in seen.nodes}
    return [
        f"{count} shards wait for the store of {in_words(home)}"
        + ("" if node_of(home) in nodes else f", which is gone{f' ({told[home]})' if told.get(home) else ''}")
        for home, count in sorted(waiting.items())
    ]


def _metrics_finding(turn: Turn) -> Finding:
    there = {store.id for store in turn.observed.stores if store.ready}
    homes = {place.home for s in turn.schedules.values() for place in s.shards.values()}
    silent = sorted(home for home in homes & there if turn.observed.readings.get(home) is None)
    unreadable = [why for home, why in sorted(turn.observed.unreadable.items()) if home in silent]
    if unreadable:
        return Finding(True, "StateUnreadable", unreadable[0])
    if silent:
        return Finding(True, "StoreUnanswered", f"no answer from the stores of {', '.join(silent)}")
    return Finding(False, "MetricsRead")
