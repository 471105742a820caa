"""A turn of the agent: what the Schedules say comes into this node's store, and to who moves and delivers.

Turns are one thread's. Before the first complete list of the API server a turn goes by what an earlier agent
remembered in the store. Neighbours: `node_agent` repeats turns and brings in the news, `store_side` does what
is done to the store, `moving`, `deliveries` and `couriers` are told here and work beside it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping

from penstock.schedule.record import AppliedPlace
from penstock_operator.agent import decisions
from penstock_operator.agent.couriers import Couriers
from penstock_operator.agent.deliveries import Deliveries
from penstock_operator.agent.moving import MoveDriver
from penstock_operator.agent.peers import Peers
from penstock_operator.agent.schedule_feed import NOTHING, ScheduleCache, SeenSchedule, Snapshot
from penstock_operator.agent.schedule_memory import ScheduleMemory
from penstock_operator.agent.store_keeper import OpenedStore
from penstock_operator.agent.store_side import StoreSide, Turn
from penstock_operator.agent.weighing import Weighing

_LOG = logging.getLogger(__name__)


class StoreTurns:
    """`see` and `confirm` are for any thread. `set_fsync` says whether the store's log is synced with each
    write; `durability` is what the store can keep, Process or Disk."""

    def __init__(
        self,
        side: StoreSide,
        memory: ScheduleMemory,
        peers: Peers,
        deliveries: Deliveries,
        couriers: Couriers,
        movers: MoveDriver,
        weighing: Weighing,
        set_fsync: Callable[[bool], None],
        durability: str,
        clock_s: Callable[[], float],
    ) -> None:
        self._side = side
        self._memory = memory
        self._peers = peers
        self._deliveries = deliveries
        self._couriers = couriers
        self._movers = movers
        self._weighing = weighing
        self._write_fsync = set_fsync
        self._durability = durability
        self._clock_s = clock_s
        self._fsync: tuple[OpenedStore, bool] | None = None
        self._remembers_since: tuple[OpenedStore, int] | None = None
        self._confirmed: deque[tuple[SeenSchedule, AppliedPlace]] = deque()
        self.snapshot = NOTHING
        """The newest that was seen."""
        self.held_bytes: Mapping[str, int] = {}
        self.moves_due = 0
        self.turned_at_s: float | None = None

    def see(self, snapshot: Snapshot) -> None:
        """The feed has news."""
        self.snapshot = snapshot

    def confirm(self, seen: SeenSchedule, applied: AppliedPlace) -> None:
        """The API server has a report."""
        self._confirmed.append((seen, applied))

    def turn(self, opened: OpenedStore) -> Turn:
        """Raises what calls to the store raise; the next turn does what was left undone."""
        snapshot = self.snapshot
        if self._remembers_since != (opened, snapshot.listing):
            # what the store keeps may have gone with its last start, or be another agent's word
            self._memory.forget()
            self._remembers_since = (opened, snapshot.listing)
        if not snapshot.listing:
            snapshot = ScheduleCache().recall(self._memory.recall())
        self._peers.learn(decisions.addresses_of(snapshot))
        self._set_fsync(snapshot, opened)
        self._deliveries.route(snapshot)
        while self._confirmed:
            self._side.confirmed(*self._confirmed.popleft(), snapshot.listing)
        # nobody says of these that they are gone, as long as nobody lists their namespace
        unlisted = self._memory.uids_but_of(snapshot.namespaces)
        turn = self._side.turn(snapshot, opened, self._clock_s(), self._memory.uids(), unlisted)
        self._couriers.route(snapshot, self._side.shards_here())
        self.moves_due = len(turn.moves)
        self._movers.want(turn.moves)
        self._deliveries.end(turn.retracted)
        if turn.alive is not None:
            self._deliveries.end(self._deliveries.all().keys() - turn.alive)
        if snapshot.listing:
            self._memory.keep(snapshot.objects, turn.alive)
        self.turned_at_s = self._clock_s()
        return turn

    def weigh(self, opened: OpenedStore) -> None:
        """Find out some of what the topologies hold here, if it is time. Raises StoreUnreachable."""
        self._weighing.step(self._side.shards_here, opened.generation, self._clock_s())
        self.held_bytes = self._weighing.held_bytes

    def close(self) -> None:
        self._side.close()
        self._memory.close()

    def _set_fsync(self, snapshot: Snapshot, opened: OpenedStore) -> None:
        """Before anything is published: what a topology asks for holds from its first record on."""
        wanted = (opened, decisions.wants_fsync(snapshot, self._durability))
        if wanted != self._fsync:
            self._write_fsync(wanted[1])
            self._fsync = wanted
            _LOG.info(
                "the store's log is %s", "synced with each write" if wanted[1] else "left to the kernel"
            )
