"""What keeps the twin honest: random calls give the same answers and the same end on both adapters."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from backends.store_backends import MemoryBackend
from backends.store_fixtures import RedisBackend
from penstock.store.port import (
    Acknowledge,
    Advance,
    Advancing,
    Answer,
    Append,
    Assignment,
    Bounds,
    Claim,
    ClearFailure,
    Commit,
    Create,
    Enroll,
    Failures,
    Fetch,
    Fetched,
    Intend,
    Load,
    Measure,
    MintStart,
    NodeStore,
    OpenStore,
    Outgoing,
    Output,
    Owner,
    Publish,
    PutMetrics,
    ReadFacts,
    ReadMetrics,
    ReadOutbox,
    ReadWatermark,
    ReportFailure,
    Request,
    Scan,
    SetTasks,
    StateSnapshot,
    StateWrite,
    TakeFacts,
    Tasks,
    TimerWrite,
    ToldOperators,
    Topologies,
    WaitControl,
    WaitReady,
    Wake,
    Watermark,
    WatermarkFact,
)
from scenes.store_scenario import SMALL

SHARDS = ("src/0", "src/1", "mid/0", "mid/1")
TARGETS = (*SHARDS[2:], "far/0", "far/1")
WORKERS = ("w1", "w2")
READY = ("r1", "r2", "r3")
PRODUCERS = (("src",), ("src",), ("mid",), ("src", "mid"))
KEYED = ((), ("mid",), ("src", "mid"))
# A commit that has more to drain than its budget picks targets by chance; these never do.
GENEROUS = replace(SMALL, drain_entries_max=1000, drain_bytes_max=100_000)


class Script:
    """Random calls that mostly make sense: numbers, epochs and offsets are near what they should be."""

    def __init__(self, rng: random.Random, targets: tuple[str, ...]) -> None:
        self._rng = rng
        self._targets = targets
        self._now_us = 1_000
        self._entries: dict[str, Any] = {}
        self._appended: dict[tuple[str, str], int] = {}
        self._last_commit: Commit | None = None

    def next_call(self, store: NodeStore) -> Request[Any]:
        """A call made with a look at `store`, which it does not change."""
        kinds = (
            (30, self._commit), (25, self._fetch), (3, self._claim), (7, self._append),
            (24, self._acknowledge), (3, self._intend),
            (4, self._create), (2, self._publish), (1, self._enroll), (3, self._set_tasks), (2, self._wake),
            (1, self._mint),
            (2, self._repeat), (2, self._load), (1, self._report), (0.3, self._open), (1, self._metrics),
            (1, lambda _: ClearFailure("mid")), (6, self._advance), (2, self._take_facts),
        )  # fmt: skip
        (make,) = self._rng.choices([make for _, make in kinds], [weight for weight, _ in kinds])
        call = make(store)
        if not isinstance(call, Commit | Fetch | Append) or self._rng.random() >= 0.15:
            return call
        return (structs.replace if isinstance(call, Commit) else replace)(call, pressed=True)

    def note(self, call: Request[Any], answer: object) -> None:
        """Remember what a fetch handed out, to be worked off by later commits."""
        if isinstance(answer, Fetched):
            for one in answer.shards:
                self._entries[one.shard] = one.entries
        if isinstance(call, Commit):
            self._last_commit = call
        if isinstance(call, Append) and answer is Answer.OK:
            self._appended[call.producer, call.target] = call.number

    def _near(self, value: int) -> int:
        return value + (self._rng.choice((-1, 1)) if self._rng.random() < 0.04 else 0)

    def _counters(self, store: NodeStore, shard: str) -> Any:
        return store.call(Measure((shard,)))[0]

    def _commit(self, store: NodeStore) -> Request[Any]:
        rng = self._rng
        shard = rng.choice([*self._entries] if self._entries and rng.random() < 0.7 else SHARDS)
        seen = self._counters(store, shard)
        entries = self._entries.pop(shard, ())
        if rng.random() < 0.2:
            entries = entries[: rng.randint(0, len(entries))]
        self._now_us += 1
        return Commit(
            shard=shard,
            generation=self._near(seen.generation) if seen else 1,
            epoch=self._near(seen.epoch) if seen else 1,
            number=self._near(seen.commit + 1) if seen else 1,
            table_version=int(rng.random() < 0.02),
            now_us=self._now_us,
            offset=entries[-1].number if entries else 0,
            consumed_bytes=sum(len(entry.payload) for entry in entries),
            consumed_rows=len(entries),
            position=rng.choice((None, b"", b"\x00p%d" % rng.randint(0, 9))),
            finished=rng.random() < 0.02,
            again=rng.random() < 0.6,
            state=tuple(self._state_write() for _ in range(rng.randint(0, 3))),
            timers=tuple(
                TimerWrite(b"t%d" % rng.randint(0, 2), rng.choice((None, rng.randint(0, 99))))
                for _ in range(rng.randint(0, 3))
            ),
            outputs=tuple(self._output(shard) for _ in range(rng.choice((0, 0, 0, 1, 1, 4)))),
            watermark=rng.choice((None, self._watermark())),
            tells=rng.random() < 0.8,
            inbox_limit_bytes=rng.choice((None, None, 0, 1, 30)),
        )

    def _watermark(self) -> Watermark:
        rng = self._rng
        return Watermark(rng.choice((None, *range(-9, 99, 7))), rng.random() < 0.2)

    def _advance(self, store: NodeStore) -> Request[Any]:
        shards = [shard for shard in SHARDS if self._counters(store, shard)]
        seen = {
            shard: self._counters(store, shard) for shard in self._rng.sample(shards, min(2, len(shards)))
        }
        advancing = tuple(Advancing(s, of.generation, self._near(of.epoch)) for s, of in seen.items())
        return Advance(self._rng.choice(PRODUCERS), advancing, self._rng.choice(KEYED))

    def _take_facts(self, _: NodeStore) -> Request[Any]:
        rng = self._rng
        return TakeFacts(
            "src",
            (
                WatermarkFact(
                    rng.choice(SHARDS[:2]),
                    rng.choice((0, 1 << 32, 2 << 32)) + rng.randint(1, 40),
                    self._watermark(),
                ),
            ),
        )

    def _state_write(self) -> StateWrite:
        rng = self._rng
        collection = rng.choice((b"", b"c", b"d"))
        if collection and rng.random() < 0.1:
            return StateWrite(collection, None, None)
        return StateWrite(
            collection, b"f%d" % rng.randint(0, 2), rng.choice((None, b"", b"v%d" % rng.randint(0, 9)))
        )

    def _output(self, producer: str) -> Output:
        payload = b"x" * self._rng.choice((1, 1, 1, 1, 20, 60))
        if self._rng.random() < 0.15:
            return Output("files", payload, 1, external=True)
        downstream = [target for target in self._targets if target.split("/")[0] != producer.split("/")[0]]
        return Output(self._rng.choice(downstream or ["far/9"]), payload, self._rng.randint(1, 3))

    def _repeat(self, store: NodeStore) -> Request[Any]:
        return self._last_commit or self._commit(store)

    def _fetch(self, _: NodeStore) -> Request[Any]:
        rng = self._rng
        fetch = Fetch(rng.choice(READY), rng.choice((1, 50, 1000)), rng.randint(1, 3))
        if rng.random() < 0.5:
            return fetch
        timed = replace(fetch, now_ms=rng.randint(0, 99), timers_max=rng.choice((1, 4, 100)))
        if rng.random() < 0.5:
            return timed
        return replace(timed, producers=rng.choice(PRODUCERS), keyed=rng.choice(KEYED))

    def _claim(self, store: NodeStore) -> Request[Any]:
        rng = self._rng
        shard = rng.choice(SHARDS)
        assigned = [
            worker
            for worker in WORKERS
            if any(shard in executor.shards for executor in store.call(Assignment(worker)).executors)
        ]
        worker = rng.choice(assigned if assigned and rng.random() < 0.9 else WORKERS)
        executor = f"{shard.split('/')[0]}@{worker}"
        owner = Owner(executor, f"uid-{worker}/0/{1 + (rng.random() < 0.1)}", rng.choice(READY))
        return Claim(shard, owner, rng.choice((1, 9, 9, 9, 9, 9)))

    def _append(self, store: NodeStore) -> Request[Any]:
        rng = self._rng
        producer, target = rng.choice(("near/0", "near/1")), rng.choice(TARGETS[:2])
        number = max(1, self._near(self._appended.get((producer, target), 0) + 1))
        return Append(producer, target, number, b"a" * rng.choice((1, 1, 30, 120)), 1, self._now_us)

    def _acknowledge(self, store: NodeStore) -> Request[Any]:
        rng = self._rng
        pairs = [
            pair
            for pair in itertools.product(SHARDS, (*self._targets[-2:], "files"))
            if store.call(ReadOutbox(*pair, 1))
        ]
        producer, target = rng.choice(pairs or [("src/0", "far/0")])
        waiting = store.call(ReadOutbox(producer, target, 1000))
        number = rng.choice(waiting[-2:])[0] if waiting else rng.randint(1, 12)
        position = b"at %d" % number if target == "files" else b""
        return Acknowledge(producer, target, self._near(number), position)

    def _intend(self, store: NodeStore) -> Request[Any]:
        commit = self._commit(store)
        target = self._rng.choice(("files", "files", "wire"))
        return Intend(commit.shard, commit.generation, commit.epoch, target, b"to %d" % self._now_us)

    def _create(self, _: NodeStore) -> Request[Any]:
        shard = self._rng.choice((*SHARDS, *SHARDS, "far/0"))
        return Create(shard, 0, b"start", shard.startswith("src"))

    def _publish(self, _: NodeStore) -> Request[Any]:
        rng = self._rng
        operator = rng.choice(("src", "mid"))
        workers = rng.choice((WORKERS, WORKERS, WORKERS[:1]))
        return Publish(
            operator,
            rng.randint(1, 9),
            rng.choice((1, 1, 1, 2)),
            tuple((worker, "n", "h", rng.choice((f"uid-{worker}",) * 40 + ("new",))) for worker in workers),
            tuple((f"{operator}@{worker}", worker, rng.randint(1, 2)) for worker in workers),
            tuple(
                (s, f"{operator}@{rng.choice(workers)}", rng.choice(("s", "s", "s", "elsewhere")))
                for s in SHARDS
                if s.startswith(operator)
            ),
        )

    def _enroll(self, _: NodeStore) -> Request[Any]:
        worker = self._rng.choice(WORKERS)
        return Enroll(
            worker, self._rng.choice((f"uid-{worker}",) * 40 + ("new",)), 0, self._rng.choice((1, 1, 1, 2))
        )

    def _mint(self, _: NodeStore) -> Request[Any]:
        return MintStart(self._rng.choice(WORKERS))

    def _set_tasks(self, _: NodeStore) -> Request[Any]:
        rng = self._rng
        worker = rng.choice(WORKERS)
        mapping = tuple((shard, rng.choice(READY)) for shard in ("mid/0", "mid/1"))
        idle = tuple(rng.sample(READY, rng.choice((0, 0, 1))))
        return SetTasks(worker, f"uid-{worker}/0/{rng.choice((1, 1, 2))}", f"mid@{worker}", mapping, idle)

    def _wake(self, _: NodeStore) -> Request[Any]:
        return Wake(self._rng.choice(READY))

    def _load(self, store: NodeStore) -> Request[Any]:
        shard = self._rng.choice(SHARDS)
        seen = self._counters(store, shard)
        epoch = self._near(seen.epoch) if seen else 1
        generation = seen.generation if seen else 1
        if self._rng.random() < 0.5:
            return Scan(shard, generation, epoch, b"c", "0", 1000)
        return Load(shard, generation, epoch, self._rng.choice((b"", b"c")), (b"f0", b"f1", b"f2"))

    def _report(self, store: NodeStore) -> Request[Any]:
        seen = self._counters(store, "mid/0")
        epoch, generation = (self._near(seen.epoch), seen.generation) if seen else (1, 1)
        return ReportFailure("mid/0", generation, epoch, "mid", f"at {self._now_us}")

    def _open(self, _: NodeStore) -> Request[Any]:
        return OpenStore("s", self._rng.choice(("", "run 1", "run 2")))

    def _metrics(self, _: NodeStore) -> Request[Any]:
        return PutMetrics(((self._rng.choice("ab"), b"%d" % self._now_us),))


def beginning() -> list[Request[Any]]:
    """Calls after which shards can be owned."""
    script: list[Request[Any]] = [OpenStore("s")]
    script += [
        Publish(
            operator, 1, 1,
            tuple((worker, "n", "h", f"uid-{worker}") for worker in WORKERS),
            tuple((f"{operator}@{worker}", worker, 1) for worker in WORKERS),
            tuple((shard, f"{operator}@w1", "s") for shard in SHARDS if shard.startswith(operator)),
        )
        for operator in ("src", "mid")
    ]  # fmt: skip
    script += [Enroll(worker, f"uid-{worker}", 0, 1) for worker in WORKERS]
    script += [Create(shard, 0, b"start", shard.startswith("src")) for shard in SHARDS[:3]]
    script += [
        Claim(shard, Owner(f"{shard[:3]}@w1", "uid-w1/0/1", READY[i % 2]), 1)
        for i, shard in enumerate(SHARDS[:3])
    ]
    return script


def state_of(store: NodeStore) -> list[object]:
    """Everything that can be seen of a store without changing it, and then its ready lists."""
    seen: list[object] = list(store.call(Measure(SHARDS)))
    seen += [store.call(StateSnapshot(shard)) for shard in SHARDS]
    seen += [
        store.call(ReadOutbox(producer, target, 100_000))
        for producer in SHARDS
        for target in (*TARGETS, "files")
    ]
    seen.append(sorted(store.call(Outgoing(1000))))
    seen += [store.call(Assignment(worker)) for worker in WORKERS]
    seen += [store.call(WaitControl(worker, -1, 0)) for worker in WORKERS]
    seen += [store.call(Tasks(f"mid@{worker}", "mid")) for worker in WORKERS]
    seen += [store.call(Failures()), store.call(ReadMetrics()), store.call(Topologies())]
    seen += [store.call(ReadWatermark(producers, keyed)) for producers in PRODUCERS for keyed in KEYED]
    seen += [store.call(ReadFacts(operator)) for operator in ("src", "mid")]
    seen.append(store.call(ToldOperators()))
    seen += [store.call(WaitReady(ready, 0)) for ready in READY]
    seen += [store.call(Fetch(ready, 100_000, 100, now_ms=50, timers_max=400)) for ready in READY]
    return seen


def in_order(call: Request[Any], answer: Any) -> Any:
    """An answer as it is compared: a scan's chunk has no order."""
    return (answer[0], sorted(answer[1])) if isinstance(call, Scan) and isinstance(answer, tuple) else answer


@pytest.fixture(scope="module")
def twins(redis_backend: RedisBackend) -> Iterator[RedisBackend]:
    yield redis_backend
    redis_backend.empty()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("bounds", "targets"),
    [(GENEROUS, TARGETS), (SMALL, TARGETS[:1]), (SMALL, TARGETS[2:3])],
    ids=["several targets", "one target", "one target elsewhere"],
)
@pytest.mark.parametrize("seed", range(12))
def test_both_adapters_answer_the_same_and_end_the_same(
    twins: RedisBackend, bounds: Bounds, targets: tuple[str, ...], seed: int
) -> None:
    twins.empty()
    stores: tuple[NodeStore, NodeStore] = (
        MemoryBackend().open_store(bounds=bounds),
        twins.open_store("n1", "t1", bounds),
    )
    rng = random.Random(f"{seed} {targets}")
    script = Script(rng, targets)
    history: list[str] = []
    first = beginning()
    for step in range(400):
        call = first[step] if step < len(first) else script.next_call(stores[0])
        memory, redis = (in_order(call, store.call(call)) for store in stores)
        history.append(f"{call} -> {memory}")
        assert memory == redis, "\n".join(history[-8:])
        script.note(call, memory)
        if step % 100 == 99:
            for seen, real in zip(*(state_of(store) for store in stores), strict=True):
                assert seen == real, "\n".join(history[-8:])
