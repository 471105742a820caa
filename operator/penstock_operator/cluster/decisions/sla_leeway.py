"""What the operator's decision about a topology leaves to its LatencySLAs: who may host, and whether now.

Pure. Neighbours: `leeway_for_slas` makes one at each look, `sla.look` puts it beside the samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.schedule.record import StorePlace, WorkerPlace


@dataclass(frozen=True, slots=True)
class SlaHost:
    """A worker that may be given executors. `operator` is the one that it is for, "" for all; `tasks` run
    there now, and `room` more may."""

    place: WorkerPlace
    store: StorePlace
    operator: str
    tasks: int
    room: int


@dataclass(frozen=True, slots=True)
class SlaLeeway:
    """`held` says in words why nothing may be moved about now, "" when it may; `busy` why nothing new may be
    begun."""

    held: str = "the operator has yet to look at the topology"
    busy: str = ""
    hosts: tuple[SlaHost, ...] = ()
    outdated: str = ""
    """Why no routing table may be begun, beside that: who runs other code, or knows nothing of tables."""
    is_at_rest: bool = False
    """Paused or finished: there is nothing to keep, and nothing is wrong."""
