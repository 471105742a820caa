"""The API server in the simulation: Schedule objects, with what agents reported, and feeds that see the past.

An agent's feed tells its product's `ScheduleCache` of lists and of single objects. While it is rough it is
late, tells things twice and out of order, lists what was true a while ago, or nothing at all, once. A report
may be refused, written without an answer, or written long after its agent gave it up. Neighbours:
`scheduling` writes, `hosted_agent` listens.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.api.schedule_object import to_spec
from penstock.schedule.record import AppliedPlace, OperatorSchedule
from penstock_operator.agent.applied_status import with_applied
from penstock_operator.agent.schedule_feed import FeedAway, ScheduleCache, SeenSchedule, Snapshot
from penstock_simulation.protocol.node import TOPOLOGY_UID

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FeedFaults:
    """Chances, each 0..1: `behind` per look of a feed, `refused`, `unanswered` and `late` per report."""

    behind: float = 0.0
    refused: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0


NO_FAULTS = FeedFaults()
ROUGH = FeedFaults(behind=0.5, refused=0.05, unanswered=0.05, late=0.05)
_EMPTY_LIST = 0.03
"""How often a list lacks everything, of those that are behind; not twice in a row: two say that it is so."""
_LISTS_WHEN_CALM = 2


class ScheduleApi:
    """`changed` is called at each change of an object."""

    def __init__(self, rng: random.Random, changed: Callable[[], None]) -> None:
        self.rng = rng
        self.faults = NO_FAULTS
        self.history: list[Item] = []
        """Every state that any object ever had, in order; the first ones are one of each."""
        self.first = 0
        """So many there are at least: one of each object."""
        self._objects: dict[str, Item] = {}
        self._changed = changed
        self._late: list[tuple[str, AppliedPlace]] = []

    def put(self, schedule: OperatorSchedule) -> None:
        """The operator writes a schedule."""
        name = f"t-{schedule.operator}"
        old = self._objects.get(name)
        spec = to_spec(schedule, "t", TOPOLOGY_UID, durability="Process")
        metadata = {"name": name, "uid": f"object-{schedule.operator}", "labels": {}}
        self.first += old is None
        self._keep({"metadata": metadata, "status": {}, **(old or {}), "spec": spec})

    def applied(self, operator: str) -> dict[str, int]:
        """Store id -> version, as agents reported."""
        item = self._objects.get(f"t-{operator}", {})
        entries = item.get("status", {}).get("applied", ())
        return {entry["node"]: entry["version"] for entry in entries}

    def entries(self, operator: str) -> list[dict[str, Any]]:
        """What the object's status has of each node."""
        return list(self._objects[f"t-{operator}"]["status"].get("applied", ()))

    def objects(self, upto: int | None = None) -> list[Item]:
        """All, as they were when `upto` states had been; all as they are for None."""
        if upto is None:
            return list(self._objects.values())
        return list({item["metadata"]["name"]: item for item in self.history[:upto]}.values())

    def report(self, seen: SeenSchedule, applied: AppliedPlace) -> None:
        """An agent writes its node's entry. Raises FeedAway, whether it is written or not."""
        draw = self.rng.random()
        faults = self.faults
        if draw < faults.refused:
            raise FeedAway("refused")
        if draw < faults.refused + faults.late:
            self._late.append((seen.name, applied))
            raise FeedAway("on its way")
        self._write(seen.name, applied)
        if draw > 1.0 - faults.unanswered:
            raise FeedAway("no answer")

    def late_report_arrives(self) -> None:
        """One that an agent gave up is written now, over whatever was written since."""
        if self._late:
            self._write(*self._late.pop(int(self.rng.random() * len(self._late))))

    def calm_down(self) -> None:
        """What is on its way arrives; nothing fails any more."""
        while self._late:
            self.late_report_arrives()
        self.faults = NO_FAULTS

    def _write(self, name: str, applied: AppliedPlace) -> None:
        item = self._objects[name]
        self._keep({**item, "status": with_applied(item["status"], applied)})

    def _keep(self, item: Item) -> None:
        self._objects[item["metadata"]["name"]] = item
        self.history.append(item)
        self._changed()


class SimulatedFeed:
    """One agent's view of the API server."""

    def __init__(self, api: ScheduleApi, cache: ScheduleCache) -> None:
        self._api = api
        self._cache = cache
        self._seen = 0
        """So many states of the history were told, or passed over by a list."""
        self._must_list = True
        self._listed_nothing = False
        self._lists_when_calm = 0

    @property
    def has_told_all(self) -> bool:
        """Whether the last word was told: that may be an old one."""
        return not self.is_due and self._lists_when_calm >= _LISTS_WHEN_CALM

    @property
    def is_due(self) -> bool:
        """Whether there is something to tell."""
        return self._must_list or self._seen < len(self._api.history)

    def list_again(self) -> None:
        """Unless two lists were made since nothing fails any more: what comes then is the last word."""
        self._must_list = self._lists_when_calm < _LISTS_WHEN_CALM

    def step(self) -> Snapshot | None:
        """Tell one thing; None when it does not come through now."""
        api, rng = self._api, self._api.rng
        is_behind = rng.random() < api.faults.behind
        if self._must_list or rng.random() < 0.1:
            return self._list(is_behind=is_behind)
        if self._seen == len(api.history):
            return None
        if not is_behind:
            self._seen += 1
            told = self._cache.changed(api.history[self._seen - 1])
            return told if rng.random() < 0.7 else self._tell_any()
        if rng.random() < 0.5:
            return None
        return self._tell_any()

    def _tell_any(self) -> Snapshot:
        """A state of an object again, mostly one of long ago, or ahead of its time."""
        history = self._api.history
        return self._cache.changed(history[int(self._api.rng.random() ** 3 * len(history))])

    def _list(self, *, is_behind: bool) -> Snapshot | None:
        api, rng = self._api, self._api.rng
        self._must_list = False
        if not is_behind:
            self._seen = len(api.history)
            self._listed_nothing = False
            listed = self._cache.listed(api.objects(), ())
            if api.faults is not NO_FAULTS:
                return listed
            self._lists_when_calm += 1
            self.list_again()
            return listed if self._must_list else self._tell_any()
        if self._listed_nothing:
            self._must_list = True
            return None
        if rng.random() < _EMPTY_LIST:
            self._listed_nothing = self._must_list = True
            return self._cache.listed([], ())
        first = api.first
        self._seen = first + int(rng.random() * (len(api.history) - first + 1))
        return self._cache.listed(api.objects(self._seen), ())
