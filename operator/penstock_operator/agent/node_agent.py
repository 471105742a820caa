"""The node agent put together: what runs beside what, and who wakes whom.

The event loop has the feed, the reports and the endpoint. Everything that talks to a store blocks, so it runs
on threads with connections of their own: the keeper (is the store open?), the turns (`store_side`), four
movers, and for each topology a thread that hears its outboxes' bell, with a link for each other store. What
one of them learns it leaves where the others look, and wakes them. Neighbours: `main` starts it, `endpoint`
shows its `view`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.schedule.record import AppliedPlace
from penstock.store.port import NodeStore
from penstock.store.redis.store import RedisStore
from penstock_operator.agent import decisions
from penstock_operator.agent.delivery import TopologyDelivery
from penstock_operator.agent.kept_thread import KeptThread, ThreadFaults
from penstock_operator.agent.link import DeliveryCount
from penstock_operator.agent.moving import MoveCount, MoveDriver
from penstock_operator.agent.routes import Routes
from penstock_operator.agent.schedule_feed import NOTHING, ScheduleCache, ScheduleFeed, SeenSchedule, Snapshot
from penstock_operator.agent.schedule_memory import ScheduleMemory
from penstock_operator.agent.settings import AgentSettings
from penstock_operator.agent.store_keeper import OpenedStore, StoreKeeper
from penstock_operator.agent.store_server import StoreServer
from penstock_operator.agent.store_side import StoreSide, Turn, unknown_address
from penstock_operator.agent.weighing import Weighing

_LOG = logging.getLogger(__name__)

RESYNC_S = 1.0
"""N-Storm's T_S."""
_STOP_S = 0.4
REPORT_AFTER_S = 0.05
"""A report that nothing waits for is written so long after there was something to say: the move of a small
shard is over by then, is told once, and does not wait for what its report costs everybody."""
_REPORT_AGAIN_S = 0.5
_TROUBLE_LOG_S = 10.0


@dataclass(frozen=True, slots=True)
class AgentView:
    """What people and machines may know of an agent at a moment. Ages in seconds, None for never."""

    node: str
    store: OpenedStore | None
    store_fault: str
    memory_used_bytes: int
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
        self._snapshot = NOTHING
        self._listed_at_s: float | None = None
        self._turned_at_s: float | None = None
        self._addresses: dict[str, str] = {}
        self._faults = ThreadFaults()
        server = StoreServer(settings.store_url, settings.store_id)
        self._keeper = StoreKeeper(server, settings.memory_bytes, self._store_changed, self._faults)
        self._server = StoreServer(settings.store_url, settings.store_id)
        self._fsync: tuple[OpenedStore, bool] | None = None
        self._side = StoreSide(settings.node, settings.store_id, self._open_store)
        self._weighing = Weighing(
            settings.node,
            self._side.store_of,
            lambda: time.time_ns() // 1000,
            lambda: self._keeper.full_of_bytes,
        )
        self._held_bytes: Mapping[str, int] = {}
        self._memory = ScheduleMemory(settings.store_url)
        self._movers = MoveDriver(
            settings.store_id, self._open_store, self._arrived, self._wake, faults=self._faults
        )
        self._deliveries: dict[str, tuple[Routes, TopologyDelivery]] = {}
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._turns = KeptThread("turns", self._make_turns, self._faults, self._stopped)
        self._confirmed: deque[tuple[SeenSchedule, AppliedPlace]] = deque()
        self._reported: dict[str, AppliedPlace] = {}
        self._due_moves = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reports: dict[str, tuple[SeenSchedule, AppliedPlace]] = {}
        self._reports_changed = asyncio.Event()
        self._report_is_urgent = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`; threads that hang in a call to a store are left behind."""
        self._loop = asyncio.get_running_loop()
        self._keeper.start()
        self._turns.start()
        self._movers.start()
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

        return AgentView(
            node=self._settings.node,
            store=self._keeper.opened,
            store_fault=self._keeper.fault,
            memory_used_bytes=self._keeper.memory_used_bytes,
            resync_age_s=age(self._turned_at_s),
            listing_age_s=age(self._listed_at_s),
            schedules={
                name: (seen.schedule.version, self._reported.get(seen.uid))
                for name, seen in self._snapshot.schedules.items()
            },
            deliveries={uid: delivery.counts() for uid, (_, delivery) in list(self._deliveries.items())},
            moves_due=self._due_moves,
            moves=self._movers.count,
            held_bytes=self._held_bytes,
            quota_bytes={
                seen.topology_uid: seen.store_memory_bytes
                for seen in self._snapshot.schedules.values()
                if seen.store_memory_bytes is not None
            },
            thread_faults=self._faults.counts,
            last_fault=self._faults.last,
        )

    # --- told by others

    def _seen(self, snapshot: Snapshot) -> None:
        """The feed has news."""
        if snapshot.listing != self._snapshot.listing:
            self._listed_at_s = self._clock_s()
        self._snapshot = snapshot
        self._wake()

    def _store_changed(self, opened: OpenedStore | None) -> None:
        if opened is not None:
            self._wake()

    def _arrived(self, topology_uid: str, shard: str, store_id: str) -> None:
        """A shard of this store is another one's: what was written for it here, or held up, goes there."""
        found = self._deliveries.get(topology_uid)
        if found is not None:
            found[1].moved(shard, store_id)

    def _wake(self) -> None:
        self._woken.set()

    # --- connections

    def _url_of(self, store_id: str) -> str | None:
        if store_id == self._settings.store_id:
            return self._settings.store_url
        address = self._addresses.get(store_id)
        return self._settings.peer_url(address) if address else None

    def _open_store(self, store_id: str, topology_uid: str) -> NodeStore:
        url = self._url_of(store_id)
        if url is None:
            raise unknown_address(store_id)
        return RedisStore(url, topology_uid)

    # --- the turns' thread

    def _make_turns(self) -> None:
        try:
            self._make_turns_until_stopped()
        finally:
            self._side.close()
            self._memory.close()
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
                self._memory.forget()
                continue
            try:
                self._make_turn(opened)
            except PenstockError as error:
                if self._clock_s() - said_at_s >= _TROUBLE_LOG_S:
                    said_at_s = self._clock_s()
                    _LOG.warning("the store is not up to date: %s", error)

    def _make_turn(self, opened: OpenedStore) -> None:
        snapshot = self._snapshot
        if not snapshot.listing:
            snapshot = ScheduleCache().recall(self._memory.recall())
        self._addresses.update(decisions.addresses_of(snapshot))
        self._set_fsync(snapshot, opened)
        self._route(snapshot)
        while self._confirmed:
            self._side.confirmed(*self._confirmed.popleft())
        turn = self._side.turn(snapshot, opened, self._clock_s())
        self._due_moves = len(turn.moves)
        self._movers.want(turn.moves)
        gone = self._deliveries.keys() - turn.alive if turn.alive is not None else set()
        for uid in {*turn.retracted, *gone}:
            self._end_delivery(uid)
        if snapshot.listing:
            self._memory.keep(snapshot.objects)
        self._turned_at_s = self._clock_s()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._turned, turn)
        self._weighing.step(self._side.shards_here, opened.generation, self._clock_s())
        self._held_bytes = self._weighing.held_bytes

    def _set_fsync(self, snapshot: Snapshot, opened: OpenedStore) -> None:
        """Before anything is published: what a topology asks for holds from its first record on."""
        wanted = (opened, decisions.wants_fsync(snapshot, self._settings.durability))
        if wanted != self._fsync:
            self._server.set(appendfsync="always" if wanted[1] else "no")
            self._fsync = wanted
            _LOG.info(
                "the store's log is %s", "synced with each write" if wanted[1] else "left to the kernel"
            )

    def _route(self, snapshot: Snapshot) -> None:
        """Let deliveries know where shards are; begin those of topologies that are new here."""
        for uid, schedules in decisions.by_topology(snapshot).items():
            if uid not in self._deliveries:
                self._deliveries[uid] = self._begin_delivery(uid)
            routes, delivery = self._deliveries[uid]
            stores = {store.id for seen in schedules for store in seen.schedule.stores}
            homes = decisions.homes_of(seen.schedule for seen in schedules)
            if routes.learn(homes, stores | {self._settings.store_id}):
                delivery.routes_changed()

    def _begin_delivery(self, uid: str) -> tuple[Routes, TopologyDelivery]:
        routes = Routes()
        delivery = TopologyDelivery(
            self._settings.store_url, self._url_of, lambda url: RedisStore(url, uid), routes, self._faults
        )
        delivery.start()
        return routes, delivery

    def _end_delivery(self, uid: str) -> None:
        found = self._deliveries.pop(uid, None)
        if found is not None:
            found[1].stop()

    def _stop_threads(self) -> None:
        deadline_s = time.monotonic() + _STOP_S
        deliveries = [delivery for _, delivery in self._deliveries.values()]
        self._stopped.set()
        self._woken.set()
        self._movers.stop()
        for delivery in deliveries:
            delivery.stop()
        for delivery in deliveries:
            delivery.join(deadline_s)
        self._movers.join(deadline_s)
        self._turns.join(deadline_s - time.monotonic())
        self._keeper.stop()

    # --- reports, on the event loop

    def _turned(self, turn: Turn) -> None:
        self._reports = dict(turn.reports)
        if self._reports:
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
            for name, (seen, applied) in list(self._reports.items()):
                if self._reported.get(seen.uid) == applied:
                    continue
                try:
                    await self._feed.report(seen, applied)
                except PenstockError as error:
                    _LOG.warning("%s: cannot report: %s", name, error)
                    self._reports_changed.set()
                    await asyncio.sleep(_REPORT_AGAIN_S)
                    break
                self._reported[seen.uid] = applied
                self._confirmed.append((seen, applied))
                self._wake()
