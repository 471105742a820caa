"""Routing tables of a topology in a cluster: what the stores tell, which table its Schedules carry, and what
its status shows."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.api.compile import compile_topology
from penstock.api.topology import Topology
from penstock.control.locality.pair_summary import Pair, PairSummary
from penstock.control.locality.pairs_row import PairsRow, pack_row, row_name
from penstock.control.locality.summary_wire import pack_summary
from penstock.dataflow.routing_table import decode_table
from penstock.metrics.rows import HeldRow
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, StorePlace, WorkerPlace
from penstock.store.codec import encode_counts
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import (
    Bounds,
    NodeStore,
    OpenStore,
    PutPairs,
    PutTable,
    ShardCounters,
    StoreUnreachable,
)
from penstock_operator.cluster.decisions.sla_leeway import SlaHost, SlaLeeway
from penstock_operator.cluster.locality.keeper import TablesKeeper
from penstock_operator.cluster.observing.observed import ObservedSchedule, ObservedTopology, StoreReading
from penstock_operator.cluster.observing.pairs_reader import PairsReader

S = 1_000_000
SHARDS = 4
UID = "state-1"
ROWS = "tag string, land string"
COUNTS = 240_000
"""Of each task: so many that no more are waited for."""
KEYS = [f"k{number}" for number in range(12)]


def manifest(locality: str = "Auto", *, dry_run: bool = False) -> dict[str, Any]:
    def keyed(name: str, key: str, of: str) -> dict[str, Any]:
        fields = {"processor": "m:Count", "outputSchema": ROWS, "shards": SHARDS, "locality": locality}
        return {"name": name, "inputs": [of], "keyBy": [key], **fields}

    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "it"},
        "spec": {
            "code": {"module": "m"},
            "operators": [
                {"name": "posts", "source": {"files": {"glob": "in/*", "format": "jsonl", "schema": ROWS}}},
                keyed("tags", "tag", "posts"),
                keyed("lands", "land", "tags"),
                {"name": "out", "inputs": ["lands"], "sink": {"console": {}}},
            ],
            "locality": {"dryRun": dry_run},
        },
    }


class Cluster:
    """Two nodes, with a worker and a store each, and a keeper that looks at them. What hashes put on one node
    of `tags` they put on the other of `lands`."""

    def __init__(self, document: dict[str, Any] | None = None) -> None:
        self.document = document or manifest()
        self.now_us = 1_000 * S
        self.nodes = {name: MemoryNode() for name in "ab"}
        self.silent = False
        self.counts: dict[str, dict[str, int]] = {}
        for node in self.nodes:
            self.store(node).call(OpenStore(node))
        self.schedules = {name: self._first(name) for name in ("posts", "tags", "lands")}
        self.keeper = self.new_keeper()

    def new_keeper(self) -> TablesKeeper:
        threads = ThreadPoolExecutor(2)
        return TablesKeeper(PairsReader(self._open, threads), lambda: self.now_us)

    def store(self, node: str) -> NodeStore:
        return MemoryStore(self.nodes[node], UID, Bounds())

    def _open(self, address: str, uid: str) -> NodeStore:
        assert uid == UID
        if self.silent:
            raise StoreUnreachable("away")
        return self.store(address.split(":")[0])

    def _first(self, operator: str) -> OperatorSchedule:
        return OperatorSchedule(
            operator,
            1,
            1,
            tuple(WorkerPlace(f"w{node}", node, "host", f"uid-{node}") for node in "ab"),
            tuple(ExecutorPlace(f"{operator}-{node}", f"w{node}", 1) for node in "ab"),
            {
                f"{operator}/{number}": ShardPlace(f"{operator}-{node}", node)
                for number in range(SHARDS)
                for node in "ab"[(number + (operator == "lands")) % 2]
            },
            tuple(StorePlace(node, node, f"{node}:6379") for node in "ab"),
            is_source=operator == "posts",
        )

    def seen(self) -> list[ObservedSchedule]:
        return [ObservedSchedule(name, name, "1", UID, one) for name, one in self.schedules.items()]

    def topology(self) -> ObservedTopology:
        parsed = Topology.model_validate(self.document)
        return ObservedTopology("it", "uid", 1, self.document, parsed, compile_topology(parsed, "cluster"))

    def readings(self) -> dict[str, StoreReading | None]:
        found: dict[str, StoreReading | None] = {}
        for node in "ab":
            shards = {
                shard: ShardCounters(
                    1, 1, 1, 0, 0, 0, 0, 0, 0, place.executor, False,
                    counts=encode_counts(self.counts.get(shard, {})),
                )
                for one in self.schedules.values()
                for shard, place in one.shards.items()
                if place.home == node
            }  # fmt: skip
            found[node] = StoreReading(
                1, self.now_us, shards=shards, held=HeldRow(node, 1, self.now_us, 6000, 6)
            )
        return found

    def count(self) -> None:
        """Tasks of `tags` have counted: each key is followed by itself."""
        pairs: dict[Pair, int] = {((key,), (key,)): COUNTS // len(KEYS) for key in KEYS}
        seen = np.array(list(pairs.values()), np.int64)
        summary = pack_summary(PairSummary(COUNTS, 0, tuple(pairs), seen, 0 * seen))
        versions = tuple(
            one.table.version if (one := self.schedules[name]).table is not None else 0
            for name in ("tags", "lands")
        )
        for node in "ab":
            name = f"tags-{node}"
            row = PairsRow(
                "tags", "lands", name, 0, self.now_us, self.now_us - 10 * S, 0.25,
                (versions[0], versions[1]), COUNTS, 100 * COUNTS, ((0, 0, 30), (1, 0, 70)), summary,
            )  # fmt: skip
            self.store(node).call(PutPairs(row_name("tags", "lands", name, 0), pack_row(row)))

    def look(self, *, held: str = "", outdated: str = "", after_s: float = 11.0) -> dict[str, int]:
        """A look; operator -> version that its Schedule is to carry."""
        self.now_us += int(after_s * S)
        self.count()
        hosts = tuple(
            SlaHost(WorkerPlace(f"w{n}", n, "host", "u"), StorePlace(n, n, f"{n}:6379"), "", 2, 2)
            for n in "ab"
        )
        leeway = SlaLeeway(held, "", hosts, outdated)
        seen = self.seen()
        asyncio.run(self.keeper.look(self.topology(), UID, seen, self.readings(), leeway))
        return {name: place.version for name, place in self.keeper.view(seen).tables.items()}

    def write(self) -> None:
        """The topology's turn has Schedules carry what they are to carry, and agents put it into stores."""
        for name, place in self.keeper.view(self.seen()).tables.items():
            before = self.schedules[name]
            self.schedules[name] = replace(before, version=before.version + 1, table=place)
            for node in "ab":
                self.store(node).call(PutTable(name, place.version, place.content))

    def carry_out(self) -> None:
        for name, schedule in self.schedules.items():
            if schedule.table is None:
                continue
            table = decode_table(schedule.table.content)
            for shard in table.producers:
                self.counts.setdefault(shard, {})[f"{name}/table"] = table.version
            for number in table.changed_shards():
                self.counts.setdefault(f"{name}/{number}", {})[f"{name}/moved"] = table.version

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.keeper.view(self.seen()).status)


def test_a_table_is_made_of_what_the_stores_tell_and_shown() -> None:
    cluster = Cluster()
    made = cluster.look()
    assert list(made.values()) == [1]
    (operator,) = made
    place = cluster.keeper.view(cluster.seen()).tables[operator]
    producers = {"tags": "posts", "lands": "tags"}[operator]
    assert decode_table(place.content).producers == tuple(f"{producers}/{n}" for n in range(SHARDS))
    cluster.write()
    cluster.look()
    assert cluster.status["underWay"] == f"version 1 of the table of {operator} is being carried out"
    cluster.carry_out()
    cluster.look()
    assert "underWay" not in cluster.status
    assert cluster.status["edges"][0]["localShare"] == pytest.approx(0.7)
    (decision,) = [one for one in cluster.status["decisions"] if one.get("actions")]
    assert decision["rule"] == "gain"
    tables = {one["operator"]: one["version"] for one in cluster.status["tables"]}
    assert tables[operator] == 1
    Topology.model_validate(cluster.document | {"status": {"locality": cluster.status}})


def test_a_new_leader_goes_on_with_the_tables_that_there_are() -> None:
    cluster = Cluster()
    (operator,) = cluster.look()
    cluster.write()
    cluster.keeper = cluster.new_keeper()
    assert cluster.look() == {operator: 1}, "it is on its way, and there is no other one"
    # Somebody of an earlier version of Penstock wrote the Schedule without it.
    cluster.schedules[operator] = replace(cluster.schedules[operator], table=None)
    cluster.keeper = cluster.new_keeper()
    assert cluster.look() == {operator: 1}


def test_a_table_whose_producers_are_others_by_now_is_not_written() -> None:
    cluster = Cluster()
    (operator,) = cluster.look()
    producers = {"tags": "posts", "lands": "tags"}[operator]
    before = cluster.schedules[producers]
    shards = {**before.shards, f"{producers}/more": ShardPlace(f"{producers}-a", "a")}
    cluster.schedules[producers] = replace(before, shards=shards)
    assert not cluster.keeper.view(cluster.seen()).tables


def test_nothing_is_begun_while_the_operator_holds_or_a_store_is_silent() -> None:
    cluster = Cluster()
    assert cluster.look(held="workers are starting") == {}
    assert cluster.look(outdated="worker w1 is of what it was made from before") == {}
    cluster.silent = True
    assert cluster.look() == {}


def test_no_table_is_begun_while_nobody_could_switch_to_it() -> None:
    cluster = Cluster()
    posts = cluster.schedules["posts"]
    asleep = tuple(replace(place, tasks=0) for place in posts.executors)
    cluster.schedules["posts"] = replace(posts, executors=asleep)
    assert cluster.look() == {}
    cluster.schedules["posts"] = posts
    assert cluster.look() != {}


def test_a_dry_run_shows_what_would_be() -> None:
    cluster = Cluster(manifest(dry_run=True))
    assert cluster.look() == {}
    assert cluster.status["decisions"][0]["dryRun"]
    assert cluster.status["edges"][0]["expected"] == pytest.approx(1.0)


def test_without_locality_no_store_is_asked() -> None:
    cluster = Cluster(manifest("Off"))
    cluster.silent = True
    assert cluster.look() == {}
    assert cluster.status == {}


def test_keys_of_who_asks_no_more_go_back() -> None:
    cluster = Cluster()
    (operator,) = cluster.look()
    cluster.write()
    cluster.carry_out()
    cluster.document = manifest("Off")
    assert cluster.look() == {operator: 2}
    table = decode_table(cluster.keeper.view(cluster.seen()).tables[operator].content)
    assert table.keys == ()
    assert table.moves
    cluster.write()
    cluster.carry_out()
    assert cluster.look() == {operator: 3}
    assert decode_table(cluster.keeper.view(cluster.seen()).tables[operator].content).is_bare
    cluster.write()
    assert cluster.look() == {}
    assert cluster.status == {}


def test_who_asks_again_goes_on_behind_the_last_version() -> None:
    cluster = Cluster()
    (operator,) = cluster.look()
    cluster.write()
    cluster.carry_out()
    cluster.document = manifest("Off")
    for _ in range(2):
        cluster.look()
        cluster.write()
        cluster.carry_out()
    cluster.document = manifest()
    cluster.keeper = cluster.new_keeper()
    assert cluster.look() == {operator: 4}
