"""The operator's own figures, as Prometheus reads them at /metrics.

Figures of topologies come from workers and agents; here stands what the operator itself does, and what it
alone knows of topologies. Neighbours: `reconcile` and `apply` count, `sla_metrics` has the SLAs, `health`
serves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from penstock_operator.cluster.carrying_out.sla_metrics import SlaMetrics
from penstock_operator.cluster.observing.observed import TopologyKey

PHASES = ("Pending", "Starting", "Running", "Paused", "Draining", "Finished", "Failed")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class OperatorMetrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._turns = Histogram(
            "penstock_operator_reconcile_seconds",
            "How long a turn took, from looking to the last write",
            ["loop"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._decisions = Counter(
            "penstock_operator_decisions",
            "Looks at Topologies that were followed by a decision: the others found all as it was",
            registry=self._registry,
        )
        self._taken_up = Histogram(
            "penstock_operator_taken_up_seconds",
            "From when a change came in to the end of the turn that took it up",
            ["loop"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._errors = Counter(
            "penstock_operator_errors",
            "Turns that ended in an error: retry, permanent, skip or bug",
            ["loop", "kind"],
            registry=self._registry,
        )
        self._actions = Counter(
            "penstock_operator_actions",
            "What was done, by how it ended: done, exists, changed, gone, refused",
            ["action", "outcome"],
            registry=self._registry,
        )
        self._unread = Counter(
            "penstock_operator_store_readings_missing",
            "Looks into a node store that brought no answer",
            ["store"],
            registry=self._registry,
        )
        self._leader = Gauge(
            "penstock_operator_leader", "1 in the replica that leads, else 0", registry=self._registry
        )
        self._term = Gauge(
            "penstock_operator_term", "The Lease's term of this leader, 0 before it", registry=self._registry
        )
        self._topologies = Gauge(
            "penstock_operator_topologies", "Topologies by phase", ["phase"], registry=self._registry
        )
        self._held_by_quota = Gauge(
            "penstock_operator_held_by_quota",
            "1 for each topology whose sources stop because it holds more than its storeMemory",
            ["topology_namespace", "topology"],
            registry=self._registry,
        )
        self._held: set[TopologyKey] = set()
        self._served = Gauge(
            "penstock_operator_namespace_served",
            "1 for each further namespace whose Topologies are carried out, 0 while the operator may not",
            ["topology_namespace"],
            registry=self._registry,
        )
        self.slas = SlaMetrics()
        self._registry.register(self.slas)
        self._resting = Gauge(
            "penstock_operator_topologies_resting",
            "Topologies that nothing is to be done for while all is as it was",
            registry=self._registry,
        )
        self._lease_late = Gauge(
            "penstock_operator_lease_renewals_late",
            "Renewals of the Lease that came more than a second late",
            registry=self._registry,
        )

    def leads(self, term: int) -> None:
        self._leader.set(1)
        self._term.set(term)

    def turned(self, loop: str, seconds: float) -> None:
        self._turns.labels(loop).observe(seconds)

    def decided(self) -> None:
        """A look at a Topology was followed by a decision: something had changed, or it does not rest."""
        self._decisions.inc()

    def taken_up(self, loop: str, seconds: float) -> None:
        self._taken_up.labels(loop).observe(seconds)

    def erred(self, loop: str, kind: str) -> None:
        self._errors.labels(loop, kind).inc()

    def acted(self, action: str, outcome: str) -> None:
        self._actions.labels(action, outcome).inc()

    def unread(self, store: str) -> None:
        self._unread.labels(store).inc()

    def counts_topologies(self, phases: Callable[[], Collection[str]], resting: Callable[[], int]) -> None:
        """Where to ask for the phases of all Topologies, and how many rest, when somebody reads that."""
        for phase in PHASES:
            self._topologies.labels(phase).set_function(partial(_count, phases, phase))
        self._resting.set_function(resting)

    def counts_lease(self, late: Callable[[], int]) -> None:
        """Where to ask how many renewals of the Lease came late."""
        self._lease_late.set_function(late)

    def serves(self, namespace: str, *, is_open: bool) -> None:
        """Whether the operator may work in a further namespace now."""
        self._served.labels(namespace).set(is_open)

    def held_by_quota(self, topology: TopologyKey, *, is_held: bool) -> None:
        """Whether one is now; one that is gone is not."""
        if is_held:
            self._held_by_quota.labels(*topology).set(1)
        elif topology in self._held:
            self._held_by_quota.remove(*topology)
        (self._held.add if is_held else self._held.discard)(topology)

    def text(self) -> bytes:
        return generate_latest(self._registry)


def _count(phases: Callable[[], Collection[str]], phase: str) -> int:
    return sum(one == phase for one in phases())
