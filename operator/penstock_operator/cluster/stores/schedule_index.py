"""What follows from all Schedules together, kept up to date by what has changed: there may be ten thousand.

Neighbours: `mirror` says what has changed, the node stores' turn asks, `named_stores` has the rule.
"""

from __future__ import annotations

from collections import Counter

from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import SCHEDULES, TOPOLOGIES, Object, name_of
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
        self._begun: dict[str, tuple[Object, tuple[str, ...]]] = {}
        """Topology -> (the object, the Schedules that it has had)."""
        self.read = 0
        """Schedules that were read so far."""

    def named_stores(self) -> set[str] | None:
        """The ids of all stores that a Schedule names; None while a Schedule of a Topology is missing."""
        self._refresh()
        begun = {}
        for topology in self._mirror.all(TOPOLOGIES):
            name = name_of(topology)
            known = self._begun.get(name)
            if known is None or known[0] is not topology:
                known = (topology, begun_schedules(topology))
            begun[name] = known
        self._begun = begun
        if any(one not in self._stores for _, schedules in begun.values() for one in schedules):
            return None
        return set(self._count)

    def _refresh(self) -> None:
        if self._revision == self._mirror.revision:
            return
        touched = self._mirror.names_touched(SCHEDULES, self._revision, self._stores)
        self._revision = self._mirror.revision
        for name in touched:
            self._take(name, self._mirror.get(SCHEDULES, name))

    def _take(self, name: str, schedule: Object | None) -> None:
        for store in self._stores.pop(name, ()):
            self._count[store] -= 1
            if not self._count[store]:
                del self._count[store]
        if schedule is not None:
            self.read += 1
            named = self._stores[name] = frozenset(stores_named(schedule))
            self._count.update(named)
