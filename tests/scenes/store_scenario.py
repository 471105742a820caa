"""A small topology on one node store, for the tests of the store's contract.

Operators src (source shards), mid, end; each has one executor per worker: "src@w1", "mid@w2", ...
Everything runs by direct calls of the port, so that a test reads as a list of calls and answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from penstock.store.port import (
    Acknowledge,
    Answer,
    Append,
    Bounds,
    Claim,
    Claimed,
    Commit,
    Create,
    Enroll,
    Entry,
    Fetch,
    Fetched,
    Intend,
    Measure,
    Moved,
    NodeStore,
    OpenStore,
    Outgoing,
    Output,
    Owner,
    Publish,
    ReadOutbox,
    ShardCounters,
    StateWrite,
    TimerWrite,
    Watermark,
)

SMALL = Bounds(
    inbox_bytes_max=100,
    inbox_entries_max=4,
    outbox_bytes_max=100,
    outbox_entries_max=4,
    drain_entries_max=3,
    drain_bytes_max=80,
    entry_bytes_max=200,
    outputs_per_commit_max=20,
    commit_bytes_max=600,
)
SHARDS = ("src/0", "src/1", "mid/0", "mid/1", "end/0", "end/1")
NOW_US = 1_700_000_000_000_000


def incarnation(worker: str, attempt: int = 1) -> str:
    """The incarnation that `Scene.enroll` announces."""
    return f"uid-{worker}/1000/{attempt}"


def payloads(entries: Sequence[Entry]) -> list[bytes]:
    return [entry.payload for entry in entries]


def out(target: str, payload: bytes = b"x", rows: int = 1, *, external: bool = False) -> Output:
    return Output(target, payload, rows, external)


@dataclass
class Scene:
    """A store, and what the owners in it know: the last claim and commit number of each shard.
    `shards` are what schedules name."""

    store: NodeStore
    workers: tuple[str, ...] = ("w1", "w2")
    shards: tuple[str, ...] = SHARDS
    claims: dict[str, Claimed] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    appended: dict[str, int] = field(default_factory=dict)

    def open(self, store_id: str = "s1") -> int:
        return self.store.call(OpenStore(store_id))

    def enroll(self, worker: str, attempt: int = 1) -> Answer:
        return self.store.call(Enroll(worker, f"uid-{worker}", 1000, attempt))

    def publish(
        self, operator: str, *, version: int = 1, worker: str = "w1", term: int = 1, uid: str = ""
    ) -> Answer:
        """The operator's shards, all on `worker`."""
        return self.store.call(
            Publish(
                operator=operator,
                version=version,
                term=term,
                workers=tuple((w, "node-1", "host-1", uid or f"uid-{w}") for w in self.workers),
                executors=tuple((f"{operator}@{w}", w, 1) for w in self.workers),
                shards=tuple(
                    (shard, f"{operator}@{worker}", "s1")
                    for shard in self.shards
                    if shard.split("/")[0] == operator
                ),
            )
        )

    def set_up(self, *shards: str, unclaimed: Sequence[str] = ()) -> Scene:
        """Open, publish, enroll; create `shards` and claim them for worker w1; create `unclaimed`."""
        self.open()
        for operator in ("src", "mid", "end"):
            assert self.publish(operator) is Answer.OK
        for worker in self.workers:
            assert self.enroll(worker) is Answer.OK
        for shard in (*shards, *unclaimed):
            assert self.create(shard) is Answer.OK
        for shard in shards:
            self.claim(shard)
        return self

    def create(self, shard: str, position: bytes = b"") -> Answer:
        return self.store.call(Create(shard, position=position, source=shard.startswith("src/")))

    def owner(self, shard: str, worker: str = "w1", ready: str = "", attempt: int = 1) -> Owner:
        """By default a shard's owner has one ready list per operator and worker: "mid@w1"."""
        executor = f"{shard.split('/')[0]}@{worker}"
        return Owner(executor, incarnation(worker, attempt), ready or executor)

    def try_claim(
        self, shard: str, *, worker: str = "w1", version: int = 1, ready: str = "", attempt: int = 1
    ) -> Claimed | Answer | Moved:
        return self.store.call(Claim(shard, self.owner(shard, worker, ready, attempt), version))

    def claim(
        self, shard: str, *, worker: str = "w1", version: int = 1, ready: str = "", attempt: int = 1
    ) -> Claimed:
        claimed = self.try_claim(shard, worker=worker, version=version, ready=ready, attempt=attempt)
        assert isinstance(claimed, Claimed), claimed
        self.claims[shard] = claimed
        self.numbers[shard] = claimed.commit
        return claimed

    def next_commit(
        self,
        shard: str,
        *outputs: Output,
        entries: Sequence[Entry] = (),
        rows: int | None = None,
        again: bool = False,
        in_hand: bool = False,
        finished: bool = False,
        position: bytes | None = None,
        state: Sequence[StateWrite] = (),
        timers: Sequence[TimerWrite] = (),
        watermark: Watermark | None = None,
        tells: bool = True,
        now_us: int = NOW_US,
        inbox_limit_bytes: int | None = None,
    ) -> Commit:
        """The commit that follows the last one that `commit` sent for this shard."""
        claimed = self.claims[shard]
        return Commit(
            shard=shard,
            generation=claimed.generation,
            epoch=claimed.epoch,
            number=self.numbers[shard] + 1,
            table_version=claimed.table_version,
            now_us=now_us,
            offset=entries[-1].number if entries else 0,
            consumed_bytes=sum(len(entry.payload) for entry in entries),
            consumed_rows=len(entries) if rows is None else rows,
            position=position,
            finished=finished,
            again=again,
            in_hand=in_hand,
            state=tuple(state),
            timers=tuple(timers),
            outputs=outputs,
            watermark=watermark,
            tells=tells,
            inbox_limit_bytes=inbox_limit_bytes,
        )

    def send(self, commit: Commit, **changes: Any) -> Answer:
        """Send a commit, with some of its fields replaced."""
        return self.store.call(structs.replace(commit, **changes))

    def commit(self, shard: str, *outputs: Output, **fields: Any) -> None:
        """Send the next commit of an owned shard (`fields` as for `next_commit`), which must be OK."""
        assert self.store.call(self.next_commit(shard, *outputs, **fields)) is Answer.OK
        self.numbers[shard] += 1

    def fetch(self, ready: str, *, bytes_max: int = 10_000, shards_max: int = 100, **fields: Any) -> Fetched:
        return self.store.call(Fetch(ready, bytes_max, shards_max, **fields))

    def fetch_one(self, shard: str, worker: str = "w1") -> tuple[Entry, ...]:
        """The entries of `shard`, which must be the only one on its owner's ready list."""
        fetched = self.fetch(f"{shard.split('/')[0]}@{worker}")
        assert [one.shard for one in fetched.shards] == [shard]
        return fetched.shards[0].entries

    def fetch_names(self, ready: str, **limits: int) -> list[str]:
        return [one.shard for one in self.fetch(ready, **limits).shards]

    def append(
        self, target: str, number: int, payload: bytes = b"x", *, producer: str = "far/0", rows: int = 1
    ) -> Answer | Moved:
        return self.store.call(Append(producer, target, number, payload, rows, NOW_US))

    def fill(self, target: str, *sizes: int) -> None:
        """Append entries of these sizes to an inbox, as another store's sender would."""
        for size in sizes:
            self.appended[target] = self.appended.get(target, 0) + 1
            answer = self.append(target, self.appended[target], b"f" * size, producer="filler/0")
            assert answer is Answer.OK

    def outbox(self, producer: str, target: str, bytes_max: int = 10_000) -> list[tuple[int, bytes]]:
        """Numbers and payloads of the waiting entries of a pair."""
        return [(e[0], e[3]) for e in self.store.call(ReadOutbox(producer, target, bytes_max))]

    def outgoing(self) -> list[tuple[str, str]]:
        return sorted(self.store.call(Outgoing(100)))

    def acknowledge(self, producer: str, target: str, number: int, position: bytes = b"") -> Answer:
        return self.store.call(Acknowledge(producer, target, number, position))

    def intend(self, shard: str, target: str, intent: bytes, **changes: int) -> Answer:
        """Under the scene's own claim, with some of its fields replaced."""
        claimed = self.claims[shard]
        call = Intend(shard, claimed.generation, claimed.epoch, target, intent)
        return self.store.call(replace(call, **changes))

    def measure(self, shard: str) -> ShardCounters:
        (counters,) = self.store.call(Measure((shard,)))
        assert counters is not None
        return counters
