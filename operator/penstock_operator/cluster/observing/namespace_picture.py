"""What a namespace's mirror shows of its topologies: what they mean, their pods, Schedules and code.

What was worked out from an object is kept as long as its version stands. Neighbours: `mirror` has the
objects, `observe` reads one, `cluster_picture` has what all topologies share, `reconcile` asks at each turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from penstock.manifest.faults import InvalidManifest
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    NODES,
    PODS,
    SCHEDULES,
    ClusterApi,
    Object,
    name_of,
    uid_of,
    version_of,
)
from penstock_operator.cluster.observing.observe import (
    is_spark_worker,
    is_worker,
    observe_pod,
    observe_schedule,
    observe_topology,
)
from penstock_operator.cluster.observing.observed import ObservedPod, ObservedSchedule, ObservedTopology

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class TopologyLook:
    """What the last look at a topology made of its documents. It may be lost."""

    parsed: ObservedTopology | None = None
    code: tuple[str, Mapping[str, str]] | None = None
    """(resourceVersion and name, data) of the ConfigMap with the code."""


class NamespacePicture:
    """Of the namespace that `cluster` and `mirror` are of. `nodes` is the mirror that has the nodes."""

    def __init__(self, cluster: ClusterApi, mirror: Mirror, nodes: Mirror) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._nodes = nodes
        self._schedules: dict[str, ObservedSchedule] = {}
        self._pods: dict[str, tuple[Object, ObservedPod]] = {}
        """Name -> (object, what follows), of those that are bound."""

    def parse(self, look: TopologyLook, manifest: Object) -> ObservedTopology:
        """The manifest's meaning; worked out again when its generation is another."""
        known = look.parsed
        metadata = manifest["metadata"]
        if known is None or (known.uid, known.generation) != (
            uid_of(manifest),
            metadata.get("generation", 0),
        ):
            look.parsed = known = observe_topology(manifest)
        return replace(known, manifest=manifest, is_deleting="deletionTimestamp" in metadata)

    async def code(self, look: TopologyLook) -> Mapping[str, str] | None:
        """The data of the ConfigMap that the topology names; read when its version is another."""
        name = code_map(look)
        held = self._mirror.get(CONFIG_MAPS, name) if name else None
        if not name or held is None:
            return None
        version = f"{version_of(held)} {name}"
        if look.code is None or look.code[0] != version:
            now = await self._cluster.get(CONFIG_MAPS, name)
            if now is None:
                return None
            look.code = (f"{version_of(now)} {name}", now.get("data") or {})
        return look.code[1]

    def workers_of(self, topology: str) -> tuple[ObservedPod, ...]:
        return self._pods_of(topology, is_worker)

    def spark_workers_of(self, topology: str) -> tuple[ObservedPod, ...]:
        return self._pods_of(topology, is_spark_worker)

    def _pods_of(self, topology: str, is_one: Callable[[Object], bool]) -> tuple[ObservedPod, ...]:
        pods = (pod for pod in self._mirror.of(PODS, topology) if is_one(pod))
        return tuple(self._pod(pod) for pod in pods)

    def _pod(self, pod: Object) -> ObservedPod:
        name = name_of(pod)
        known = self._pods.get(name)
        if known is None or known[0] is not pod:
            nodes = [name_of(node) for node in self._nodes.all(NODES)]
            seen = observe_pod(pod, nodes)
            if not seen.is_bound:
                return seen  # which node its label means may be another the next time
            if len(self._pods) > 2 * self._mirror.count(PODS):
                self._pods.clear()
            known = self._pods[name] = (pod, seen)
        return known[1]

    def schedules_but_of(self, topologies: Collection[str]) -> tuple[ObservedSchedule, ...]:
        """Those of no such topology, of which each can be read."""
        found = []
        for name in sorted(self._mirror.owners(SCHEDULES) - set(topologies)):
            for one in self._mirror.of(SCHEDULES, name):
                try:
                    found.append(self._schedule(one))
                except InvalidManifest as fault:
                    _LOG.debug("Schedule %s cannot be read: %s", name_of(one), fault)
        return tuple(found)

    def schedules_of(self, topology: str) -> tuple[ObservedSchedule, ...]:
        return tuple(self._schedule(one) for one in self._mirror.of(SCHEDULES, topology))

    def topology_uids(self) -> set[str]:
        """Whose states the Schedules name; what was read of those that are gone is forgotten."""
        there = {name_of(one): one for one in self._mirror.all(SCHEDULES)}
        for name in self._schedules.keys() - there.keys():
            del self._schedules[name]
        return {str((one.get("spec") or {}).get("topologyUid", "")) for one in there.values()}

    def _schedule(self, thing: Object) -> ObservedSchedule:
        """To read one of 4 096 shards takes a while, and it is looked at often."""
        name = name_of(thing)
        known = self._schedules.get(name)
        if known is None or (known.uid, known.resource_version) != (uid_of(thing), version_of(thing)):
            known = self._schedules[name] = observe_schedule(thing)
        return known


def code_map(look: TopologyLook) -> str | None:
    """The ConfigMap that its topology's code comes from."""
    topology = look.parsed.topology if look.parsed is not None else None
    code = topology.spec.code if topology is not None else None
    return code.config_map if code is not None else None
