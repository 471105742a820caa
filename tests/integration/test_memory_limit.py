"""Real stores with small memory limits: they stay near them, hold sources, drain, start when full."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.store.port import (
    Answer,
    Append,
    Claim,
    Claimed,
    Commit,
    Create,
    Enroll,
    Fetch,
    FetchedShard,
    Measure,
    NodeStore,
    OpenStore,
    Output,
    Owner,
    Publish,
    ReadMemory,
    StateSnapshot,
    StateWrite,
)
from penstock.store.redis.store import RedisStore, load_functions
from penstock_operator.local.store.private_store import PrivateStore
from penstock_worker.task.store_pressure import PRESSED_US, StorePressure
from scenes.delivery_pass import deliver_once

pytestmark = pytest.mark.integration

MIB = 1 << 20
LIMIT_BYTES = 24 * MIB
COMMIT_BYTES = 512 << 10
ROUNDS_MAX = 5_000


@dataclass
class Task:
    """A task without a loop around it: a fetch, and a commit for each shard that it hands out."""

    store: NodeStore
    operator: str
    shards: Sequence[str]
    outputs: Callable[[str], tuple[Output, ...]]
    source: bool = False
    claims: dict[str, Claimed] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    now_us: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        self.pressure = StorePressure(self.operator, source=self.source)
        for shard in self.shards:
            owner = Owner(f"{self.operator}@w", "u/1/1", self.operator)
            claimed = self.store.call(Claim(shard, owner, 1))
            assert isinstance(claimed, Claimed)
            self.claims[shard], self.numbers[shard] = claimed, claimed.commit

    def turn(self, until: int = 1 << 60) -> None:
        """`until`: a source's shard has so many commits and then no more to read."""
        self.now_us += PRESSED_US // 4
        fetch = self.pressure.fetch(Fetch(self.operator, 256 << 10, 64), self.now_us)
        fetched = self.store.call(fetch)
        self.pressure.note(fetch, fetched, self.now_us)
        commits = [self.commit(one, until) for one in fetched.shards]
        assert set(self.store.pipeline(self.pressure.commits(commits))) <= {Answer.OK}

    def commit(self, fetched: FetchedShard, until: int) -> Commit:
        shard, entries = fetched.shard, fetched.entries
        claimed = self.claims[shard]
        self.numbers[shard] += 1
        self.rows += len(entries)
        return Commit(
            shard=shard,
            generation=claimed.generation,
            epoch=claimed.epoch,
            number=self.numbers[shard],
            table_version=0,
            now_us=1,
            offset=entries[-1].number if entries else 0,
            consumed_bytes=sum(len(entry.payload) for entry in entries),
            consumed_rows=len(entries),
            position=b"%d" % self.numbers[shard] if self.source else None,
            finished=self.source and self.numbers[shard] >= until,
            again=self.source,
            in_hand=self.source or bool(entries),
            outputs=self.outputs(shard),
        )


class Node:
    """A store of its own with a small limit, and shards of operators p (sources) and q."""

    def __init__(self, folder: Path, name: str, shards: int) -> None:
        self.server = PrivateStore(folder / name, "Process", name, memory_bytes=LIMIT_BYTES)
        self.server.start()
        self.store = RedisStore(self.server.url, "t")
        self.p = [f"p/{name}{n}" for n in range(4)]
        self.q = [f"q/{name}{n}" for n in range(shards)]
        for operator, names in (("p", self.p), ("q", self.q)):
            self.store.call(
                Publish(
                    operator, 1, 0, (("w", "n", "h", "u"),), ((f"{operator}@w", "w", 1),),
                    tuple((shard, f"{operator}@w", name) for shard in names),
                )
            )  # fmt: skip
            self.store.pipeline([Create(shard, source=operator == "p") for shard in names])
        assert self.store.call(Enroll("w", "u", 1, 1)) is Answer.OK

    @property
    def used_bytes(self) -> int:
        return self.store.call(ReadMemory()).used_bytes

    def waiting(self) -> int:
        counters = self.store.call(Measure((*self.p, *self.q)))
        return sum(one.inbox_entries + one.outbox_entries for one in counters if one is not None)

    def stop(self) -> None:
        self.store.close()
        self.server.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Callable[[str, int], Node]]:
    nodes: list[Node] = []

    def start(name: str, shards: int) -> Node:
        nodes.append(Node(tmp_path, name, shards))
        return nodes[-1]

    yield start
    for one in nodes:
        one.stop()


def to_each(targets: Sequence[str]) -> Callable[[str], tuple[Output, ...]]:
    """A commit's outputs, `COMMIT_BYTES` in all."""
    payload = os.urandom(COMMIT_BYTES // len(targets))
    return lambda _: tuple(Output(target, payload, 1) for target in targets)


def nothing(_: str) -> tuple[Output, ...]:
    return ()


def test_a_backlog_stays_near_the_stores_limit_and_sources_go_on_as_it_is_worked_off(
    node: Callable[[str, int], Node],
) -> None:
    commits = 30
    local = node("n1", 128)
    read = Task(local.store, "p", local.p, to_each(local.q), source=True)
    # Nobody works: the queues' own bounds would allow 128 MiB.
    for _ in range(60):
        read.turn(commits)
    assert local.used_bytes > LIMIT_BYTES
    assert local.used_bytes < LIMIT_BYTES + (len(local.p) + 1) * 2 * COMMIT_BYTES
    held = sum(read.numbers.values())
    assert held < commits * len(local.p)
    work = Task(local.store, "q", local.q, nothing)
    for _ in range(ROUNDS_MAX):
        work.turn()
        read.turn(commits)
        assert local.used_bytes < LIMIT_BYTES + (len(local.p) + 1) * 2 * COMMIT_BYTES
        if work.rows == commits * len(local.p) * len(local.q):
            break
    assert work.rows == commits * len(local.p) * len(local.q)
    assert local.waiting() == 0


def test_two_stores_that_are_full_of_entries_for_each_other_drain(node: Callable[[str, int], Node]) -> None:
    here, there = node("n1", 8), node("n2", 8)
    stores = {"n1": here, "n2": there}
    sources = [
        Task(one.store, "p", one.p, to_each(other.q), source=True)
        for one, other in ((here, there), (there, here))
    ]
    for one, source in zip((here, there), sources, strict=True):
        # As many more topologies as it takes would fill it in a cluster; here something else does.
        one.store.call(Create("other/0"))
        for _ in range(12):
            source.turn(3)
        fill(one, LIMIT_BYTES)
    for other, producer in ((here, "p/n2"), (there, "p/n1")):
        assert other.store.call(Append(f"{producer}0", other.q[0], 1, b"x", 1, 1)) is Answer.FULL

    def home_of(target: str) -> NodeStore:
        return stores[target.split("/")[1][:2]].store

    workers = [Task(one.store, "q", one.q, nothing) for one in (here, there)]
    for _ in range(ROUNDS_MAX):
        for one in (here, there):
            deliver_once(one.store, home_of)
        for worker in workers:
            worker.turn()
        if here.waiting() + there.waiting() == 0:
            break
    assert [worker.rows for worker in workers] == [4 * 3 * 8] * 2
    assert here.waiting() + there.waiting() == 0


def fill(one: Node, upto_bytes: int) -> None:
    """Put so much state into the store that it is full."""
    one.store.call(
        Publish(
            "other", 1, 0, (("w", "n", "h", "u"),), (("other@w", "w", 1),), (("other/0", "other@w", "n"),)
        )
    )
    keep = Task(one.store, "other", ["other/0"], nothing)
    claimed = keep.claims["other/0"]
    number = 0
    while one.used_bytes <= upto_bytes + MIB:
        number += 1
        commit = Commit(
            "other/0", claimed.generation, claimed.epoch, number, 0, 1,
            state=(StateWrite(b"", b"%d" % number, os.urandom(200_000)),),
        )  # fmt: skip
        assert one.store.call(commit) is Answer.OK


def test_a_store_that_is_full_starts_again_after_a_kill_and_with_a_smaller_limit(tmp_path: Path) -> None:
    one = Node(tmp_path, "n1", 1)
    try:
        one.store.call(Create("other/0"))
        fill(one, LIMIT_BYTES)
        state = one.store.call(StateSnapshot("other/0"))
        assert one.server.pid is not None
        os.kill(one.server.pid, signal.SIGKILL)
        while not one.server.restart_if_dead():
            pass
        assert RedisStore(one.server.url, "t").call(ReadMemory()).limit_bytes == LIMIT_BYTES
    finally:
        one.stop()
    again = PrivateStore(tmp_path / "n1", "Process", "n1", memory_bytes=LIMIT_BYTES // 2)
    again.start()
    store = RedisStore(again.url, "t")
    try:
        memory = store.call(ReadMemory())
        assert memory.used_bytes > memory.limit_bytes == LIMIT_BYTES // 2
        assert store.call(StateSnapshot("other/0")) == state
        assert store.call(Fetch("q", 100, 1)).full
    finally:
        store.close()
        again.stop()


def test_a_full_store_takes_a_new_library_and_keeps_its_limit(node: Callable[[str, int], Node]) -> None:
    one = node("n1", 1)
    one.store.call(Create("other/0"))
    fill(one, LIMIT_BYTES)
    load_functions(one.server.url)
    assert one.store.call(ReadMemory()).limit_bytes == LIMIT_BYTES
    assert one.store.call(OpenStore("n1")) > 0
