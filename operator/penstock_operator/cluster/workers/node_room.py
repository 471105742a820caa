"""Which node a worker may go to: selectors, taints, its store, and room; and in words why none will do.

One `NodeRooms` for one decision: what is placed takes its room there at once. Topologies of a higher priority
(of one priority: older ones) that still wait for room are served first: their pods are placed here too,
before any of ours, and where one of them does not fit, nothing of ours does. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.api.pods.pod_settings import NodeTerm, PodSettings, Toleration
from penstock_operator.cluster.observing.observed import Need, ObservedNode, ObservedStore, Taint
from penstock_operator.cluster.workers.node_terms import meets

_MIB = 1 << 20
_EFFECTS_THAT_REFUSE = ("NoSchedule", "NoExecute")
_OWN_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_CORDON = "node.kubernetes.io/unschedulable"


NOBODY: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Size:
    """What a worker asks of its node."""

    cpu_millis: int
    memory_bytes: int

    def __str__(self) -> str:
        return f"{self.cpu_millis / 1000:g} cores and {self.memory_bytes // _MIB} MiB"


@dataclass(frozen=True, slots=True)
class Free:
    """What a node has left."""

    cpu_millis: int
    memory_bytes: int
    pods: int


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """What of a topology and the configuration says where its workers may be."""

    pod: PodSettings
    node_selector: Mapping[str, str]
    tolerations: Sequence[Toleration]
    durability: str

    def refuses(self, node: ObservedNode, store: ObservedStore | None) -> str:
        """Why a worker may not be on `node`, or "". Room is another question."""
        if not node.ready:
            return "is not ready"
        if misfit := self.misfit(node):
            return misfit
        if store is None:
            return "has no store"
        if self.durability == "Disk" and store.durability != "Disk":
            return "has a store of durability Process"
        if store.closed:
            return f"has a store that takes no workers: {store.closed}"
        return "" if store.ready else f"has no store that is ready{_because(store.message)}"

    def sends_away(self, node: ObservedNode) -> str:
        """Why a worker that is on `node` has to leave it, or "": it is cordoned, or tainted by who is about
        to take it away. A taint that a node's kubelet or cloud sets comes and goes with its state."""
        if not node.schedulable:
            return "is cordoned"
        tolerations = (*self.tolerations, *self.pod.tolerations)
        for taint in node.taints:
            is_final = taint.effect in _EFFECTS_THAT_REFUSE and not taint.key.startswith(_OWN_TAINTS)
            if is_final and not _is_tolerated(taint, tolerations):
                return f"has the taint {taint.key}"
        return ""

    def misfit(self, node: ObservedNode) -> str:
        """Why a worker may not be on `node` even when all is ready there, or ""."""
        if not node.schedulable:
            return "is cordoned"
        selector = {**self.node_selector, **self.pod.node_selector}
        for key, value in selector.items():
            if node.labels.get(key) != value:
                return f"does not have the label {key}={value}"
        tolerations = (*self.tolerations, *self.pod.tolerations)
        for taint in node.taints:
            if taint.effect in _EFFECTS_THAT_REFUSE and not _is_tolerated(taint, tolerations):
                return f"has the taint {taint.key}"
        affinity = self.pod.affinity.node_affinity if self.pod.affinity is not None else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        if required is not None and not any(_holds(term, node) for term in required.node_selector_terms):
            return "does not fit the node affinity"
        return ""


class NodeRooms:
    """The room on all nodes, as it is given away."""

    def __init__(
        self,
        nodes: Sequence[ObservedNode],
        stores: Sequence[ObservedStore],
        rules: PlacementRules,
        workers: Mapping[str, int],
        before_us: Iterable[Need] = (),
        avoided: Collection[str] = (),
        beside: Mapping[str, int] = NOBODY,
        first_server: int = 0,
    ) -> None:
        """`workers` is node -> this topology's workers there, `beside` store id -> those that work on it;
        `before_us` are needs that go first, `avoided` nodes the last choice. Of stores that do equally the
        one with the number `first_server`, or the next above it, is taken: so that topologies do not all
        begin with the same."""
        self._nodes = {node.name: node for node in nodes}
        self._stores: dict[str, list[ObservedStore]] = {}
        for store in sorted(stores, key=lambda one: one.server):
            if not store.is_elsewhere:
                self._stores.setdefault(store.node, []).append(store)
        self._beside = dict(beside)
        self._first_server = first_server
        self._rules = rules
        self._workers = {node.name: workers.get(node.name, 0) for node in nodes}
        self._cpu_free = {n.name: n.cpu_free_millis for n in nodes}
        self._memory_free = {n.name: n.memory_free_bytes for n in nodes}
        self._pods_free = {n.name: n.pods_allocatable - n.pods for n in nodes}
        self._avoided = frozenset(avoided)
        self._first = ""
        self._served: list[str] = []
        for need in before_us:
            self._serve(need)

    def open_nodes(self) -> list[str]:
        """Nodes that a worker may be on, room or not."""
        return [name for name in self._nodes if not self.refusal(name)]

    def refusal(self, name: str) -> str:
        """Why no worker may be on the node; "" when one may."""
        node = self._nodes.get(name)
        if node is None:
            return "is gone"
        stores = self._stores.get(name)
        if not stores:
            return self._rules.refuses(node, None)
        refusals = [self._rules.refuses(node, store) for store in stores]
        return "" if "" in refusals else refusals[0]

    def take_server(self, name: str, preferred: int | None = None) -> int:
        """Which of a node's store servers a new worker there is to work on: `preferred` if that will do, else
        the one that the fewest of the topology's workers are on."""
        node = self._nodes[name]
        stores = self._stores.get(name, [])
        able = [store.server for store in stores if not self._rules.refuses(node, store)]
        if not able:
            return 0
        ids = {store.server: store.id for store in stores}
        if preferred in able:
            taken = preferred
        else:
            first = self._first_server % len(ids)
            taken = min(able, key=lambda one: (self._count(ids[one]), one < first, one))
        self._beside[ids[taken]] = self._count(ids[taken]) + 1
        return taken

    def _count(self, store: str) -> int:
        return self._beside.get(store, 0)

    def takes(self, store: ObservedStore) -> bool:
        """Whether shards may go to this one."""
        node = self._nodes.get(store.node)
        return node is not None and not store.is_elsewhere and not self._rules.refuses(node, store)

    @property
    def is_reserved(self) -> bool:
        """Whether what room there is belongs to a topology that goes first."""
        return bool(self._first)

    def nodes_without_ready_store(self) -> list[str]:
        """Nodes that would do but for their store, which does not exist yet or is not ready."""
        return [
            name
            for name, node in self._nodes.items()
            if not (stores := self._stores.get(name, ()))
            or any(not store.ready and not store.finds_no_place for store in stores)
            or not any(store.ready for store in stores)
            if not self._rules.misfit(node) and node.ready
        ]

    def has_room(self, size: Size) -> bool:
        return self._choose(size, "", self.open_nodes()) is not None

    def has_room_beside(self, size: Size, node: str) -> bool:
        """Whether a worker would have room on another node than `node`."""
        return self._choose(size, "", [name for name in self.open_nodes() if name != node]) is not None

    def has_room_instead(self, size: Size, node: str, freed: Size) -> bool:
        """Whether a worker would have room on `node` once another one, of size `freed`, has left it."""
        return (
            not self._first
            and not self.refusal(node)
            and self._cpu_free[node] + freed.cpu_millis >= size.cpu_millis
            and self._memory_free[node] + freed.memory_bytes >= size.memory_bytes
        )

    def place(self, size: Size, preferred: str = "") -> ObservedNode | None:
        """Take room for one worker: on `preferred` if that will do, else where the topology has the fewest
        workers, and of those where most is free. None when nowhere is room."""
        name = self._choose(size, preferred, self.open_nodes())
        if name is None:
            return None
        self._take(name, size)
        self._workers[name] += 1
        return self._nodes[name]

    def cpu_free_millis(self, node: str) -> int:
        """0 where room is kept for a topology that goes first."""
        return 0 if self._first else self._cpu_free.get(node, 0)

    def spark_nodes(self) -> list[str]:
        """Nodes that a Spark worker may be on, room or not: it works on no store of theirs."""
        return [name for name, node in self._nodes.items() if node.ready and not self._rules.misfit(node)]

    def has_room_on(self, node: str, size: Size) -> bool:
        """Whether a Spark worker would have room there. A node that did not take a pod lately has none."""
        return not self._first and not self._spark_refusal(node) and self._fits(node, size)

    def take_on(self, node: str, size: Size) -> ObservedNode | None:
        """Take that room for a Spark worker; None when there is none."""
        if not self.has_room_on(node, size):
            return None
        self._take(node, size)
        return self._nodes[node]

    def why_not_beside(self, node: str, size: Size) -> str:
        """In words and figures, why no other node than `node` takes a Spark worker."""
        if self._first:
            return f"Topology {self._first} goes first: it waits for room too"
        others = sorted(self._nodes.keys() - {node})
        parts = [f"node {name} {self._spark_refusal(name) or self._lack(name, size)}" for name in others]
        return "; ".join(parts) or "there is no other node"

    def _spark_refusal(self, name: str) -> str:
        node = self._nodes.get(name)
        if node is None or not node.ready:
            return "is not there"
        return self._rules.misfit(node) or ("did not take a pod lately" if name in self._avoided else "")

    def left(self) -> list[Free]:
        """What is left on each node that a worker may be on; nothing where it is kept for who goes first."""
        return self._left_on(self.open_nodes())

    def left_beside(self, node: str) -> list[Free]:
        """The same on each other node that a Spark worker may be on."""
        return self._left_on(n for n in self._nodes if n != node and not self._spark_refusal(n))

    def _left_on(self, names: Iterable[str]) -> list[Free]:
        if self._first:
            return []
        return [Free(self._cpu_free[n], self._memory_free[n], self._pods_free[n]) for n in names]

    def why_none(self, size: Size) -> str:
        """In words and figures, why `place` finds no node for a worker of `size`."""
        if not self._nodes:
            return "there are no nodes"
        if self._first:
            return f"Topology {self._first} goes first: it waits for room too"
        parts = []
        for name in sorted(self._nodes):
            refusal = self.refusal(name)
            parts.append(f"node {name} {refusal or self._lack(name, size)}")
        kept = f" (room is kept for {', '.join(self._served)}, which goes first)" if self._served else ""
        return f"a worker asks for {size}: {'; '.join(parts)}{kept}"

    def why_closed(self) -> str:
        """In words, why no node is open to a worker."""
        parts = [f"node {name} {refusal}" for name in sorted(self._nodes) if (refusal := self.refusal(name))]
        return f"no node can take a worker: {'; '.join(parts)}" if parts else "there are no nodes"

    def _lack(self, name: str, size: Size) -> str:
        lacks = []
        node = self._nodes[name]
        if (free := self._cpu_free[name]) < size.cpu_millis:
            of = f"{node.cpu_allocatable_millis / 1000:g}"
            lacks.append(f"Insufficient cpu ({max(0, free) / 1000:g} of {of} cores free)")
        if (free := self._memory_free[name]) < size.memory_bytes:
            of = f"{node.memory_allocatable_bytes // _MIB}"
            lacks.append(f"Insufficient memory ({max(0, free) // _MIB} of {of} MiB free)")
        if self._pods_free[name] < 1:
            lacks.append(f"Too many pods ({node.pods_allocatable})")
        return f"has {' and '.join(lacks)}" if lacks else "has room"

    def _choose(self, size: Size, preferred: str, names: Collection[str]) -> str | None:
        able = [name for name in names if self._fits(name, size)] if not self._first else []
        if preferred in able and preferred not in self._avoided:
            return preferred
        return min(able, key=self._rank, default=None)

    def _rank(self, name: str) -> tuple[bool, int, int, str]:
        return name in self._avoided, self._workers[name], -self._cpu_free[name], name

    def _fits(self, name: str, size: Size) -> bool:
        return (
            self._cpu_free[name] >= size.cpu_millis
            and self._memory_free[name] >= size.memory_bytes
            and self._pods_free[name] >= 1
        )

    def _take(self, name: str, size: Size) -> None:
        self._cpu_free[name] -= size.cpu_millis
        self._memory_free[name] -= size.memory_bytes
        self._pods_free[name] -= 1

    def _serve(self, need: Need) -> None:
        """Room for one that goes first. What could not even fit an empty node keeps nobody waiting."""
        size = Size(need.cpu_millis, need.memory_bytes)
        healthy = [node for node in self._nodes.values() if node.ready and node.schedulable]
        could = any(
            node.cpu_allocatable_millis >= size.cpu_millis
            and node.memory_allocatable_bytes >= size.memory_bytes
            for node in healthy
        )
        if could:
            self._served.append(need.topology)
        for _ in range(need.pods if could else 0):
            able = [node.name for node in healthy if self._fits(node.name, size)]
            if not able:
                self._first = need.topology
                return
            self._take(max(able, key=lambda name: (self._cpu_free[name], name)), size)


def served_before(needs: Iterable[Need], topology: str, priority: int, created: str) -> list[Need]:
    """The needs that go before a topology's own, the first first."""
    ours = (-priority, created, topology)
    keys = [((-need.priority, need.created, need.topology), need) for need in needs]
    return [need for key, need in sorted(keys, key=lambda pair: pair[0]) if key < ours]


def _because(message: str) -> str:
    return f" ({message})" if message else ""


def _is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(
        (toleration.key is None or toleration.key == taint.key)
        and (toleration.effect is None or toleration.effect == taint.effect)
        and (toleration.operator == "Exists" or (toleration.value or "") == taint.value)
        for toleration in tolerations
    )


def _holds(term: NodeTerm, node: ObservedNode) -> bool:
    fields = {"metadata.name": node.name}
    requirements = [
        *((r, node.labels) for r in term.match_expressions),
        *((r, fields) for r in term.match_fields),
    ]
    return bool(requirements) and all(
        meets(one.operator, one.values, labels.get(one.key)) for one, labels in requirements
    )
