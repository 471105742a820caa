"""The status of a LatencySLA, and the events of its transitions, from how its loop stands.

Looks come ten times a second: a condition that comes and goes with a single move is none, and SLAMet is true
again only after it has been kept for a while. Pure. Neighbours: `sla.keeper` calls, `topology_status` writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.sla.source_lag import BEHIND
from penstock.sla.standing import SlaLine
from penstock.sla.turn import HELD, NEWS_WINDOWS, UNAVAILABLE, SlaEvent
from penstock_operator.cluster.decisions.actions import Event
from penstock_operator.cluster.decisions.status import Finding
from penstock_operator.cluster.observing.observed import SlaMet
from penstock_operator.cluster.sla.decisions import camel_case, time_text
from penstock_operator.words.sla_words import sla_words

MET_AGAIN_US = 5_000_000
"""The bound must have been kept for so long before SLAMet is true again."""
_MESSAGE_LENGTH_MAX = 1024
_WARNINGS = {("Ready", "False"), ("SLAMet", "False"), (UNAVAILABLE, "True"), ("Infeasible", "True"),
             ("WorkStalled", "True"), (BEHIND, "True")}  # fmt: skip
_QUIET = {("MetricsUnavailable", "False"), ("Rebalancing", "True"), ("Rebalancing", "False"),
          ("SLAMet", "Unknown"), ("Stalled", "True")}  # fmt: skip
_INVALID = "Invalid"
"""Why an SLA is not kept, where that stays so until somebody changes it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How an SLA stands at a look. Without `line` it is not kept: `reason` and `message` say why."""

    at_us: int
    generation: int
    reason: str = ""
    message: str = ""
    line: SlaLine | None = None
    treatment: str = ""
    """What is being done now, in words; "" for nothing."""
    decisions: Sequence[Mapping[str, Any]] = ()
    last_scaled: str | None = None
    told: Sequence[SlaEvent] = ()
    is_at_rest: bool = False
    """Its topology is paused or finished."""


@dataclass(frozen=True, slots=True)
class SlaMemory:
    """What a status needs of the looks before it: since when conditions have lasted, and when the bound was
    last broken. It may be lost at any time."""

    since_us: Mapping[str, int] = field(default_factory=dict)
    broken_us: int | None = None


def sla_status(
    standing: Standing, former: Mapping[str, Any], memory: SlaMemory
) -> tuple[dict[str, Any], tuple[Event, ...], SlaMemory]:
    """The whole status, what is to be told, and what to remember. `former` is the status before."""
    line = standing.line
    broken_us = standing.at_us if line is not None and line.met is False else memory.broken_us
    since_us = {} if line is None else {
        kind: memory.since_us.get(kind, standing.at_us) for kind in line.conditions
    }  # fmt: skip
    memory = SlaMemory(since_us, broken_us)
    conditions = _conditions(standing, former, memory)
    status: dict[str, Any] = {"observedGeneration": standing.generation, "conditions": conditions}
    if line is not None:
        status |= _figures(line)
        status["lastDecision"] = line.last_decision or former.get("lastDecision")
    else:
        status["lastDecision"] = former.get("lastDecision")
    status["lastScaled"] = standing.last_scaled
    status["decisions"] = list(standing.decisions)
    status = {name: value for name, value in status.items() if value is not None and value != []}
    events = (*_transitions(former, conditions), *map(_event, standing.told))
    return status, events, memory


def met_in(sla: str, status: Mapping[str, Any]) -> SlaMet:
    """Whether the LatencySLA `sla` with this status is kept."""
    found = {one["type"]: one for one in status.get("conditions") or ()}.get("SLAMet")
    if found is None:
        return SlaMet(sla, "Unknown", "NotKept", "the SLA has not been looked at yet")
    return SlaMet(sla, found["status"], found["reason"], str(found.get("message", "")))


def latency_text(milliseconds: float) -> str:
    """As short as a column wants it: "34ms", "1.2s"; "never" for what never comes."""
    if math.isinf(milliseconds):
        return "never"
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.1f}s"
    return f"{milliseconds:.0f}ms" if milliseconds >= 10 else f"{milliseconds:.1f}ms"


def _figures(line: SlaLine) -> dict[str, Any]:
    return {
        "met": line.met,
        "latency": None if line.mean_ms is None else latency_text(line.mean_ms),
        "predictedLatency": None if line.expected_ms is None else latency_text(line.expected_ms),
        "successRate": None if line.success_recent is None else round(line.success_recent, 4),
        "successRateSinceStart": None if line.success is None else round(line.success, 4),
        "tasks": line.tasks,
        "executors": line.executors,
        "meanTasks": None if line.mean_tasks is None else round(line.mean_tasks, 2),
    }


def _conditions(standing: Standing, former: Mapping[str, Any], memory: SlaMemory) -> list[dict[str, Any]]:
    before = {one["type"]: one for one in former.get("conditions") or ()}
    conditions = []
    for kind, (holds, finding) in _findings(standing, before, memory).items():
        old = before.get(kind, {})
        is_same = (old.get("status"), old.get("reason")) == (holds, finding.reason)
        transition = old.get("lastTransitionTime") if old.get("status") == holds else None
        conditions.append(
            {
                "type": kind,
                "status": holds,
                "observedGeneration": standing.generation,
                "lastTransitionTime": transition or time_text(standing.at_us),
                "reason": finding.reason,
                # Figures in it are those of the transition.
                "message": str(old.get("message", "")) if is_same else finding.message[:_MESSAGE_LENGTH_MAX],
            }
        )
    return conditions


def _findings(
    standing: Standing, before: Mapping[str, Mapping[str, Any]], memory: SlaMemory
) -> dict[str, tuple[str, Finding]]:
    """Condition -> (status, finding)."""
    line = standing.line
    found: dict[str, tuple[str, Finding]]
    if line is None:
        unknown = ("Unknown", Finding(False, "NotKept", "the SLA is not kept: see Ready"))
        if standing.reason == HELD:
            return {"Ready": _held(standing, standing.message), "SLAMet": unknown}
        ready = Finding(False, standing.reason, standing.message)
        found = {"Ready": ("False", ready), "SLAMet": unknown}
        if standing.reason == _INVALID:
            # It is there only while it holds, as kstatus wants it.
            found["Stalled"] = "True", replace(ready, holds=True)
        return found
    lasting = {
        kind: sentence
        for kind, sentence in line.conditions.items()
        if standing.at_us - memory.since_us[kind] >= NEWS_WINDOWS * line.window_ms * 1000
    }
    found = {}
    held = lasting.pop(HELD, "")
    what = f"{line.about} is to stay within {line.bound_ms:g} ms over any {line.window_ms:g} ms"
    if held:
        found["Ready"] = _held(standing, held)
    elif line.dry_run:
        found["Ready"] = "True", Finding(True, "DryRun", f"{what}; decisions are shown, not carried out")
    else:
        found["Ready"] = "True", Finding(True, "Kept", f"{what}, by {line.policy}")
    found["SLAMet"] = _met(standing.at_us, line, before.get("SLAMet", {}), memory)
    if standing.treatment:
        found["Rebalancing"] = "True", Finding(True, "Treatment", standing.treatment)
    else:
        found["Rebalancing"] = "False", Finding(False, "Settled")
    missing = lasting.pop(UNAVAILABLE, "")
    found[UNAVAILABLE] = (
        ("True", Finding(True, "MetricsMissing", missing))
        if missing
        else ("False", Finding(False, "MetricsRead"))
    )
    for kind, sentence in lasting.items():
        found[kind] = "True", Finding(True, kind, sentence)
    return found


def _held(standing: Standing, why: str) -> tuple[str, Finding]:
    """An SLA of a topology that rests is as it should be."""
    if standing.is_at_rest:
        return "True", Finding(True, "TopologyAtRest", why)
    return "False", Finding(False, HELD, why)


def _met(at_us: int, line: SlaLine, old: Mapping[str, Any], memory: SlaMemory) -> tuple[str, Finding]:
    if line.met is None and old.get("status") in (None, "Unknown"):
        return "Unknown", Finding(False, "NothingMeasured", "nothing has been worked on in a window yet")
    is_kept = memory.broken_us is None or at_us - memory.broken_us >= MET_AGAIN_US
    if line.met is None:
        is_kept = is_kept or old.get("status") == "True"
    if is_kept:
        return "True", Finding(True, "WithinBound", sla_words(line))
    if BEHIND in line.conditions:
        return "False", Finding(False, BEHIND, f"{sla_words(line)}; {line.conditions[BEHIND]}")
    return "False", Finding(False, "BoundExceeded", sla_words(line))


def _transitions(former: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]]) -> list[Event]:
    before = {one["type"]: one for one in former.get("conditions") or ()}
    events = []
    for one in conditions:
        old, state = before.get(one["type"], {}), (one["type"], one["status"])
        is_same = (old.get("status"), old.get("reason")) == (one["status"], one["reason"])
        if is_same or state in _QUIET:
            continue
        events.append(Event("Warning" if state in _WARNINGS else "Normal", one["reason"], one["message"]))
    return events


def _event(told: SlaEvent) -> Event:
    reason = camel_case(told.kind) if told.kind else "TreatmentStuck" if told.is_trouble else "Held"
    return Event("Warning" if told.is_trouble else "Normal", reason, told.text)
