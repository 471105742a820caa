"""Whatever a topology's workers write below their own prefix: the others on the node are served as before,
and when the topology ends nothing of it is left."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import pytest

from clocks.running import run
from penstock.metrics.rows import worker_row_name
from penstock.store.keys import TOPOLOGIES, Keys
from penstock.store.port import (
    Failures,
    OutgoingTargets,
    ReadFacts,
    ReadMetrics,
    ShardStatus,
    ToldOperators,
)
from penstock.store.redis.connection import Wire
from penstock.store.redis.wary_store import WaryStore
from penstock_operator.agent.store_side import STRANGERS_S
from penstock_operator.cluster.observing.kept_schedules import KeptSchedules
from penstock_operator.cluster.observing.observed import KeptThere, StoreReading
from penstock_operator.cluster.observing.store_reader import StoreReader
from scenes.shared_node import HOSTILE, OPERATOR, SHARDS, WELL, Servers, SharedNode, begun

pytestmark = pytest.mark.integration

KEYS = Keys(HOSTILE)
RECORD = KEYS.shard("mid/0")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("servers"))
    yield servers
    servers.stop()


@pytest.fixture
def node(servers: Servers) -> Iterator[SharedNode]:
    with begun(servers) as node:
        yield node


Poison = Callable[[Any], Any]
"""Writes what Penstock never writes."""


def of_wrong_type(key: bytes) -> Poison:
    def poison(admin: Any) -> None:
        was_list = admin.type(key) == b"list"
        admin.delete(key)
        if was_list:
            admin.hset(key, "x", "y")
        else:
            admin.rpush(key, "x")

    return poison


def record_of(**numbers: float) -> Poison:
    """Records with these in the places of their numbers ("n13" is the status)."""
    values = [0.0] * 21
    for name, value in numbers.items():
        values[int(name[1:])] = value
    packed = struct.pack("<21d", *values)
    return lambda admin: [admin.hset(KEYS.shard(one), "h", packed) for one in SHARDS]


def with_field(key: bytes, field: str | bytes, value: str | bytes) -> Poison:
    return lambda admin: admin.hset(key, field, value)


WRONG_TYPES = {
    name: of_wrong_type(key)
    for name, key in {
        "record": RECORD,
        "state": KEYS.value("mid/0"),
        "collections": KEYS.collections("mid/0"),
        "a collection": KEYS.collection("mid/0", b"c"),
        "timers": KEYS.timers("mid/0"),
        "inbox": KEYS.inbox("mid/0"),
        "outbox": KEYS.outbox("mid/0", "far/0"),
        "waiters": KEYS.waiters("far/0"),
        "pending": KEYS.pending("mid/0"),
        "outgoing": KEYS.outgoing,
        "ready list": KEYS.ready("ready"),
        "control": KEYS.control("w"),
        "tasks": KEYS.tasks("mid-w"),
        "enrolled": KEYS.enrolled,
        "schedule": KEYS.schedule(OPERATOR),
        "shard map": KEYS.shard_map(OPERATOR),
        "executors": KEYS.executor_map(OPERATOR),
        "keepers": KEYS.keepers(OPERATOR),
        "leaving": KEYS.leaving(OPERATOR),
        "stagings": KEYS.stagings(OPERATOR),
        "workers": KEYS.workers,
        "assigned": KEYS.assigned("w"),
        "metrics": KEYS.metrics,
        "facts": KEYS.facts(OPERATOR),
        "waited": KEYS.waited(OPERATOR),
        "idle": KEYS.idle(OPERATOR),
        "strange": KEYS.strange(OPERATOR),
        "telling": KEYS.telling,
        "marks": KEYS.marks("mid/0"),
        "move": KEYS.move("mid/0"),
        "tombstone of the version before": KEYS.prefix + b"tombstone",
    }.items()
}
WRONG_VALUES: dict[str, Poison] = {
    "a short record": with_field(RECORD, "h", b"short"),
    "no status": record_of(n13=17),
    "a status that is no number": record_of(n13=float("nan")),
    "more waiting than there is memory": record_of(n8=9e18),
    "counts without end": record_of(n0=float("inf"), n5=1e308, n8=-1e308),
    "an owner that is no text": with_field(RECORD, "x", b"\xff\xfe"),
    "a version that is no number": with_field(KEYS.schedule(OPERATOR), "version", "x"),
    "a version without end": with_field(KEYS.schedule(OPERATOR), "version", "1e999"),
    "workers that are not packed": with_field(KEYS.schedule(OPERATOR), "workers", b"\xc1"),
    "a place that is not packed": with_field(KEYS.shard_map(OPERATOR), "mid/0", b"\xc1"),
    "an executor that is not packed": with_field(KEYS.executor_map(OPERATOR), "mid-w", b"\xc1"),
    "task lists that are not packed": with_field(KEYS.tasks("mid-w"), "lists", b"\xc1"),
    "a short fact": with_field(KEYS.facts(OPERATOR), "mid/0", b"short"),
    "a fact that is no number": with_field(
        KEYS.facts(OPERATOR), "mid/0", struct.pack("<dd", float("nan"), float("inf"))
    ),
    "a fact of what is no text": with_field(KEYS.facts(OPERATOR), b"\xff", struct.pack("<dd", 1, 1)),
    "an operator that is no text": lambda admin: admin.sadd(KEYS.telling, b"\xff"),
    "a target that is no text": lambda admin: (
        admin.sadd(KEYS.outgoing, b"\xff") and admin.zadd(KEYS.waiters("\xff"), {b"\xff": 1})
    ),
    "a move that is no number": with_field(KEYS.move("mid/0"), "epoch", "x"),
    "a tombstone that says that all is done": with_field(KEYS.prefix + b"tombstone", "cursor", "end"),
    "a tombstone that says nothing": with_field(KEYS.prefix + b"tombstone", "cursor", "x"),
    "a tombstone somewhere": with_field(KEYS.prefix + b"tombstone", "cursor", "99999"),
}
POISONS = {f"{name} of another type": poison for name, poison in WRONG_TYPES.items()} | WRONG_VALUES


@pytest.mark.parametrize("what", POISONS)
def test_others_are_served_and_nothing_is_left_of_who_wrote(node: SharedNode, what: str) -> None:
    POISONS[what](node.admin)
    node.versions[WELL] = 2
    node.list(HOSTILE, WELL)
    node.rounds(20)  # all records are looked at again after 15 s
    assert node.published(WELL) == 2
    assert node.reports[f"{WELL}-mid"] == 2
    assert node.facts(WELL, "b") == {shard.encode() for shard in SHARDS}
    assert WELL in node.turns.held_bytes

    node.versions = {HOSTILE: 3, WELL: 3}
    node.home = "b"
    node.list(HOSTILE, WELL)
    node.round()
    node.move_some(20)
    assert node.status(WELL, "b") is ShardStatus.ACTIVE

    node.list(WELL)
    node.round()
    node.list(WELL)
    node.rounds(3)
    assert node.is_retracted(HOSTILE)
    assert node.left_of(HOSTILE) == set()
    assert node.in_set() == {WELL.encode()}
    assert node.remembered() == {f"{WELL}-mid".encode()}
    assert node.published(WELL) == 3
    assert node.faults.counts == {}


def flooded(count: int) -> Poison:
    return lambda admin: admin.sadd(TOPOLOGIES, *(f"made-up-{number}" for number in range(count)))


@pytest.mark.parametrize(
    "named",
    [flooded(2000), lambda admin: admin.sadd(TOPOLOGIES, b"x" * (17 << 20))],
    ids=["very many", "a very long one"],
)
def test_what_is_named_in_the_set_of_topologies_is_forgotten_where_nobody_can_read_it(
    node: SharedNode, named: Poison
) -> None:
    named(node.admin)
    node.versions[WELL] = 2
    node.list(HOSTILE, WELL)
    node.round()
    assert node.published(WELL) == 2
    node.now_s += STRANGERS_S
    node.round()
    assert node.in_set() == {HOSTILE.encode(), WELL.encode()}


def test_names_of_agents_of_the_ended_and_of_the_living_in_the_set_do_no_harm(node: SharedNode) -> None:
    node.list(WELL)
    node.round()
    node.list(WELL)
    node.rounds(2)
    assert node.is_retracted(HOSTILE)
    node.admin.sadd(TOPOLOGIES, HOSTILE, "agent", "probe", WELL, "a b", "")
    for _ in range(8):
        node.now_s += STRANGERS_S / 2
        node.list(WELL)
        node.round()
    node.versions[WELL] = 2
    node.list(WELL)
    node.rounds(2)
    assert node.published(WELL) == 2
    assert not node.is_retracted(WELL)
    assert node.in_set() <= {WELL.encode(), b"a b", b"", b"agent", b"probe", HOSTILE.encode()}
    assert len(node.in_set()) < 6
    assert node.faults.counts == {}


# --- what the operator reads


def read_by_operator(node: SharedNode, uid: str) -> tuple[StoreReading | None, dict[str, str]]:
    """A look at store a; and why it could not be read."""

    async def look(threads: Executor) -> tuple[StoreReading | None, dict[str, str]]:
        reader = StoreReader(
            lambda address, of: WaryStore(node.servers.url(address), of),
            threads,
            lambda: 0.0,
            lambda: 1,
            wait_s=20,
            with_shard_rows=True,
        )
        found = await reader.read(uid, {"a": "a"}, {"a": SHARDS})
        why = reader.unreadable(uid, {"a": "a"})
        reader.keep_only((), ())
        return found["a"], why

    with ThreadPoolExecutor(1) as threads:
        return run(look(threads))


@pytest.mark.parametrize("what", POISONS)
def test_the_operator_reads_or_says_that_it_cannot_read(node: SharedNode, what: str) -> None:
    POISONS[what](node.admin)
    reading, why = read_by_operator(node, HOSTILE)
    assert (reading is None) == bool(why)
    reading, why = read_by_operator(node, WELL)
    assert reading is not None
    assert reading.generation == 1
    assert reading.shards["mid/0"] is not None


@pytest.mark.parametrize(
    "poison",
    [
        record_of(n5=1e300),
        with_field(RECORD, "c", b"x" * (65 << 10)),
        with_field(KEYS.metrics, "a row", b"x" * (20 << 20)),
        with_field(KEYS.metrics, worker_row_name("w"), b"x" * (5 << 20)),
        with_field(KEYS.failures, "mid", b"x" * (20 << 20)),
    ],
    ids=["a count", "counts", "a metric row", "rows to unpack", "a failure"],
)
def test_what_is_beyond_all_measure_is_not_read(node: SharedNode, poison: Poison) -> None:
    poison(node.admin)
    reading, why = read_by_operator(node, HOSTILE)
    assert reading is None
    assert why
    assert len(why["a"]) < 700


def test_of_rows_without_number_so_many_are_read_as_anybody_can_hold(node: SharedNode) -> None:
    for first in range(0, 120_000, 20_000):
        rows = {f"r{number}": "" for number in range(first, first + 20_000)}
        node.admin.hset(KEYS.metrics, mapping=rows)
        node.admin.hset(KEYS.failures, mapping=rows)
        node.admin.hset(KEYS.facts("far"), mapping={name: struct.pack("<dd", 1, 1) for name in rows})
        node.admin.sadd(KEYS.telling, *rows)
        node.admin.sadd(KEYS.outgoing, *rows)
    store = WaryStore(node.servers.url("a"), HOSTILE)
    assert len(store.call(ReadMetrics())) == 100_000
    assert len(store.call(Failures())) == 1000
    assert len(store.call(ReadFacts("far"))) == 65_536
    assert len(store.call(ToldOperators())) == 4096
    assert len(store.call(OutgoingTargets())) == 65_536
    store.close()


@pytest.mark.parametrize("version", ["x", "-5", "9" * 400, "1e3", b"\xff"])
def test_a_version_in_the_maps_that_is_none_is_not_taken_for_one(
    node: SharedNode, version: str | bytes
) -> None:
    node.admin.hset(KEYS.schedule(OPERATOR), "version", version)

    def kept(uid: str) -> KeptThere | None:
        with ThreadPoolExecutor(1) as threads:
            reader = KeptSchedules(lambda address: Wire(node.servers.url(address), 5.0), threads)
            return run(reader.read(uid, {OPERATOR: f"{uid}-mid"}, {"a": "a"}))["a"]

    assert kept(HOSTILE) is None
    there = kept(WELL)
    assert there is not None
    assert there[OPERATOR].published == 1
