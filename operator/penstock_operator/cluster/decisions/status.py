"""The status of a Topology, and the events of its transitions, from what was seen and decided.

A condition keeps its lastTransitionTime while its status stays; an event is posted when a condition's
status or reason changes, so a look that changes nothing says nothing. Pure. Neighbours: `decide` gathers
the `Verdict`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.dataflow.outline import outline
from penstock.dataflow.plan import Plan, Stage
from penstock.figures.operators import Look, OperatorFigures, operator_figures
from penstock_operator.cluster.decisions.actions import Event
from penstock_operator.cluster.decisions.losses import Loss
from penstock_operator.cluster.kubernetes_api.names import worker_selector
from penstock_operator.cluster.observing.observed import Observed, SlaMet
from penstock_operator.words import figure_words

_MESSAGE_LENGTH_MAX = 1024
_QUIET_REASONS = ("ApplyingSchedule", "Settled", "MetricsRead", "StoresReady", "WithinQuota")
"""Their conditions come and go in the course of things: no event, but for who comes back within the quota."""
SLA_MET = "SLAMet"
_FOR_OTHERS = (SLA_MET, "Reconciling", "Stalled")
"""Conditions that say again what another one, or another object, says in an event."""
_STALLED_REASONS = (
    "UserCodeFailed", "InvalidManifest", "RetainedStateDiffers", "StateLost", "ScheduleLost",
    "DurabilityUnavailable", "ServiceAccountRefused", "NameRefused",
)  # fmt: skip
"""Why a topology is not ready, where that stays so until somebody changes something."""
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
    reconciling: Finding | None = None
    """What of the spec is not carried out yet; None when all is."""
    state_uid: str = ""
    workers_desired: int = 0
    workers_ready: int = 0
    begun: tuple[str, ...] = ()
    """Operators that have a Schedule, or have had one."""
    tasks_wanted: Mapping[str, int] = field(default_factory=dict)
    shards_moving: Mapping[str, int] = field(default_factory=dict)
    losses: Sequence[Loss] = ()


def status_of(
    observed: Observed,
    verdict: Verdict,
    look: Look,
    former: Mapping[str, Any],
) -> dict[str, Any]:
    """The whole status document. `look` is of its operators, `former` the status before."""
    plan, topology = observed.topology.plan, observed.topology.topology
    order = [operator.name for operator in topology.spec.operators] if topology is not None else []
    operators = _operators(plan, verdict, look, order) if plan is not None else []
    status: dict[str, Any] = {
        "observedGeneration": observed.topology.generation,
        "phase": verdict.phase,
        "conditions": _conditions(observed, verdict, former),
        "workersDesired": verdict.workers_desired,
        "workersReady": verdict.workers_ready,
        "selector": worker_selector(observed.topology.name),
        "workers": f"{verdict.workers_ready}/{verdict.workers_desired}",
        "shardsMoving": sum(verdict.shards_moving.values()),
        "operators": operators,
    }
    if verdict.state_uid:
        status["stateUid"] = verdict.state_uid
    if verdict.begun:
        status["begun"] = list(verdict.begun)
    if verdict.losses:
        status["lost"] = [
            {
                "operator": loss.operator,
                "shards": len(loss.shards),
                "parts": loss.parts[:_MESSAGE_LENGTH_MAX],
                "why": loss.why[:_MESSAGE_LENGTH_MAX],
                "id": loss.id,
            }
            for loss in verdict.losses
        ]
    if observed.locality.status:
        status["locality"] = dict(observed.locality.status)
    if plan is not None:
        ready = sum(entry["tasksReady"] for entry in operators)
        status["tasks"] = f"{ready}/{sum(entry['tasksDesired'] for entry in operators)}"
        by_name = {entry["name"]: entry for entry in operators}
        rates = [by_name[stage.operator].get("ratePerSecond") for stage in plan.stages if _flows(stage)]
        if rates and None not in rates:
            status["rate"] = f"{sum(rate for rate in rates if rate is not None):.0f}/s"
        sinks = [operator.name for operator in outline(plan) if operator.kind == "sink"]
        ends = [by_name[name].get("latencyP99Ms") for name in sinks]
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
        is_quiet = condition["reason"] in _QUIET_REASONS or condition["type"] in _FOR_OTHERS
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
    # These two are there only while they hold, as kstatus wants it.
    if verdict.ready.holds is False and verdict.ready.reason in _STALLED_REASONS:
        findings["Stalled"] = replace(verdict.ready, holds=True)
    elif verdict.reconciling is not None:
        findings["Reconciling"] = verdict.reconciling
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


def _operators(plan: Plan, verdict: Verdict, look: Look, order: Sequence[str]) -> list[dict[str, Any]]:
    """In the `order` of the Topology; what is no operator of its own there, as sinks of late rows, at the
    end."""
    outlined = {operator.name: operator for operator in outline(plan)}
    names = dict.fromkeys((*order, *outlined))
    return [_entry(operator_figures(outlined[name], look), verdict) for name in names if name in outlined]


def _entry(figures: OperatorFigures, verdict: Verdict) -> dict[str, Any]:
    """What is not known is left out, where the API lets it be."""
    wanted, remote = figures.tasks_wanted, figures.tasks_remote
    values: dict[str, Any] = {
        "name": figures.name,
        "tasksDesired": verdict.tasks_wanted.get(figures.name, 0) if wanted is None else wanted,
        "tasksReady": figures.tasks_ready or 0,
        "tasksRemote": remote or None,
        "shards": figures.shards or 0,
        "shardsMoving": verdict.shards_moving.get(figures.name, 0),
        "ratePerSecond": round(figures.rate_per_s, 1) if figures.rate_per_s is not None else None,
        "latencyP50Ms": _rounded(figures.p50_ms),
        "latencyP99Ms": _rounded(figures.p99_ms),
        "backlog": figures.inbox_entries,
        "watermark": figure_words.instant(figures.watermark_ms),
        "lateRecords": figures.late_rows,
        "lagRecords": figures.lag_records,
        "lagSeconds": round(figures.lag_ms / 1000, 1) if figures.lag_ms is not None else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _rounded(latency_ms: float | None) -> float | None:
    """To the microsecond."""
    return None if latency_ms is None else round(latency_ms, 3)


def _latency_text(milliseconds: float) -> str:
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.1f}s"
    return f"{milliseconds:.0f}ms" if milliseconds >= 10 else f"{milliseconds:.1f}ms"


def _flows(stage: Stage) -> bool:
    """Whether it is a source whose rate is that of the topology: initial state is read once."""
    return stage.is_source and not stage.initial_of
