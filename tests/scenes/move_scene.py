"""Two node stores and shards that go from one to the other, for the tests of moves.

Store "s1" is node n1 with worker w1, "s2" is node n2 with w2; a shard's executor is in the worker of its
home. A `Scene` for each stands for what owners there know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from backends.store_backends import Backend, LossyStore
from penstock.store.moving.mover import go_back_once, move_once
from penstock.store.moving.progress import MoveProgress, MoveStep
from penstock.store.port import Answer, Assignment, Bounds, Moved, NodeStore, Publish
from penstock.store.port.moves import (
    Chunk,
    Depart,
    Export,
    Freeze,
    Install,
    Installed,
    Move,
    MoveState,
    NextRound,
    Precopy,
    ReadMove,
)
from scenes.delivery_pass import deliver_once
from scenes.store_scenario import SHARDS, SMALL, Scene

CHUNKED = replace(SMALL, chunk_bytes_max=60, chunk_entries_max=4)
"""Bounds under which a shard takes many chunks."""

WORKERS = {"s1": "w1", "s2": "w2"}


class MoveScene:
    """All shards begin at s1 unless `homes` says otherwise, created and claimed."""

    def __init__(self, backend: Backend, *, bounds: Bounds = CHUNKED, **homes: str) -> None:
        self.version = 1
        self.workers = dict(WORKERS)
        """Whom the schedules name, by home; a test may have them drop one."""
        self.homes = dict.fromkeys(SHARDS, "s1") | {name.replace("_", "/"): s for name, s in homes.items()}
        self.at = {
            "s1": Scene(backend.open_store("n1", bounds=bounds)),
            "s2": Scene(backend.open_store("n2", bounds=bounds)),
        }
        for store_id, scene in self.at.items():
            scene.open(store_id)
        self.publish()
        for store_id, scene in self.at.items():
            assert scene.enroll(WORKERS[store_id]) is Answer.OK
            for shard, home in self.homes.items():
                if home == store_id:
                    scene.create(shard)
                    self.claim(shard)

    @property
    def a(self) -> Scene:
        return self.at["s1"]

    @property
    def b(self) -> Scene:
        return self.at["s2"]

    def publish(self) -> None:
        """The present homes, under the present version, to both stores."""
        for operator in ("src", "mid", "end"):
            call = Publish(
                operator=operator,
                version=self.version,
                term=1,
                workers=tuple((w, f"node-{s}", f"host-{s}", f"uid-{w}") for s, w in self.workers.items()),
                executors=tuple((f"{operator}@{w}", w, 1) for w in self.workers.values()),
                shards=tuple(
                    (shard, f"{operator}@{WORKERS[home]}", home)
                    for shard, home in self.homes.items()
                    if shard.startswith(operator)
                ),
            )
            for scene in self.at.values():
                scene.store.call(call)

    def send_home(self, shard: str, store_id: str) -> None:
        """A new schedule version makes `store_id` the shard's home."""
        self.version += 1
        self.homes[shard] = store_id
        self.publish()

    def send_all_away(self) -> None:
        """A new schedule version makes s2 all shards' home, and names nobody at s1."""
        self.version += 1
        self.homes = dict.fromkeys(self.homes, "s2")
        self.workers = {"s2": "w2"}
        self.publish()

    def assigned(self, store_id: str) -> dict[str, tuple[str, ...]]:
        """Executor -> shards, as the store tells its worker."""
        executors = self.at[store_id].store.call(Assignment(WORKERS[store_id])).executors
        return {executor.executor: executor.shards for executor in executors}

    def store_of(self, store_id: str) -> NodeStore | None:
        return self.at[store_id].store if store_id in self.at else None

    def home_of(self, shard: str) -> NodeStore | None:
        return self.store_of(self.homes.get(shard, ""))

    def claim(self, shard: str) -> None:
        """The shard's owner at its home claims it."""
        home = self.homes[shard]
        self.at[home].claim(shard, worker=WORKERS[home], version=self.version)

    # --- calls of a move

    def precopy(self, shard: str, target: str = "s2", source: str = "s1") -> Move:
        """Begin to copy a shard whose home is `target` from now on."""
        if self.homes[shard] != target:
            self.send_home(shard, target)
        move = self.try_precopy(shard, target, source)
        assert isinstance(move, Move), move
        return move

    def try_precopy(self, shard: str, target: str = "s2", source: str = "s1") -> Move | Answer | Moved:
        return self.at[source].store.call(Precopy(shard, target, self.version))

    def try_freeze(self, shard: str, move: Move, resume: bytes = b"") -> Chunk | Answer | Moved:
        return self.at[move.source].store.call(Freeze(shard, move, self.version, resume))

    def freeze(self, shard: str, target: str = "s2", source: str = "s1") -> Move:
        """Freeze a shard of which nothing was copied: the rest is all of it."""
        move = self.precopy(shard, target, source)
        assert isinstance(self.try_freeze(shard, move), Chunk)
        return move

    def freeze_here(self, shard: str, move: Move) -> Answer:
        """Freeze a shard where the target's copy is."""
        answer = self.try_freeze(shard, move, self.held(shard, move).resume)
        assert isinstance(answer, Chunk), answer
        return Answer.OK

    def next_round(self, shard: str, move: Move, resume: bytes) -> Answer:
        return self.at[move.source].store.call(NextRound(shard, move, resume))

    def copy_round(self, shard: str, move: Move) -> Installed:
        """One more round of a pre-copy, whole."""
        held = self.held(shard, move)
        assert self.next_round(shard, move, held.resume) is Answer.OK
        return self.copy_on(shard, move, until=held.rounds + 1)

    def copy_on(self, shard: str, move: Move, *, until: int = 1 << 30) -> Installed:
        """Chunk by chunk from where the target is, until it has all, or so many rounds."""
        held = self.held(shard, move)
        for _ in range(2_000):
            chunk = self.at[move.source].store.call(Export(shard, move, held.resume))
            assert isinstance(chunk, Chunk), chunk
            answer = self.install(shard, move, chunk, held.chunks + 1)
            assert isinstance(answer, Installed), answer
            held = answer
            if held.complete or held.rounds >= until:
                return held
        raise AssertionError("a copy goes on for ever")

    def held(self, shard: str, move: Move) -> Installed:
        """What the target holds of this move."""
        state = self.state(shard, move.target)
        if state is None or state.installed is None or state.move != move:
            return Installed(0, b"", complete=False)
        return state.installed

    def chunks(self, shard: str, move: Move) -> Iterator[Chunk]:
        resume = b""
        while True:
            chunk = self.at[move.source].store.call(Export(shard, move, resume))
            assert isinstance(chunk, Chunk), chunk
            yield chunk
            if chunk.is_last:
                return
            resume = chunk.resume

    def install(
        self, shard: str, move: Move, chunk: Chunk, number: int, into: str = ""
    ) -> Installed | Answer:
        return self.at[into or move.target].store.call(Install(shard, move, number, chunk))

    def copy(self, shard: str, move: Move) -> None:
        """All chunks, each as often as the target clears what it had before."""
        for number, chunk in enumerate(self.chunks(shard, move), start=1):
            for _ in range(100):
                answer = self.install(shard, move, chunk, number)
                assert isinstance(answer, Installed), answer
                if answer.chunks == number:
                    break
        assert answer.complete

    def rest(self, shard: str, move: Move) -> int:
        """Freeze at the end of the round, copy the rest, depart, activate, claim; the rest's bytes."""
        source = self.at[move.source].store
        chunk = self.try_freeze(shard, move, self.held(shard, move).resume)
        assert isinstance(chunk, Chunk), chunk
        size = len(chunk.payload)
        held = self.install(shard, move, chunk, self.held(shard, move).chunks + 1)
        while not held.complete:  # type: ignore[union-attr]
            chunk = source.call(Export(shard, move, self.held(shard, move).resume))
            assert isinstance(chunk, Chunk)
            size += len(chunk.payload)
            held = self.install(shard, move, chunk, self.held(shard, move).chunks + 1)
        assert source.call(Depart(shard, move)) is Answer.OK
        assert self.move_once(shard, source=move.source, target=move.target).step is MoveStep.DONE
        self.claim(shard)
        return size

    def state(self, shard: str, store_id: str) -> MoveState | None:
        return self.at[store_id].store.call(ReadMove(shard))

    def status(self, shard: str) -> list[str]:
        """The shard's status in both stores, "" where it was never."""
        states = [self.state(shard, store_id) for store_id in self.at]
        return [state.status.value if state else "" for state in states]

    # --- whole moves

    def move_once(
        self, shard: str, *, source: str = "s1", target: str = "s2", chunks_max: int = 16
    ) -> MoveProgress:
        store = self.at[source].store
        return move_once(
            store, self.store_of, shard, target_id=target, version=self.version, chunks_max=chunks_max
        )

    def move(self, shard: str, target: str = "s2", chunks_max: int = 16) -> int:
        """A whole move to `target`, and a claim there; answers how many bytes were copied."""
        source = next(store_id for store_id in self.at if store_id != target)
        if self.homes[shard] != target:
            self.send_home(shard, target)
        copied = 0
        for _ in range(500):
            progress = self.move_once(shard, source=source, target=target, chunks_max=chunks_max)
            copied += progress.copied_bytes
            assert progress.obstacle is None, progress
            if progress.step is MoveStep.DONE:
                self.claim(shard)
                return copied
        raise AssertionError(progress)

    def move_with_a_loss(
        self, shard: str, source: str, target: str, failing: str, fails_at: int, *, reply_lost: bool
    ) -> int:
        """A whole move whose driver loses a call to `failing`; answers how many it made there."""
        lossy = LossyStore(self.at[failing].store, fails_at, reply_lost=reply_lost)
        stores: dict[str, NodeStore] = {name: scene.store for name, scene in self.at.items()}
        stores[failing] = lossy
        for _ in range(500):
            progress = move_once(
                stores[source], stores.get, shard, target_id=target, version=self.version, chunks_max=2
            )
            if progress.step is MoveStep.DONE:
                return lossy.calls
        raise AssertionError(progress)

    def go_back(self, shard: str) -> MoveProgress:
        return go_back_once(self.a.store, self.store_of, shard)

    def deliver(self) -> None:
        """Both senders, until nothing of either goes any further."""
        for _ in range(100):
            passes = [deliver_once(scene.store, self.home_of) for scene in self.at.values()]
            if not any(one.more for one in passes):
                return
        raise AssertionError("a sender goes on for ever")
