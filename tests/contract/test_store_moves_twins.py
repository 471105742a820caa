"""What keeps the twin honest about moves: the same work around the same moves ends the same on both adapters.

How much a chunk holds is each adapter's own affair, so the copies are compared when they are complete; while
they are not, only the source is worked on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backends.store_backends import MemoryBackend
from backends.store_fixtures import RedisBackend
from penstock.store.port import (
    Acknowledge,
    Answer,
    Append,
    Claimed,
    Fetch,
    Measure,
    Outgoing,
    ReadOutbox,
    StateSnapshot,
    StateWrite,
    TimerWrite,
)
from penstock.store.port.moves import Activate, Depart, Discard, Drop, Move, Precopy, Thaw
from scenes.delivery_pass import deliver_once
from scenes.move_scene import WORKERS, MoveScene
from scenes.store_scenario import SHARDS, out

X = "mid/0"
TARGETS = ("end/0", "end/1", "far/0")


class Twins:
    """Two scenes in which everything is done alike; `random` decisions are made once."""

    def __init__(self, scenes: tuple[MoveScene, MoveScene], rng: random.Random) -> None:
        self.scenes = scenes
        self.rng = rng
        self.history: list[str] = []
        self._appended: dict[str, int] = {}

    def alike(self, what: str, do: Callable[[MoveScene], Any]) -> Any:
        """Do something in both scenes; the answers must be the same."""
        memory, redis = (do(scene) for scene in self.scenes)
        self.history.append(f"{what} -> {memory}")
        assert memory == redis, "\n".join(self.history[-12:])
        return memory

    def call(self, store_id: str, call: Any) -> Any:
        return self.alike(f"{store_id} {call}", lambda scene: scene.at[store_id].store.call(call))

    def home(self, shard: str) -> str:
        return self.scenes[0].homes[shard]

    def work(self, shards: tuple[str, ...], *, send: tuple[str, ...] = ("s1", "s2")) -> None:
        """Some random work of these shards' owners, of senders and of sinks."""
        for _ in range(self.rng.randint(1, 12)):
            kind = self.rng.random()
            shard = self.rng.choice(shards)
            if kind < 0.45:
                self.commit(shard)
            elif kind < 0.52:
                self.append(self.home(X))
            elif kind < 0.8:
                self.acknowledge(shard)
            elif send:
                store_id = self.rng.choice(send)
                self.alike(
                    f"deliver {store_id}",
                    lambda scene, store_id=store_id: (
                        deliver_once(scene.at[store_id].store, scene.home_of).obstacles
                    ),
                )

    def commit(self, shard: str) -> None:
        rng = self.rng
        outputs = [out("files", b"f" * rng.randint(1, 9), external=True)] if rng.random() < 0.3 else []
        targets = (X,) if shard.startswith("src") else TARGETS if shard == X else ()
        outputs += [
            out(rng.choice(targets), b"x" * rng.choice((1, 1, 30, 70)))
            for _ in range(rng.choice((0, 1, 1, 3)))
            if targets
        ]
        state = tuple(
            StateWrite(
                rng.choice((b"", b"c", b"d", b"e")), b"%d" % rng.randint(0, 5), rng.choice((None, b"v"))
            )
            for _ in range(rng.randint(0, 4))
        )
        timers = (TimerWrite(b"%d" % rng.randint(0, 3), rng.choice((None, 5))),)

        def work(scene: MoveScene) -> Any:
            store_id = scene.homes[shard]
            at = scene.at[store_id]
            if shard not in at.claims:
                return None
            ready = f"{shard.split('/')[0]}@{WORKERS[store_id]}"
            fetched = at.store.call(Fetch(ready, 10_000, 100))
            entries = next((one.entries for one in fetched.shards if one.shard == shard), ())
            commit = at.next_commit(
                shard, *outputs, entries=entries, again=True, state=state, timers=timers, position=b"p"
            )
            answer = at.store.call(commit)
            if answer is Answer.OK:
                at.numbers[shard] += 1
            for one in fetched.shards:
                if one.shard != shard:
                    at.claim(one.shard, worker=WORKERS[store_id], version=scene.version)
            return fetched.shards and (entries, answer)

        self.alike(f"work of {shard}", work)

    def append(self, store_id: str) -> None:
        number = self._appended.get(X, 0) + 1
        answer = self.call(store_id, Append("up/0", X, number, b"a" * self.rng.choice((1, 40)), 1, 1))
        if answer is Answer.OK:
            self._appended[X] = number

    def acknowledge(self, shard: str) -> None:
        target = self.rng.choice(("files", "far/0"))
        waiting = self.call(self.home(shard), ReadOutbox(shard, target, 10_000))
        if waiting:
            number = self.rng.choice(waiting)[0]
            self.call(self.home(shard), Acknowledge(shard, target, number, b"at %d" % number))

    def freeze(self, target: str) -> Move:
        source = self.home(X)
        move = self.alike(f"freeze for {target}", lambda scene: scene.freeze(X, target, source))
        assert isinstance(move, Move)
        return move

    def claim(self) -> None:
        def claim(scene: MoveScene) -> Claimed:
            scene.claim(X)
            return scene.at[scene.homes[X]].claims[X]

        self.alike("claim", claim)

    def repeat(self, store_id: str, call: Any) -> None:
        """Until there is no more to do; how often is each adapter's own affair."""

        def until_done(scene: MoveScene) -> Any:
            for _ in range(100):
                if (answer := scene.at[store_id].store.call(call)) is not Answer.MORE:
                    return answer
            raise AssertionError("there is always more")

        self.alike(f"{store_id} {call}", until_done)

    def compare(self) -> None:
        for store_id in ("s1", "s2"):
            self.call(store_id, Measure(SHARDS))
            self.alike(f"assigned by {store_id}", lambda scene, s=store_id: scene.assigned(s))
            self.alike("outgoing", lambda scene, s=store_id: sorted(scene.at[s].store.call(Outgoing(100))))
            for shard in SHARDS:
                self.call(store_id, StateSnapshot(shard))
                for target in (*TARGETS, X, "files"):
                    self.call(store_id, ReadOutbox(shard, target, 10_000))


@pytest.fixture(scope="module")
def twins_backend(redis_backend: RedisBackend) -> Iterator[RedisBackend]:
    yield redis_backend
    redis_backend.empty()


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(30))
def test_moves_with_work_around_them_end_the_same_on_both_adapters(
    twins_backend: RedisBackend, seed: int
) -> None:
    twins_backend.empty()
    rng = random.Random(seed)
    twins = Twins((MoveScene(MemoryBackend(), end_1="s2"), MoveScene(twins_backend, end_1="s2")), rng)
    others = ("src/0", "src/1", "end/0")
    for _ in range(8):
        source = twins.home(X)
        target = "s2" if source == "s1" else "s1"
        twins.work((X, X, *others, "end/1"))
        move = twins.freeze(target)
        twins.work((X, *others), send=())
        twins.alike("copy", lambda scene, move=move: scene.copy(X, move))
        if rng.random() < 0.3:
            twins.alike("home", lambda scene, source=source: scene.send_home(X, source))
            twins.call(source, Thaw(X, move))
            twins.work(others)
            twins.repeat(target, Discard(X, move))
            twins.claim()
            continue
        twins.compare()
        twins.work((X, *others))
        twins.call(source, Depart(X, move))
        twins.work((*others, "end/1"))
        twins.call(target, Activate(X, move))
        twins.claim()
        if rng.random() < 0.5:
            twins.work((X, *others, "end/1"))
        if rng.random() < 0.8:
            twins.repeat(source, Drop(X, move))
        twins.compare()


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(30))
def test_moves_that_are_copied_in_rounds_end_the_same_on_both_adapters(
    twins_backend: RedisBackend, seed: int
) -> None:
    """Work between the rounds, and in between a claim: what the rest brings is the same, and all of it."""
    twins_backend.empty()
    rng = random.Random(1_000 + seed)
    twins = Twins((MoveScene(MemoryBackend(), end_1="s2"), MoveScene(twins_backend, end_1="s2")), rng)
    others = ("src/0", "src/1", "end/0", "end/1")
    for _ in range(5):
        source = twins.home(X)
        target = "s2" if source == "s1" else "s1"
        twins.work((X, X, *others))
        twins.alike("home", lambda scene, target=target: scene.send_home(X, target))
        move = twins.call(source, Precopy(X, target, twins.scenes[0].version))
        assert isinstance(move, Move)
        for scene in twins.scenes:
            # its owner goes on where it was
            scene.homes[X] = source
        for _ in range(rng.randint(1, 4)):
            twins.work((X, X, *others))
            if rng.random() < 0.3:
                twins.claim()
            twins.alike("round", lambda scene, move=move: scene.copy_round(X, move).rounds)
        twins.work((X, X, *others))
        for scene in twins.scenes:
            scene.homes[X] = target
        if rng.random() < 0.2:
            twins.alike("home", lambda scene, source=source: scene.send_home(X, source))
            twins.call(source, Thaw(X, move))
            twins.repeat(target, Discard(X, move))
            twins.claim()
            continue
        before = twins.call(source, StateSnapshot(X))
        twins.alike("freeze", lambda scene, move=move: scene.freeze_here(X, move))
        twins.alike("rest", lambda scene, move=move: scene.copy_on(X, move).complete)
        assert twins.call(target, StateSnapshot(X)) == before
        twins.call(source, Depart(X, move))
        twins.call(target, Activate(X, move))
        twins.claim()
        twins.repeat(source, Drop(X, move))
        twins.compare()
