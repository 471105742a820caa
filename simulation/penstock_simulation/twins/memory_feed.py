"""The feed's twin in memory: Schedule objects in a dictionary, an API server that can be put out of reach.

Tests write objects with `put` and `remove` and read back what agents reported. Neighbours: `schedule_feed` is
the port, `kubernetes_feed` the real adapter.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

from penstock.schedule.record import AppliedPlace
from penstock_operator.agent.applied_status import with_applied
from penstock_operator.agent.schedule_feed import FeedAway, ScheduleCache, SeenSchedule, Snapshot


class MemoryApi:
    """The objects of one namespace, and the feeds that watch them. Belongs to one event loop."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.topologies: list[dict[str, Any]] = []
        """Topology objects that are there."""
        self.is_away = False
        self._watches: set[asyncio.Event] = set()
        self._made = 0

    def put(self, name: str, spec: dict[str, Any], labels: dict[str, str] | None = None) -> None:
        """Create an object, or replace its spec."""
        old = self.objects.get(name)
        if old is None:
            self._made += 1
            metadata = {"name": name, "uid": f"object-{self._made}", "labels": labels or {}}
            self.objects[name] = {"metadata": metadata, "spec": spec, "status": {}}
        else:
            self.objects[name] = {**old, "spec": spec}
        self.tell()

    def remove(self, name: str) -> None:
        del self.objects[name]
        self.tell()

    def applied(self, name: str) -> dict[str, dict[str, Any]]:
        """Node -> entry of the object's status."""
        return {entry["node"]: entry for entry in self.objects[name]["status"].get("applied", ())}

    def tell(self) -> None:
        for watch in self._watches:
            watch.set()

    def watch(self) -> asyncio.Event:
        event = asyncio.Event()
        self._watches.add(event)
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        self._watches.discard(event)


class MemoryFeed:
    """Keeps the port `ScheduleFeed` over a `MemoryApi`."""

    def __init__(self, api: MemoryApi) -> None:
        self._api = api
        self._cache = ScheduleCache()
        self._is_asked = False
        self._woken: asyncio.Event | None = None

    async def run(self, changed: Callable[[Snapshot], None]) -> None:
        woken = self._woken = self._api.watch()
        try:
            while True:
                if not self._api.is_away:
                    objects = copy.deepcopy(list(self._api.objects.values()))
                    topologies = copy.deepcopy(self._api.topologies) if self._is_asked else None
                    self._is_asked = False
                    changed(self._cache.listed(objects, topologies))
                await woken.wait()
                woken.clear()
        finally:
            self._api.unwatch(woken)

    async def report(self, seen: SeenSchedule, applied: AppliedPlace) -> None:
        if self._api.is_away:
            raise FeedAway("the API is away")
        item = self._api.objects.get(seen.name)
        if item is not None and item["metadata"]["uid"] == seen.uid:
            item["status"] = with_applied(item["status"], applied)
            self._api.tell()

    def list_again(self) -> None:
        self._is_asked = True
        if self._woken is not None:
            self._woken.set()

    async def close(self) -> None:
        """Nothing to close."""
