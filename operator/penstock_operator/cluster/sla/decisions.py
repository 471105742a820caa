"""The last decisions of one LatencySLA, as they stand in its status; each goes to the operator's log whole.

Numbers go on from those that the status has, so that they grow from leader to leader. Neighbours:
`penstock.sla.loop` hands decisions in, `sla.status` puts the entries into the status.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.api.latency_sla import ACTIONS_SHOWN, DECISIONS_SHOWN
from penstock.control.decision import PolicyDecision, Treatment
from penstock.sla.decision_record import Brought, DecisionRecord, record_of
from penstock_operator.words.sla_words import brought_words, predicted_words

_LOG = logging.getLogger(__name__)

_SCALING = {Treatment.SCALE_OUT, Treatment.SCALE_IN, Treatment.CORES, Treatment.REPARTITION}
_REASON_LENGTH_MAX = 4096
_ACTION_LENGTH_MAX = 1024
_WORDS_LENGTH_MAX = 256


class RecentDecisions:
    """Keeps `DecisionKeeper`. `status` is what stands in the LatencySLA now."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._entries: list[dict[str, Any]] = [dict(one) for one in status.get("decisions") or ()]
        self._next = 1 + max((int(one["number"]) for one in self._entries), default=0)
        self.last_scaled: str | None = status.get("lastScaled")

    @property
    def entries(self) -> list[dict[str, Any]]:
        """As `status.decisions` has them, the newest first."""
        return [dict(one) for one in self._entries]

    def decided(self, decision: PolicyDecision, sla: str, *, dry_run: bool) -> int:
        number = self._next
        self._next += 1
        record = record_of(decision, number, sla, dry_run=dry_run)
        _LOG.info("decision %s", msgspec.json.encode(record).decode())
        entry = entry_of(record)
        # One that only says that nothing is done takes the place of the same one before it.
        if not record.actions and self._entries and _is_same_hold(self._entries[0], entry):
            self._entries.pop(0)
        self._entries = [entry, *self._entries][:DECISIONS_SHOWN]
        if decision.treatment in _SCALING and not dry_run:
            self.last_scaled = entry["time"]
        return number

    def brought(self, outcome: Brought) -> None:
        _LOG.info("decision %s", msgspec.json.encode(outcome).decode())
        for entry in self._entries:
            if entry["number"] == outcome.number:
                entry["brought"] = brought_words(outcome)


def entry_of(record: DecisionRecord) -> dict[str, Any]:
    """One of `status.decisions`."""
    actions = [action[:_ACTION_LENGTH_MAX] for action in record.actions]
    if len(actions) > ACTIONS_SHOWN:
        actions = [*actions[: ACTIONS_SHOWN - 1], f"and {len(actions) - ACTIONS_SHOWN + 1} more"]
    entry: dict[str, Any] = {
        "number": record.number,
        "time": time_text(record.at_us),
        "operator": record.operator,
        "treatment": camel_case(record.treatment),
        "rule": record.rule,
        "reason": record.reason[:_REASON_LENGTH_MAX],
        "actions": actions,
        "predicted": predicted_words(record)[:_WORDS_LENGTH_MAX],
        "dryRun": record.dry_run,
    }
    return {name: value for name, value in entry.items() if value not in ("", [], False)}


def camel_case(treatment: str) -> str:
    """ "scale-out" -> "ScaleOut": a reason as Kubernetes words them."""
    return "".join(part.capitalize() for part in treatment.split("-"))


def time_text(at_us: int) -> str:
    """RFC 3339, whole seconds, UTC."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_same_hold(before: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    names: Sequence[str] = ("operator", "treatment", "rule")
    return not before.get("actions") and all(before.get(name) == entry.get(name) for name in names)
