"""When a look need not be followed by a decision: the last one found nothing to do, and all is as it was.

A topology *rests* when a decision had no action, nobody to wait for and no wait that runs, and its status was
the one before. `decide` on the same picture would say the same, so it is not asked while what is seen stays
so: the topology's own objects, the nodes and stores that it is on, and what its stores tell but for when they
told it. Other nodes mean nothing to one that wants no worker, nor do labels and room of its own: a worker is
placed by them, and not sent away. Room means something where tasks may be remote, and to LatencySLAs, which
go by what the last decision found. After a while it is asked all the same.

Who rests is looked at and decided for less often the more of them there are (`looks_every_s`, `rests_s`):
changes of objects wake a loop at once, so this is about what the stores alone tell. Pure. Neighbours:
`topology_turn` asks, `reconcile` wakes by `Rest.nodes`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from penstock.metrics.rows import tells_of_now
from penstock_operator.cluster.decisions.actions import Decision
from penstock_operator.cluster.decisions.decide import LATER_S
from penstock_operator.cluster.decisions.quota import HELD_ROW_AGE_US_MAX
from penstock_operator.cluster.decisions.remembered import Memory
from penstock_operator.cluster.observing.observed import Observed, ObservedNode, SlaControl, StoreReading

REST_S = 30.0
REST_S_MAX = 300.0
_DECISIONS_PER_S_MAX = 5
"""About all that rest together, where nothing has changed."""
LOOKS_EVERY_S_MAX = 10.0
PACE_MAX = 1.1
_LOOKS_PER_S_MAX = 125
"""Of all that rest together."""


@dataclass(frozen=True, slots=True)
class Rest:
    """`nodes` are those that the topology is on, `seen` is what it rests on, `since_s` when that was decided;
    `by_room`: what pods ask for on these nodes is seen, too."""

    nodes: frozenset[str]
    by_room: bool
    seen: tuple[Any, ...]
    since_s: float

    def lasts(self, observed: Observed, now_s: float, for_s: float = REST_S) -> bool:
        """Whether `decide` would say what it said. It is asked all the same after `for_s`."""
        return now_s - self.since_s < for_s and self.seen == _essence(observed, self.nodes, self.by_room)


def rest_after(observed: Observed, before: Memory, decision: Decision, now_s: float) -> Rest | None:
    """What there is to rest on after a decision that was carried out; None while something is under way."""
    is_idle = not (decision.actions or decision.events or decision.awaited or decision.need)
    is_alike = decision.status == before.status and decision.memory.backlog == before.backlog
    if not is_idle or not is_alike or decision.memory.since_s or decision.next_look_s < LATER_S:
        return None
    if observed.sla.limits or observed.kept or observed.refused:
        return None
    nodes = frozenset(
        {pod.node for pod in (*observed.pods, *observed.spark_workers)}
        | {pod.store for pod in observed.pods}
        | {store.id for one in observed.schedules for store in one.schedule.stores}
        | {store.node for one in observed.schedules for store in one.schedule.stores}
        | {place.home for one in observed.schedules for place in one.schedule.shards.values()}
    )
    plan = observed.topology.plan
    by_room = observed.sla != SlaControl() or (plan is not None and plan.remote_tasks)
    return Rest(nodes, by_room, _essence(observed, nodes, by_room), now_s)


def looks_every_s(resting: int) -> float:
    """How often to look at each of so many topologies that rest."""
    return min(max(LATER_S, resting / _LOOKS_PER_S_MAX), LOOKS_EVERY_S_MAX)


def own_pace(topology: str) -> float:
    """A factor for the time between its looks, 0.9 to 1.1: who began to rest together would be looked at
    together for ever."""
    return 2 - PACE_MAX + 2 * (PACE_MAX - 1) * zlib.crc32(topology.encode()) / 2**32


def rests_s(resting: int) -> float:
    """After how long each of so many topologies that rest is decided for all the same."""
    return min(max(REST_S, resting / _DECISIONS_PER_S_MAX), REST_S_MAX)


def _essence(observed: Observed, nodes: frozenset[str], by_room: bool) -> tuple[Any, ...]:
    """What of a picture a decision about a resting topology follows from. Objects of the API are compared as
    such first: they are the same ones as long as nothing has changed."""
    return (
        observed.topology.manifest.get("metadata"),
        observed.topology.manifest.get("status"),
        observed.pods,
        observed.spark_workers,
        tuple((one.uid, one.resource_version) for one in observed.schedules),
        tuple(_node(one, by_room) for one in observed.nodes if one.name in nodes),
        tuple(one for one in observed.stores if one.id in nodes),
        {store: _told(reading) for store, reading in observed.readings.items()},
        observed.config_maps,
        observed.disruption_budget_min,
        observed.code,
        observed.refused,
        observed.sla,
        observed.kept,
        observed.strays,
        observed.unreadable,
        observed.locality,
        observed.own_users,
    )


def _node(node: ObservedNode, by_room: bool) -> ObservedNode:
    if by_room:
        return replace(node, labels={})
    return replace(node, labels={}, cpu_requested_millis=0, memory_requested_bytes=0, pods=0)


def _told(reading: StoreReading | None) -> StoreReading | None:
    """A reading without its times: a row's is 1 while it tells of now, else 0."""
    if reading is None:
        return None
    now_us, held = reading.now_us, reading.held
    if held is not None:
        held = structs.replace(held, at_us=int(now_us - held.at_us <= HELD_ROW_AGE_US_MAX))
    return replace(
        reading,
        now_us=0,
        workers=_timeless(reading.workers, now_us),
        tasks=_timeless(reading.tasks, now_us),
        held=held,
    )


def _timeless(rows: Mapping[str, Any], now_us: int) -> dict[str, Any]:
    return {name: structs.replace(row, at_us=int(tells_of_now(row, now_us))) for name, row in rows.items()}
