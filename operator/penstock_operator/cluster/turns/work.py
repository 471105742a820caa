"""What a loop of the operator is given, and what its turns leave to the next one. Values, but for `Work`.

Neighbours: `reconcile` runs the loops, the other modules of this room take their turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock_operator.cluster.carrying_out.schedule_status import ScheduleStatusWriter
from penstock_operator.cluster.carrying_out.topology_status import StatusWriter
from penstock_operator.cluster.decisions.remembered import Memory
from penstock_operator.cluster.decisions.sla_leeway import SlaLeeway
from penstock_operator.cluster.locality.keeper import TablesKeeper
from penstock_operator.cluster.observing.kept_schedules import KeptSchedules
from penstock_operator.cluster.observing.namespace_picture import TopologyLook
from penstock_operator.cluster.observing.observed import Need
from penstock_operator.cluster.observing.pairs_reader import PairsReader
from penstock_operator.cluster.observing.store_reader import StoreReader
from penstock_operator.cluster.sla.keeper import SlaKeeper
from penstock_operator.cluster.turns.pod_tries import PodTries
from penstock_operator.cluster.turns.rest import Rest
from penstock_operator.cluster.turns.telling import Telling


@dataclass(frozen=True, slots=True)
class Clocks:
    """`monotonic_s` is what decisions reckon with, `wall_s` what people read."""

    monotonic_s: Callable[[], float]
    wall_s: Callable[[], float]

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.wall_s(), UTC)


@dataclass(frozen=True, slots=True)
class Leadership:
    """What this process leads by: its term, and its name in events."""

    term: int
    reporter: str


@dataclass(frozen=True, slots=True)
class Readers:
    """Who reads the stores: for the topologies' loops, and, apart and often, `samples` for their SLAs."""

    stores: StoreReader
    samples: StoreReader
    kept: KeptSchedules
    """What stores know of Schedules."""
    pairs: PairsReader
    """What they have of routing tables."""


@dataclass(slots=True)
class Work:
    """One loop, and what its last turn left. All but `task` may be lost."""

    wake: asyncio.Event
    turned_s: float
    woken_s: float | None = None
    """When the first change came in that no turn has taken up yet."""
    is_queued: bool = False
    """Whether it waits for a slot to begin its turn."""
    task: asyncio.Task[None] | None = None
    keeper: SlaKeeper | None = None
    """Of a loop that keeps the LatencySLAs of a topology."""
    tables: TablesKeeper | None = None
    """Of a topology's loop: who keeps its routing tables."""
    leeway: SlaLeeway = SlaLeeway()  # noqa: RUF009 - frozen
    memory: Memory = field(default_factory=Memory)
    status: StatusWriter | None = None
    schedules: ScheduleStatusWriter | None = None
    look: TopologyLook = field(default_factory=TopologyLook)
    tries: PodTries = field(default_factory=PodTries)
    stops: int = 0
    """Turns in a row that ended early, because another writer came first."""
    compared: set[str] = field(default_factory=set)
    """Uids of Schedules that no store knows in a newer version, as was asked once."""
    rest: Rest | None = None
    """What the last decision left nothing to do on."""
    need: Need | None = None
    phase: str = "Pending"
    telling: Telling = field(default_factory=Telling)
    refusal: str = ""
    """What the API server said to the last turn's write that it will never take."""

    def wake_up(self, changed_s: float) -> None:
        """Something that it looks at changed then."""
        if self.woken_s is None:
            self.woken_s = changed_s
        self.wake.set()

    def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
