"""The status of a Topology, and the events of its transitions, from what was seen and decided.

A condition keeps its lastTransitionTime while its status stays; an event is posted when a condition's
status or reason changes, so a look that changes nothing says nothing. Pure. Neighbours: `decide` gathers
the `Verdict`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.dataflow.plan import Fanout, Plan, Stage
from penstock.figures.rates import Figures, figures_of_fused, figures_of_stage
from penstock.figures.samples import Samples
from penstock.schedule.record import OperatorSchedule
from penstock_operator.cluster.decisions.actions import Event
from penstock_operator.cluster.observing.observed import Observed, SlaMet
from penstock_operator.cluster.workers.demand import counters_of, inbox_entries, is_source
from penstock_operator.cluster.workers.schedule_figures import tasks_ready

_MESSAGE_LENGTH_MAX = 1024
_QUIET_REASONS = ("ApplyingSchedule", "Settled", "MetricsRead", "StoresReady", "WithinQuota")
"""Their conditions come and go in the course of things: no event, but for who comes back within the quota."""
SLA_MET = "SLAMet"
_GOOD_REASONS = ("Running", "Paused", "Finished", "Draining", "Starting", "WorkersStarting", "StoresMissing")


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition: whether it holds (None: not known), a CamelCase word, a sentence."""

    holds: bool | None
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `decide` found. `tasks_wanted` is operator -> tasks, where there is no Schedule yet."""

    phase: str
    ready: Finding
    progressing: Finding
    store_available: Finding
    metrics_unavailable: Finding
    quota: Finding
    state_uid: str = ""
    workers_desired: int = 0
    workers_ready: int = 0
    tasks_wanted: Mapping[str, int] = field(default_factory=dict)
    shards_moving: Mapping[str, int] = field(default_factory=dict)


def status_of(
    observed: Observed,
    verdict: Verdict,
    schedules: Mapping[str, OperatorSchedule],
    samples: Samples,
    former: Mapping[str, Any],
) -> dict[str, Any]:
    """The whole status document. `former` is the one before."""
    plan = observed.topology.plan
    operators = _operators(observed, plan, verdict, schedules, samples) if plan is not None else []
    status: dict[str, Any] = {
        "observedGeneration": observed.topology.generation,
        "phase": verdict.phase,
        "conditions": _conditions(observed, verdict, former),
        "workersDesired": verdict.workers_desired,
        "workersReady": verdict.workers_ready,
        "workers": f"{verdict.workers_ready}/{verdict.workers_desired}",
        "shardsMoving": sum(verdict.shards_moving.values()),
        "operators": operators,
    }
    if verdict.state_uid:
        status["stateUid"] = verdict.state_uid
    if plan is not None:
        ready = sum(entry["tasksReady"] for entry in operators)
        status["tasks"] = f"{ready}/{sum(entry['tasksDesired'] for entry in operators)}"
        by_name = {entry["name"]: entry for entry in operators}
        rates = [by_name[stage.operator].get("ratePerSecond") for stage in plan.stages if is_source(stage)]
        if rates and None not in rates:
            status["rate"] = f"{sum(rate for rate in rates if rate is not None):.0f}/s"
        ends = [by_name[name].get("latencyP99Ms") for name in _sinks(plan)]
        known = [latency for latency in ends if latency is not None]
        if known:
            status["latency"] = _latency_text(max(known))
    return status


def former_status(observed: Observed, remembered: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The status decided last; after a start the one that stands in the Topology."""
    return remembered if remembered is not None else observed.topology.manifest.get("status") or {}


def events_of(former: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[Event, ...]:
    """What changed against the status before."""
    before = {c["type"]: c for c in former.get("conditions", ())}
    events = []
    for condition in status["conditions"]:
        old = before.get(condition["type"], {})
        is_same = (old.get("status"), old.get("reason")) == (condition["status"], condition["reason"])
        # what is told of an SLA is told of its own object
        is_quiet = condition["reason"] in _QUIET_REASONS or condition["type"] == SLA_MET
        if is_same or (is_quiet and not (condition["type"] == "QuotaExceeded" and old)):
            continue
        is_bad = _is_bad(condition)
        message = condition["message"] or f"{condition['type']} is {condition['status']}"
        events.append(Event("Warning" if is_bad else "Normal", condition["reason"], message))
    # Two conditions that turn for one reason say the same words: the first of them is told.
    unique: dict[str, Event] = {}
    for event in events:
        unique.setdefault(event.message, event)
    return tuple(unique.values())


def _is_bad(condition: Mapping[str, Any]) -> bool:
    if condition["type"] in ("Ready", "StoreAvailable"):
        return condition["status"] == "False" and condition["reason"] not in _GOOD_REASONS
    if condition["type"] in ("MetricsUnavailable", "QuotaExceeded"):
        return bool(condition["status"] == "True") or condition["reason"] == "StoreFull"
    return condition["reason"] in (
        "WorkerLost",
        "DeadlineExceeded",
        "InsufficientResources",
        "WorkersMissing",
    )


def _conditions(observed: Observed, verdict: Verdict, former: Mapping[str, Any]) -> list[dict[str, Any]]:
    findings = {
        "Ready": verdict.ready,
        "Progressing": verdict.progressing,
        "StoreAvailable": verdict.store_available,
        "MetricsUnavailable": verdict.metrics_unavailable,
        "QuotaExceeded": verdict.quota,
    }
    if observed.sla.met:
        findings[SLA_MET] = _sla_met(observed.sla.met)
    before = {condition["type"]: condition for condition in former.get("conditions", ())}
    conditions = []
    for kind, finding in findings.items():
        holds = "Unknown" if finding.holds is None else "True" if finding.holds else "False"
        old = before.get(kind, {})
        is_same = old.get("status") == holds and old.get("lastTransitionTime")
        conditions.append(
            {
                "type": kind,
                "status": holds,
                "observedGeneration": observed.topology.generation,
                "lastTransitionTime": old["lastTransitionTime"] if is_same else observed.wall_time,
                "reason": finding.reason,
                "message": finding.message[:_MESSAGE_LENGTH_MAX],
            }
        )
    return conditions


def _sla_met(slas: Sequence[SlaMet]) -> Finding:
    """Of several SLAs the one that is not kept, or of which that is not known, is told."""
    by_status = {one.status: one for one in reversed(slas)}
    worst = by_status.get("False") or by_status.get("Unknown") or slas[0]
    holds = {"True": True, "False": False}.get(worst.status)
    return Finding(holds, worst.reason, f"LatencySLA {worst.sla}: {worst.message}")


# --- operators ----------------------------------------------------------------------------------


def _operators(
    observed: Observed,
    plan: Plan,
    verdict: Verdict,
    schedules: Mapping[str, OperatorSchedule],
    samples: Samples,
) -> list[dict[str, Any]]:
    """In the order of the Topology."""
    topology = observed.topology.topology
    names = [operator.name for operator in topology.spec.operators] if topology is not None else []
    stages = {stage.operator: stage for stage in plan.stages}
    entries = []
    for name in names:
        if name in stages:
            schedule = schedules.get(name)
            entries.append(_stage(observed, stages[name], verdict, schedule, samples))
        else:
            entry: dict[str, Any] = {
                "name": name,
                "tasksDesired": 0,
                "tasksReady": 0,
                "shards": 0,
                "shardsMoving": 0,
            }
            behind = [schedules.get(stage.operator) for stage in plan.stages if name in stage.out.fused]
            if all(schedule is not None for schedule in behind):
                shards = [shard for schedule in behind if schedule is not None for shard in schedule.shards]
                entry.update(_shown(figures_of_fused(samples, name, shards)))
            entries.append(entry)
    return entries


def _stage(
    observed: Observed,
    stage: Stage,
    verdict: Verdict,
    schedule: OperatorSchedule | None,
    samples: Samples,
) -> dict[str, Any]:
    name = stage.operator
    entry: dict[str, Any] = {
        "name": name,
        "tasksDesired": schedule.tasks if schedule is not None else verdict.tasks_wanted.get(name, 0),
        "tasksReady": 0,
        "shards": len(schedule.shards) if schedule is not None else 0,
        "shardsMoving": verdict.shards_moving.get(name, 0),
    }
    if schedule is None:
        return entry
    entry["tasksReady"] = tasks_ready(observed, schedule)
    if remote := sum(seen.remote_tasks for seen in observed.schedules if seen.schedule.operator == name):
        entry["tasksRemote"] = remote
    entry.update(_shown(figures_of_stage(samples, name, schedule.shards)))
    waiting = inbox_entries(counters_of(observed, schedule))
    if waiting is not None and not is_source(stage):
        entry["backlog"] = waiting
    return entry


def _shown(figures: Figures) -> dict[str, float]:
    values = {
        "ratePerSecond": round(figures.rate_per_s, 1) if figures.rate_per_s is not None else None,
        "latencyP50Ms": _rounded(figures.p50_ms),
        "latencyP99Ms": _rounded(figures.p99_ms),
    }
    return {name: value for name, value in values.items() if value is not None}


def _rounded(latency_ms: float | None) -> float | None:
    """To the microsecond."""
    return None if latency_ms is None else round(latency_ms, 3)


def _latency_text(milliseconds: float) -> str:
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.1f}s"
    return f"{milliseconds:.0f}ms" if milliseconds >= 10 else f"{milliseconds:.1f}ms"


def _sinks(plan: Plan) -> Sequence[str]:
    names: dict[str, None] = {}

    def walk(fanout: Fanout) -> None:
        names.update(dict.fromkeys(sink.name for sink in fanout.sinks))
        for step in fanout.steps:
            walk(step.out)

    for stage in plan.stages:
        walk(stage.out)
    return tuple(names)
