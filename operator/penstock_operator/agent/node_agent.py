"""The node agent put together: what runs beside what, and who wakes whom.

The event loop has the feed, the reports and the endpoint. Everything that talks to a store blocks, so it runs
on threads with connections of their own: the keeper (is the store open?), the turns (`store_turns`), four
movers, for each topology a thread that hears its outboxes' bell, with a link for each other store, and one
that reads what producers told, with a courier for each other store. What one of them learns it leaves where
the others look, and wakes them. Neighbours: `main` starts it, `endpoint` shows its `view`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.schedule.record import AppliedPlace
from penstock.store.port import StoreMemory
from penstock.store.redis.connection import Wire
from penstock.store.redis.wary_store import WaryStore
from penstock_operator.agent.couriers import Couriers
from penstock_operator.agent.deliveries import Deliveries
from penstock_operator.agent.kept_thread import KeptThread, ThreadFaults
from penstock_operator.agent.link import DeliveryCount
from penstock_operator.agent.moving import MoveCount, MoveDriver
from penstock_operator.agent.peers import Peers
from penstock_operator.agent.reports import Reports
from penstock_operator.agent.schedule_feed import ScheduleFeed, Snapshot
from penstock_operator.agent.schedule_memory import ScheduleMemory
from penstock_operator.agent.settings import AgentSettings
from penstock_operator.agent.store_keeper import OpenedStore, StoreKeeper
from penstock_operator.agent.store_server import StoreServer
from penstock_operator.agent.store_side import StoreSide, Turn
from penstock_operator.agent.store_turns import StoreTurns
from penstock_operator.agent.store_volume import Volume, volume_of
from penstock_operator.agent.weighing import Weighing

_LOG = logging.getLogger(__name__)

RESYNC_S = 1.0
"""N-Storm's T_S."""
_STOP_S = 0.4
REPORT_AFTER_S = 0.05
"""A report that nothing waits for is written so long after there was something to say: the move of a small
shard is over by then, is told once, and does not wait for what its report costs everybody."""
REPORT_AGAIN_S = 0.5
_TROUBLE_LOG_S = 10.0
_MEMORY_TIMEOUT_S = 5.0
"""For a reply to what the store remembers of the Schedules."""


@dataclass(frozen=True, slots=True)
class AgentView:
    """What people and machines may know of an agent at a moment. Ages in seconds, None for never."""

    node: str
    store: OpenedStore | None
    store_fault: str
    memory: StoreMemory
    volume: Volume | None
    """Where the store writes, if that is known."""
    resync_age_s: float | None
    listing_age_s: float | None
    schedules: Mapping[str, tuple[int, AppliedPlace | None]]
    """Object -> version, what this node has reported."""
    deliveries: Mapping[str, Mapping[str, DeliveryCount]]
    """Topology uid -> store -> counts."""
    moves_due: int
    moves: MoveCount
    held_bytes: Mapping[str, int]
    """Topology uid -> what it holds in this store, where that is known."""
    quota_bytes: Mapping[str, int]
    """Topology uid -> what it may hold."""
    thread_faults: Mapping[str, int]
    """Kind of thread -> how often a bug ended one, which began anew."""
    last_fault: str
    """What the last one was, "" without any."""


class NodeAgent:
    """One agent. `run` belongs to one event loop and ends when told to."""

    def __init__(
        self, settings: AgentSettings, feed: ScheduleFeed, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._feed = feed
        self._clock_s = clock_s
        self._listed_at_s: float | None = None
        self._faults = ThreadFaults()
        self._woken = threading.Event()
        self._stopped = threading.Event()
        server = StoreServer(settings.store_url, settings.store_id)
        self._keeper = StoreKeeper(
            server, settings.memory_bytes, self._store_changed, self._faults, settings.users_file
        )
        self._server = StoreServer(settings.store_url, settings.store_id)
        peers = Peers(settings.store_id, settings.store_url, settings.peer_url, WaryStore)
        self._deliveries = Deliveries(settings.store_id, peers, self._faults, clock_s)
        self._couriers = Couriers(settings.store_id, peers, self._faults, clock_s)
        self._movers = MoveDriver(
            settings.store_id, peers.open, self._deliveries.arrived, self._wake, faults=self._faults
        )
        side = StoreSide(settings.store_id, peers.open, self._end_user, self._keeper.users)
        self._turns = StoreTurns(
            side,
            ScheduleMemory(Wire(settings.store_url, _MEMORY_TIMEOUT_S)),
            peers,
            self._deliveries,
            self._couriers,
            self._movers,
            Weighing(
                settings.store_id,
                side.store_of,
                lambda: time.time_ns() // 1000,
                lambda: self._keeper.full_of_bytes,
            ),
            self._set_fsync,
            settings.durability,
            clock_s,
        )
        self._thread = KeptThread("turns", self._make_turns, self._faults, self._stopped)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reports = Reports()
        self._reports_changed = asyncio.Event()
        self._report_is_urgent = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`; threads that hang in a call to a store are left behind."""
        self._loop = asyncio.get_running_loop()
        self._keeper.start()
        self._thread.start()
        self._movers.start()
        self._couriers.start()
        tasks = [
            asyncio.create_task(self._feed.run(self._seen)),
            asyncio.create_task(self._write_reports()),
        ]
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()
        finally:
            for task in (stopping, *tasks):
                task.cancel()
            await asyncio.gather(stopping, *tasks, return_exceptions=True)
            await asyncio.to_thread(self._stop_threads)

    def view(self) -> AgentView:
        now_s = self._clock_s()

        def age(since_s: float | None) -> float | None:
            return None if since_s is None else now_s - since_s

        turns, schedules = self._turns, self._turns.snapshot.schedules
        return AgentView(
            node=self._settings.node,
            store=self._keeper.opened,
            store_fault=self._keeper.fault,
            memory=self._keeper.memory,
            volume=volume_of(self._settings.data_dir),
            resync_age_s=age(turns.turned_at_s),
            listing_age_s=age(self._listed_at_s),
            schedules={
                name: (seen.schedule.version, self._reports.written(seen.uid))
                for name, seen in schedules.items()
            },
            deliveries=self._deliveries.counts(),
            moves_due=turns.moves_due,
            moves=self._movers.count,
            held_bytes=turns.held_bytes,
            quota_bytes={
                seen.topology_uid: seen.store_memory_bytes
                for seen in schedules.values()
                if seen.store_memory_bytes is not None
            },
            thread_faults=self._faults.counts,
            last_fault=self._faults.last,
        )

    # --- told by others

    def _seen(self, snapshot: Snapshot) -> None:
        """The feed has news."""
        if snapshot.listing != self._turns.snapshot.listing:
            self._listed_at_s = self._clock_s()
        self._turns.see(snapshot)
        self._wake()

    def _store_changed(self, opened: OpenedStore | None) -> None:
        if opened is not None:
            self._wake()

    def _wake(self) -> None:
        self._woken.set()

    # --- the turns' thread

    def _make_turns(self) -> None:
        try:
            self._make_turns_until_stopped()
        finally:
            self._turns.close()
            self._server.close()

    def _make_turns_until_stopped(self) -> None:
        said_at_s = float("-inf")
        while True:
            self._woken.wait(RESYNC_S)
            self._woken.clear()
            if self._stopped.is_set():
                return
            opened = self._keeper.opened
            if opened is None:
                continue
            try:
                self._make_turn(opened)
            except PenstockError as error:
                if self._clock_s() - said_at_s >= _TROUBLE_LOG_S:
                    said_at_s = self._clock_s()
                    _LOG.warning("the store is not up to date: %s", error)

    def _make_turn(self, opened: OpenedStore) -> None:
        turn = self._turns.turn(opened)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._turned, turn)
        self._turns.weigh(opened)

    def _set_fsync(self, wanted: bool) -> None:
        self._server.set(appendfsync="always" if wanted else "no")

    def _end_user(self, topology_uid: str) -> None:
        self._keeper.end_user(topology_uid, self._server)

    def _stop_threads(self) -> None:
        deadline_s = time.monotonic() + _STOP_S
        self._stopped.set()
        self._woken.set()
        self._movers.stop()
        self._deliveries.stop(deadline_s)
        self._couriers.stop(deadline_s)
        self._movers.join(deadline_s)
        self._thread.join(deadline_s - time.monotonic())
        self._keeper.stop()

    # --- reports, on the event loop

    def _turned(self, turn: Turn) -> None:
        if self._reports.take(turn.reports):
            self._reports_changed.set()
        if turn.is_urgent:
            self._report_is_urgent.set()
        if turn.must_list:
            self._feed.list_again()

    async def _write_reports(self) -> None:
        """What the last turn had to say, until it is said; the next turn says what is news by then."""
        while True:
            await self._reports_changed.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_AFTER_S):
                    await self._report_is_urgent.wait()
            self._report_is_urgent.clear()
            self._reports_changed.clear()
            for seen, applied in self._reports.due():
                try:
                    await self._feed.report(seen, applied)
                except PenstockError as error:
                    _LOG.warning("%s: cannot report: %s", seen.name, error)
                    self._reports_changed.set()
                    await asyncio.sleep(REPORT_AGAIN_S)
                    break
                self._reports.note_written(seen, applied)
                self._turns.confirm(seen, applied)
                self._wake()
