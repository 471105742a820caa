"""The last decisions on a topology's tables, as they stand in its status; each goes to the operator's log.

Numbers go on from those that the status has. Neighbours: `penstock.locality.loop` hands decisions in,
`keeper` puts the entries into what the status is made of.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.api.specs.topology_status import TABLE_DECISIONS_SHOWN
from penstock.control.locality.locality_decision import LocalityDecision
from penstock.locality.record import TablesBrought, TablesRecord, record_of

_LOG = logging.getLogger(__name__)

_REASON_LENGTH_MAX = 4096
_WORDS_LENGTH_MAX = 1024


class RecentTableDecisions:
    """Keeps `TableDecisionKeeper`. `status` is the Topology's as it stands now."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        former = (status.get("locality") or {}).get("decisions") or ()
        self._entries: list[dict[str, Any]] = [dict(one) for one in former]
        self._next = 1 + max((int(one["number"]) for one in self._entries), default=0)

    @property
    def entries(self) -> list[dict[str, Any]]:
        """As `status.locality.decisions` has them, the newest first."""
        return [dict(one) for one in self._entries]

    def tables_decided(self, decision: LocalityDecision, *, dry_run: bool) -> int:
        number = self._next
        self._next += 1
        record = record_of(decision, number, dry_run=dry_run)
        _LOG.info("decision %s", msgspec.json.encode(record).decode())
        entry = _entry(record)
        # One that only says that nothing is done takes the place of such a one before it.
        if not record.actions and self._entries and not self._entries[0].get("actions"):
            self._entries.pop(0)
        self._entries = [entry, *self._entries][:TABLE_DECISIONS_SHOWN]
        return number

    def tables_brought(self, outcome: TablesBrought) -> None:
        _LOG.info("decision %s", msgspec.json.encode(outcome).decode())
        for entry in self._entries:
            if entry["number"] == outcome.number:
                entry["brought"] = outcome.words[:_WORDS_LENGTH_MAX]


def _entry(record: TablesRecord) -> dict[str, Any]:
    """One of `status.locality.decisions`."""
    entry: dict[str, Any] = {
        "number": record.number,
        "time": datetime.fromtimestamp(record.at_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "rule": record.rule,
        "reason": record.reason[:_REASON_LENGTH_MAX],
        "actions": [action[:_WORDS_LENGTH_MAX] for action in record.actions],
        "dryRun": record.dry_run,
    }
    return {name: value for name, value in entry.items() if value not in ("", [], False)}
