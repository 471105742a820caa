"""The API server's Schedules as a simulated agent learns of them: late, one at a time, old ones too, twice.

The objects and what is written into their status are the feed's twin's (`twins.memory_feed`), the cache that
makes snapshots of them is the product's. What an object once was may be told again: a watch that goes on at
another server of the API sees the past. Neighbour: `hosted_agent` has such a feed.
"""

from __future__ import annotations

import random
from typing import Any

from penstock.api.schedule_object import to_spec
from penstock.schedule.record import AppliedPlace, OperatorSchedule
from penstock_operator.agent.schedule_feed import FeedAway, Object, ScheduleCache, SeenSchedule, Snapshot
from penstock_simulation.protocol.node import TOPOLOGY_UID
from penstock_simulation.twins.memory_feed import MemoryApi

TOPOLOGY = "simulated"


def object_name(operator: str) -> str:
    """Of its Schedule."""
    return f"{TOPOLOGY}-{operator}"


class ScheduleApi(MemoryApi):
    """The objects of the run. `old` keeps all that ever were, for who is told of them late."""

    def __init__(self) -> None:
        super().__init__()
        self.old: list[Object] = []
        self.is_rough = True

    def write(self, schedule: OperatorSchedule) -> None:
        """The operator writes the next version."""
        name = object_name(schedule.operator)
        self.put(name, to_spec(schedule, TOPOLOGY, TOPOLOGY_UID))
        self.old.append(self.objects[name])


class ScheduleFeed:
    """One agent's."""

    def __init__(self, api: ScheduleApi, rng: random.Random, cache: ScheduleCache) -> None:
        self._api = api
        self._rng = rng
        self._cache = cache
        self._told: dict[str, Object] = {}
        self._woken = api.watch()
        self._woken.set()
        self._must_list = True

    @property
    def has_news(self) -> bool:
        return self._woken.is_set()

    def list_again(self) -> None:
        """Make a complete list next."""
        self._must_list = True
        self._woken.set()

    def next(self) -> Snapshot:
        """What is told now: a complete list, or one object that has changed."""
        if self._must_list:
            return self._list()
        objects = self._api.objects
        news = [item for name, item in objects.items() if self._told.get(name) is not item]
        if self._api.is_rough and self._rng.random() < 0.15:
            old = self._api.old[int(self._rng.random() * len(self._api.old))]
            return self._tell(old)
        if len(news) <= 1:
            self._woken.clear()
        item = news[int(self._rng.random() * len(news))] if news else next(iter(objects.values()))
        return self._tell(item)

    def _list(self) -> Snapshot:
        self._must_list = False
        self._woken.clear()
        self._told = dict(self._api.objects)
        return self._cache.listed(list(self._told.values()))

    def _tell(self, item: Any) -> Snapshot:
        self._told[item["metadata"]["name"]] = item
        return self._cache.changed(item)

    def report(self, seen: SeenSchedule, applied: AppliedPlace) -> None:
        """Write a node's entry; it, or the answer, may get lost. Raises FeedAway."""
        draw = self._rng.random() if self._api.is_rough else 1.0
        if draw < 0.05:
            raise FeedAway("the report got lost")
        self._api.report(seen, applied)
        if draw < 0.1:
            raise FeedAway("the answer got lost")

    def close(self) -> None:
        self._api.unwatch(self._woken)
