"""The whole operator on the twin of the API and real stores, for a topology whose keys go by tables: from
what tasks have counted to a table in a Schedule and in every store, to its switch, to the status; and
back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from backends.store_fixtures import RedisBackend
from penstock.api.schedule_object import from_object
from penstock.control.locality.pair_summary import Pair, PairSummary
from penstock.control.locality.pairs_row import PairsRow, pack_row, row_name
from penstock.control.locality.summary_wire import pack_summary
from penstock.dataflow.routing_table import RoutingTable, decode_table, moved_count, routed_count
from penstock.metrics.rows import HELD_ROW_NAME, HeldRow, pack
from penstock.schedule.record import OperatorSchedule
from penstock.store.codec import decode_counts
from penstock.store.ownership import OwnedShard
from penstock.store.port import (
    Answer,
    Bounds,
    Claim,
    Claimed,
    Enroll,
    Measure,
    NodeStore,
    Owner,
    PutMetrics,
    PutPairs,
    ReadGeneration,
    TableVersions,
)
from penstock_operator.cluster.kubernetes_api.port import SCHEDULES, TOPOLOGIES, Object
from penstock_operator.cluster.main import Replica
from scenes.operator_stage import Stage, tell
from worlds.operator_world import NODE_NAMES, topology

pytestmark = pytest.mark.integration

SHARDS = 8
KEYS = range(24)
COUNTED = 240_000
"""By each task: so many that no more are waited for."""
PRODUCERS = {"tags": "numbers", "lands": "tags"}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisBackend]:
    backend = RedisBackend(tmp_path_factory.mktemp("nodes"))
    yield backend
    backend.stop()


def meeting() -> Object:
    """Two processors in a row behind the generator, on two nodes."""
    numbers, out = topology()["spec"]["operators"]

    def keyed(name: str, key: str, of: str) -> Object:
        return {
            "name": name,
            "inputs": [of],
            "keyBy": [key],
            "processor": "m:Count",
            "outputSchema": "land bigint",
            "shards": SHARDS,
            "locality": "Auto",
            "tasks": {"initial": 2},
        }

    operators = [numbers, keyed("tags", "key", "numbers"), keyed("lands", "land", "tags")]
    operators.append(out | {"inputs": ["lands"]})
    return topology(
        operators=operators,
        image="users/meeting:1",
        code={"module": "m"},
        workers={"min": 2, "max": 2},
    )


class Tasks:
    """What workers' tasks do of it, by hand."""

    def __init__(self, stage: Stage, uid: str) -> None:
        self._stage = stage
        self._stores = {node: stage.nodes.open_store(node, uid, Bounds()) for node in NODE_NAMES}

    def store(self, node: str) -> NodeStore:
        return self._stores[node]

    async def schedules(self) -> dict[str, OperatorSchedule]:
        found = [from_object(one) for one in (await self._stage.cluster.list(SCHEDULES)).items]
        return {one.operator: one for one in found}

    async def tables(self) -> dict[str, RoutingTable]:
        schedules = await self.schedules()
        return {name: decode_table(one.table.content) for name, one in schedules.items() if one.table}

    async def count(self) -> None:
        """Each key of tags was followed by one of lands, wherever hashes have it."""
        pairs: dict[Pair, int] = {((key,), (1000 + key,)): COUNTED // len(KEYS) for key in KEYS}
        seen = np.array(list(pairs.values()), np.int64)
        summary = pack_summary(PairSummary(COUNTED, 0, tuple(pairs), seen, 0 * seen))
        now_us = time.time_ns() // 1000
        schedule = (await self.schedules())["tags"]
        nodes = {worker.name: worker.node for worker in schedule.workers}
        for executor in schedule.executors:
            for task in range(executor.tasks):
                row = PairsRow(
                    "tags", "lands", executor.name, task, now_us, now_us - 10_000_000, 0.25, (0, 0),
                    COUNTED, 100 * COUNTED, (), summary,
                )  # fmt: skip
                name = row_name("tags", "lands", executor.name, task)
                self.store(nodes[executor.worker]).call(PutPairs(name, pack_row(row)))

    async def carry_out(self) -> None:
        """Every shard counts the newest tables as it would have after the commits that they ask for."""
        schedules = await self.schedules()
        for operator, table in (await self.tables()).items():
            for shard in table.producers:
                self._counts(schedules[PRODUCERS[operator]], shard, routed_count(operator), table.version)
            for number in table.changed_shards():
                shard = f"{operator}/{number}"
                self._counts(schedules[operator], shard, moved_count(operator), table.version)

    def _counts(self, schedule: OperatorSchedule, shard: str, name: str, version: int) -> None:
        place = schedule.shards[shard]
        (executor,) = [one for one in schedule.executors if one.name == place.executor]
        (worker,) = [one for one in schedule.workers if one.name == executor.worker]
        (node,) = [one.node for one in schedule.stores if one.id == place.home]
        store = self.store(node)
        (counters,) = store.call(Measure((shard,)))
        assert counters is not None, shard
        if decode_counts(counters.counts).get(name, 0) >= version:
            return
        store.call(Enroll(worker.name, worker.uid, 1, 1))
        owner = Owner(executor.name, f"{worker.uid}/1/1", f"{executor.name}.ready")
        claimed = store.call(Claim(shard, owner, schedule.version))
        assert isinstance(claimed, Claimed), (shard, claimed)
        owned = OwnedShard(shard, claimed)
        counted = {name: version - owned.counted_so_far(name)}
        assert store.call(owned.commit(time.time_ns() // 1000, counted=counted)) is Answer.OK

    async def live(self) -> None:
        """Workers renew their rows, and agents what they say of their stores."""
        while True:
            for schedule in (await self.schedules()).values():
                for worker in schedule.workers:
                    self._stage.world.tell(self.store(worker.node), worker.name, worker.uid)
            for node in NODE_NAMES:
                store = self.store(node)
                held = HeldRow(node, store.call(ReadGeneration()), time.time_ns() // 1000, 6000, 6)
                store.call(PutMetrics(((HELD_ROW_NAME, pack(held)),)))
            await asyncio.sleep(0.5)

    def versions(self, operator: str) -> set[tuple[int, ...]]:
        """What the stores have of an operator's tables."""
        return {self.store(node).call(TableVersions(operator)) for node in NODE_NAMES}


def locality_of(status: Mapping[str, Any]) -> dict[str, Any]:
    return dict(status.get("locality") or {})


def test_counts_become_a_table_that_is_switched_to_and_shown_and_taken_back(nodes: RedisBackend) -> None:
    async def story(stage: Stage, _: Replica) -> None:
        await stage.cluster.create(TOPOLOGIES, meeting())
        status = await stage.until_phase("Running")
        tasks = Tasks(stage, status["stateUid"])
        living = asyncio.create_task(tasks.live())
        try:
            await through(stage, tasks)
        finally:
            living.cancel()

    async def through(stage: Stage, tasks: Tasks) -> None:
        await tasks.count()

        async def is_made() -> bool:
            return bool(await tasks.tables())

        await stage.until(is_made)
        ((operator, table),) = (await tasks.tables()).items()
        assert table.version == 1
        assert table.keys
        schedules = await tasks.schedules()
        assert set(table.producers) == set(schedules[PRODUCERS[operator]].shards)
        assert tasks.versions(operator) == {(1,)}

        async def is_under_way() -> bool:
            told = locality_of(await stage.status())
            return told.get("underWay") == f"version 1 of the table of {operator} is being carried out"

        await stage.until(is_under_way)

        async def is_over() -> bool:
            await tasks.carry_out()
            told = locality_of(await stage.status())
            return bool(told.get("tables")) and "underWay" not in told

        await stage.until(is_over)
        told = locality_of(await stage.status())
        (decision,) = [one for one in told["decisions"] if one.get("actions")]
        assert decision["rule"] == "gain"
        assert {"operator": operator, "version": 1, "keys": len(table.keys)} in told["tables"]
        assert told["edges"][0]["expected"] > told["edges"][0]["byHash"]

        edited = await stage.cluster.get(TOPOLOGIES, "words")
        assert edited is not None
        for one in edited["spec"]["operators"]:
            if "processor" in one:
                one["locality"] = "Off"
        assert isinstance(await stage.cluster.replace(TOPOLOGIES, edited), dict)

        async def is_back() -> bool:
            await tasks.carry_out()
            return all(one.is_bare for one in (await tasks.tables()).values()) and not locality_of(
                await stage.status()
            )

        await stage.until(is_back)
        for name, one in (await tasks.tables()).items():
            assert one.version == 3
            assert tasks.versions(name) == {(3,)}

    tell(nodes, story)
