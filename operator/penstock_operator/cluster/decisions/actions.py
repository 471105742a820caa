"""What `decide` answers: actions as values, in the order to carry them out, status, events, memory.

Each action may be carried out twice, and dropped: the next decision is made from what is then seen. The first
that is refused (changed, gone, not allowed) ends the turn: what follows it may rest on it.
`Applier` (the runtime) carries them out; builders in `manifests` made their documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.schedule.record import OperatorSchedule
from penstock_operator.cluster.decisions.remembered import Memory
from penstock_operator.cluster.decisions.sla_leeway import SlaLeeway
from penstock_operator.cluster.observing.observed import Need
from penstock_operator.cluster.workers.schedule_figures import ScheduleFigures

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApplyConfigMap:
    """Server-side apply."""

    name: str
    document: Document


@dataclass(frozen=True, slots=True)
class DeleteConfigMap:
    name: str


@dataclass(frozen=True, slots=True)
class ApplyDisruptionBudget:
    """Server-side apply."""

    name: str
    document: Document


@dataclass(frozen=True, slots=True)
class ApplyNetworkPolicy:
    """Server-side apply. It goes with the pod that owns it."""

    name: str
    document: Document


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Server-side apply or create; one that is there already is no fault."""

    name: str
    document: Document


@dataclass(frozen=True, slots=True)
class DeletePod:
    """With `uid` as precondition. `grace_s` None: the pod's own."""

    name: str
    uid: str
    reason: str
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class ResizePod:
    """Patch the subresource `resize` of the pod with this uid: CPU of container `worker`; memory stays."""

    name: str
    uid: str
    cpu_request_millis: int
    cpu_limit_millis: int


@dataclass(frozen=True, slots=True)
class WriteSchedule:
    """Create it (`resource_version` None; one that is there already drops the decision), or replace it on
    condition of its resourceVersion. `document` is the whole object, without resourceVersion."""

    name: str
    schedule: OperatorSchedule
    document: Document
    resource_version: str | None


@dataclass(frozen=True, slots=True)
class ApplyNodeStore:
    """Server-side apply of the StatefulSet of a store; `store` is its id."""

    name: str
    store: str
    document: Document


@dataclass(frozen=True, slots=True)
class DeleteNodeStore:
    """The StatefulSet of this uid, and its claim for a volume: no Schedule names the store any more."""

    name: str
    store: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class GrowVolume:
    """Ask for `size` in the claim `name`, which StatefulSet `stateful_set` made for its store, if it has
    less. Refused where the storage class does not let volumes grow."""

    name: str
    stateful_set: str
    size: str


Action = (
    ApplyConfigMap
    | DeleteConfigMap
    | ApplyDisruptionBudget
    | ApplyNetworkPolicy
    | CreatePod
    | DeletePod
    | ResizePod
    | WriteSchedule
    | ApplyNodeStore
    | DeleteNodeStore
    | GrowVolume
)


@dataclass(frozen=True, slots=True)
class Event:
    """On the Topology, at a transition. `reason` is one CamelCase word."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """`status` is the whole status of the Topology (server-side applied when it differs), `schedules` what is
    to stand in that of its Schedules. `need` is what has no room yet: the runtime shows it to the other
    topologies; `leeway` is for its LatencySLAs. Look again after `next_look_s` at the latest, or as soon as
    something changes."""

    memory: Memory
    actions: tuple[Action, ...] = ()
    status: Document = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    need: Need | None = None
    next_look_s: float = 5.0
    schedules: tuple[ScheduleFigures, ...] = ()
    leeway: SlaLeeway = SlaLeeway()  # noqa: RUF009 - frozen
    awaited: frozenset[str] = frozenset()
    """Pods that were refused lately, or whose growth leaves room for who goes first: what they need is left
    out now, and wanted still."""


@dataclass(frozen=True, slots=True)
class StoresDecision:
    """Which StatefulSets to write and to remove. `replaced` are nodes whose store has to be made anew, once
    nobody needs it, with the reason. `notices` are (StatefulSet, event), as long as they hold."""

    actions: tuple[ApplyNodeStore | DeleteNodeStore | GrowVolume, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[tuple[str, Event], ...] = ()
