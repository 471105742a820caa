"""LatencySLA objects -> what is to be kept of a topology, or what is wrong with them in a sentence.

Pure. Neighbours: `penstock.api.sla_faults` knows what fits together, `sla.keeper` keeps the promises.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.api.latency_sla import LatencySLA
from penstock.api.load import read_latency_sla
from penstock.api.sla_faults import sla_faults
from penstock.manifest.faults import InvalidManifest, nearest
from penstock.sla.promise import Promise, promise_of
from penstock_operator.cluster.kubernetes_api.port import Object, name_of, uid_of
from penstock_operator.cluster.observing.observed import ObservedTopology


@dataclass(frozen=True, slots=True)
class ObservedSla:
    """A LatencySLA as the API server has it. `faults` says why `sla` is None, a sentence each."""

    name: str
    uid: str
    generation: int
    created: str
    manifest: Mapping[str, Any]
    sla: LatencySLA | None = None
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgedSla:
    """With `promise` None, `reason` is a CamelCase word and `message` a sentence that say why it cannot be
    kept."""

    seen: ObservedSla
    promise: Promise | None = None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class AskedOfTopology:
    """The LatencySLAs about one topology, by name. `topology` is None where there is none of that name;
    `names` are those that there are."""

    topology: ObservedTopology | None
    names: tuple[str, ...]
    slas: tuple[ObservedSla, ...]

    def judged(self) -> tuple[JudgedSla, ...]:
        """Which of them are to be kept."""
        return judge_slas(self.slas, self.topology, self.names)


def topology_of(manifest: Object) -> str:
    """The name of the topology that a LatencySLA is about."""
    return str((manifest.get("spec") or {}).get("topology", ""))


def observe_sla(manifest: Object) -> ObservedSla:
    """What a LatencySLA object means; faults instead, where it means nothing."""
    metadata = manifest["metadata"]
    created = str(metadata.get("creationTimestamp", ""))
    head = (name_of(manifest), uid_of(manifest), int(metadata.get("generation", 0)), created, manifest)
    try:
        return ObservedSla(*head, sla=read_latency_sla(manifest))
    except InvalidManifest as invalid:
        return ObservedSla(*head, faults=tuple(str(fault) for fault in invalid.faults))


def judge_slas(
    slas: Sequence[ObservedSla], topology: ObservedTopology | None, names: Collection[str] = ()
) -> tuple[JudgedSla, ...]:
    """Each of a topology's SLAs, the oldest first: of two on one operator the older one is kept. `topology`
    is None where there is none of that name; `names` are those that there are."""
    ordered = sorted(slas, key=lambda one: (one.created, one.name))
    readable = [one.sla for one in ordered if one.sla is not None]
    wrong: dict[str, list[str]] = {}
    if topology is not None and topology.topology is not None:
        for fault in sla_faults([topology.topology], readable, is_whole=True):
            owner, _, path = fault.path.removeprefix("LatencySLA ").partition(":")
            message = f"{path.strip()}: {fault.message}" if path else fault.message
            wrong.setdefault(owner, []).append(message)
    return tuple(_judged(one, topology, names, wrong.get(one.name, ())) for one in ordered)


def _judged(
    seen: ObservedSla, topology: ObservedTopology | None, names: Collection[str], wrong: Sequence[str]
) -> JudgedSla:
    if seen.sla is None:
        return JudgedSla(seen, None, "Invalid", "; ".join(seen.faults))
    wanted = seen.sla.spec.topology
    if topology is None:
        message = f"there is no Topology {wanted!r} in this namespace{nearest(wanted, list(names))}"
        return JudgedSla(seen, None, "TopologyMissing", message)
    if topology.topology is None or topology.plan is None:
        message = f"Topology {wanted} cannot be read; see its conditions"
        return JudgedSla(seen, None, "TopologyInvalid", message)
    if wrong:
        return JudgedSla(seen, None, "Invalid", "; ".join(wrong))
    return JudgedSla(seen, promise_of(seen.sla, topology.topology, topology.plan))
