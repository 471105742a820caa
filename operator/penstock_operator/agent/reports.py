"""What this node has to say of each Schedule: what the last turn found, until the API server has it.

No I/O, no clock. Neighbours: `store_side` says what is news by then, `node_agent` writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.schedule.record import AppliedPlace
from penstock_operator.agent.schedule_feed import SeenSchedule

Told = Mapping[str, tuple[SeenSchedule, AppliedPlace]]
"""By the object's name."""


class Reports:
    """Belongs to who writes them; `written` may be looked at by any thread."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[SeenSchedule, AppliedPlace]] = {}
        self._written: dict[str, AppliedPlace] = {}

    def take(self, told: Told) -> bool:
        """The last turn's; they take the place of all that were told before. True when there are any."""
        self._told = dict(told)
        return bool(self._told)

    def due(self) -> list[tuple[SeenSchedule, AppliedPlace]]:
        """What is not written yet."""
        return list(self._told.values())

    def note_written(self, seen: SeenSchedule, applied: AppliedPlace) -> None:
        """The API server has this one."""
        self._written[seen.uid] = applied
        if self._told.get(seen.name) == (seen, applied):
            del self._told[seen.name]

    def written(self, object_uid: str) -> AppliedPlace | None:
        """What the API server has of this object, if this agent wrote any."""
        return self._written.get(object_uid)
