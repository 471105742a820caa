"""A node's store that two topologies share, with its agent's turns given by the test: one is as it should be,
of the other whoever has its user has written what Penstock never writes.

Real redis-servers, as what a server answers is what this is about; no threads, no API server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from penstock.api.schedule_object import to_spec
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock.store.keys import SCHEDULES, TOPOLOGIES, Keys
from penstock.store.port import (
    Assignment,
    Bounds,
    Claim,
    Claimed,
    Commit,
    Enroll,
    Measure,
    NodeStore,
    OpenStore,
    Output,
    Owner,
    PutMetrics,
    SetTasks,
    ShardStatus,
    StateWrite,
    TakeFacts,
    TimerWrite,
    Watermark,
    WatermarkFact,
)
from penstock.store.redis.connection import Wire
from penstock.store.redis.store import RedisStore, load_functions
from penstock.store.redis.wary_store import WaryStore
from penstock_operator.agent.couriers import Couriers
from penstock_operator.agent.deliveries import Deliveries
from penstock_operator.agent.kept_thread import ThreadFaults
from penstock_operator.agent.moving import MoveDriver
from penstock_operator.agent.peers import Peers
from penstock_operator.agent.schedule_feed import Object, ScheduleCache
from penstock_operator.agent.schedule_memory import ScheduleMemory
from penstock_operator.agent.store_keeper import OpenedStore
from penstock_operator.agent.store_side import StoreSide, Turn
from penstock_operator.agent.store_turns import StoreTurns
from penstock_operator.agent.weighing import Weighing
from penstock_operator.local.store.private_store import PrivateStore
from penstock_simulation.twins.no_thread import NoThread

HOSTILE, WELL = "aa-hostile", "zz-well"
OPERATOR = "mid"
SHARDS = ("mid/0", "mid/1", "mid/2")
NODES = ("a", "b")
BOUNDS = Bounds()


class Servers:
    """The stores a and b, empty for each `scene`."""

    def __init__(self, folder: Path) -> None:
        self.stores = {name: PrivateStore(folder / name, "Process") for name in NODES}
        for store in self.stores.values():
            store.start()

    def url(self, name: str) -> str:
        return self.stores[name].url

    def admin(self, name: str = "a") -> Any:
        return redis.Redis.from_url(self.url(name), protocol=3)

    def empty(self) -> None:
        for name in NODES:
            with self.admin(name) as admin:
                admin.flushall()
            load_functions(self.url(name))
            store = RedisStore(self.url(name), "any")
            store.call(OpenStore(name))
            store.close()

    def stop(self) -> None:
        for store in self.stores.values():
            store.stop()


class SharedNode:
    """Node a, and its agent. `versions` and `home` are what the topologies' Schedules say now."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.now_s = 100.0
        self.cache = ScheduleCache()
        self.versions = {HOSTILE: 1, WELL: 1}
        self.home = "a"
        self.reports: dict[str, int] = {}
        self.ended_users: list[str] = []
        self.faults = ThreadFaults()
        self.admin = servers.admin()
        self._clients: list[NodeStore] = []
        peers = Peers("a", servers.url("a"), lambda address: servers.url(address[0]), self._connect)
        deliveries = Deliveries("a", peers, self.faults, self._clock_s, NoThread)
        side = StoreSide("a", peers.open)
        self.couriers = Couriers("a", peers, self.faults, self._clock_s, NoThread)
        self.movers = MoveDriver(
            "a", peers.open, deliveries.arrived, lambda: None, self._clock_s, thread=NoThread
        )
        self.turns = StoreTurns(
            side,
            ScheduleMemory(Wire(servers.url("a"), 5.0)),
            peers,
            deliveries,
            self.couriers,
            self.movers,
            Weighing("a", side.store_of, lambda: 1),
            lambda _: None,
            "Process",
            self._clock_s,
        )

    def _connect(self, url: str, uid: str) -> NodeStore:
        store = WaryStore(url, uid)
        self._clients.append(store)
        return store

    def _clock_s(self) -> float:
        return self.now_s

    def close(self) -> None:
        self.turns.close()
        self.admin.close()
        for client in self._clients:
            client.close()

    # --- what the API server says

    def list(self, *uids: str) -> None:
        """A complete list with the Schedules of these, and no Topologies of others."""
        self.cache.listed([self._item(uid) for uid in uids], [])

    def _item(self, uid: str) -> Object:
        schedule = OperatorSchedule(
            operator=OPERATOR,
            version=self.versions[uid],
            term=1,
            workers=(WorkerPlace("w", "a", "host", "uid-w"),),
            executors=(ExecutorPlace("mid-w", "w", 1),),
            shards={shard: ShardPlace("mid-w", self.home, 1) for shard in SHARDS},
            stores=tuple(StorePlace(name, name, f"{name}:6379") for name in NODES),
        )
        return {
            "metadata": {"name": f"{uid}-mid", "uid": f"object of {uid}"},
            "spec": to_spec(schedule, uid, uid),
        }

    # --- what the agent does

    def round(self) -> Turn:
        """What all of the agent's threads do in a second; reports are written."""
        self.now_s += 1.0
        self.turns.see(self.cache.snapshot())
        opened = OpenedStore("run", 1)
        turn = self.turns.turn(opened)
        for name, (seen, applied) in turn.reports.items():
            self.reports[name] = applied.version
            self.turns.confirm(seen, applied)
        self.turns.weigh(opened)
        self.couriers.turn()
        for courier in self.couriers.all():
            courier.turn()
        return turn

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    def move_some(self, takes: int) -> None:
        """So many shards are taken up by a mover, each as far as it goes."""
        mover = self.movers.mover()
        for _ in range(takes):
            if not mover.take(self.now_s):
                break
            while mover.go_on() is not None:
                self.now_s += 0.01
        mover.close()

    # --- what workers do

    def work(self, uid: str) -> None:
        """Keys of each kind: what a worker of the topology leaves that has begun."""
        worker = RedisStore(self.servers.url("a"), uid)
        try:
            worker.call(Enroll("w", "uid-w", 1, 1))
            owner = Owner("mid-w", "uid-w/1/1", "ready")
            worker.call(SetTasks("w", "uid-w/1/1", "mid-w", (("mid/0", "ready"),), ()))
            worker.call(PutMetrics((("shard:mid/0", b"x"),)))
            for shard in SHARDS:
                claimed = worker.call(Claim(shard, owner, self.versions[uid]))
                assert isinstance(claimed, Claimed), claimed
                worker.call(
                    Commit(
                        shard,
                        claimed.generation,
                        claimed.epoch,
                        1,
                        0,
                        state=(StateWrite(b"", b"f", b"1"), StateWrite(b"c", b"f", b"1")),
                        outputs=(Output("far/0", b"payload", 1), Output("elsewhere/0", b"payload", 1)),
                        timers=(TimerWrite(b"t", 5),),
                        watermark=Watermark(7),
                        tells=True,
                        now_us=1,
                    )
                )
            worker.call(TakeFacts("mid", tuple(WatermarkFact(one, 1, Watermark(3)) for one in SHARDS)))
        finally:
            worker.close()

    # --- what is there

    def published(self, uid: str, node: str = "a") -> int:
        with self.servers.admin(node) as admin:
            return int(admin.hget(Keys(uid).schedule(OPERATOR), "version") or 0)

    def facts(self, uid: str, node: str) -> set[bytes]:
        with self.servers.admin(node) as admin:
            return set(admin.hkeys(Keys(uid).facts(OPERATOR)))

    def status(self, uid: str, node: str) -> ShardStatus | None:
        store = RedisStore(self.servers.url(node), uid)
        (counters,) = store.call(Measure(("mid/0",)))
        store.close()
        return None if counters is None else counters.status

    def left_of(self, uid: str) -> set[bytes]:
        """Keys of the topology."""
        return set(self.admin.scan_iter(f"penstock:{uid}:*", count=1000))

    def remembered(self) -> set[bytes]:
        return set(self.admin.hkeys(SCHEDULES))

    def in_set(self) -> set[bytes]:
        return set(self.admin.smembers(TOPOLOGIES))

    def is_retracted(self, uid: str) -> bool:
        store = RedisStore(self.servers.url("a"), uid)
        try:
            return store.call(Assignment("-")).retracted
        finally:
            store.close()


@contextmanager
def begun(servers: Servers) -> Iterator[SharedNode]:
    """Both topologies are at work on node a."""
    servers.empty()
    node = SharedNode(servers)
    try:
        node.list(HOSTILE, WELL)
        node.rounds(3)
        for uid in (HOSTILE, WELL):
            node.work(uid)
        yield node
    finally:
        node.close()
