"""What follows from all Schedules together, kept up to date by what has changed: there may be ten thousand.

Neighbours: `mirror` says what has changed, the node stores' turn asks, `named_stores` has the rule.
"""

from __future__ import annotations

from collections import Counter

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import SCHEDULES, TOPOLOGIES, Object
from penstock_operator.cluster.stores.named_stores import begun_schedules, stores_named


class ScheduleIndex:
    """Of the Schedules in `mirror`. Belongs to one event loop."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._revision = -1
        self._stores: dict[str, frozenset[str]] = {}
        """Schedule -> the stores that it names."""
        self._count: Counter[str] = Counter()
        """Store -> how many Schedules name it."""
        self._begun: dict[str, tuple[str, ...]] = {}
        """Topology -> the Schedules that it has had."""
        self._wanted: set[str] = set()
        """All of those."""
        self._missing: set[str] = set()
        """Those of them that are not there."""
        self.read = 0
        """Schedules that were read so far."""

    def named_stores(self) -> set[str] | None:
        """The ids of all stores that a Schedule names; None while a Schedule of a Topology is missing."""
        self._refresh()
        return None if self._missing else set(self._count)

    def _refresh(self) -> None:
        if self._revision == self._mirror.revision:
            return
        schedules = self._mirror.names_touched(SCHEDULES, self._revision, self._stores)
        topologies = self._mirror.names_touched(TOPOLOGIES, self._revision, self._begun)
        self._revision = self._mirror.revision
        for name in schedules:
            self._take(name, self._mirror.get(SCHEDULES, name))
        for name in topologies:
            self._take_topology(name, self._mirror.get(TOPOLOGIES, name))

    def _take(self, name: str, schedule: Object | None) -> None:
        for store in self._stores.pop(name, ()):
            self._count[store] -= 1
            if not self._count[store]:
                del self._count[store]
        if schedule is not None:
            self.read += 1
            named = self._stores[name] = frozenset(stores_named(schedule))
            self._count.update(named)
        if name in self._wanted and schedule is None:
            self._missing.add(name)
        else:
            self._missing.discard(name)

    def _take_topology(self, name: str, topology: Object | None) -> None:
        before = self._begun.pop(name, ())
        self._wanted.difference_update(before)
        self._missing.difference_update(before)
        if topology is not None:
            begun = self._begun[name] = begun_schedules(topology)
            self._wanted.update(begun)
            self._missing.update(one for one in begun if one not in self._stores)
