"""Sinks that are written in batches, under seeded faults: each committed entry is in once, in its order.

Two tasks take one another's shards at any moment, also in the middle of a turn: between any two calls of
store and sink the other one may claim, commit and write, a call may fail before or after it took effect, a
task may die. The lanes, intents, turns and names are the product's, store and sink are twins.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.errors import RetryError
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.ownership import OwnedShard
from penstock.store.port import Answer, Bounds, Claimed, Commit, Output, StoreUnreachable
from penstock_simulation.twins.memory_transactions import MemoryTransactionLog
from penstock_worker.sinks.batches.lane import Lane
from penstock_worker.sinks.batches.transactional import TransactionalWriter
from penstock_worker.sinks.batches.turns import PATIENCE_US, BatchTurns
from penstock_worker.sinks.batches.writer import BatchWriter, InDoubt, Outcome, Part
from scenes.meddled_store import Died, MeddledStore
from scenes.store_scenario import Scene
from scenes.task_scene import TurnedClock

SHARDS = ("mid/0", "mid/1", "end/0")
SINK = "wire"
STEPS = 60
SEEDS = 400
DEPTH_MAX = 2


class Task:
    """A task's loop as far as the sink sees it, and the thread beside it."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self.owned: dict[str, OwnedShard] = {}
        log = world.log
        writer = world.writer(log, f"{name}.{world.starts}", 0)
        store = MeddledStore(world.scene.store, world.at)
        self.turns = world.turns(SINK, writer, store, world.clock)
        self.is_in_turn = False

    def claim(self, shard: str) -> None:
        world = self._world
        claimed = world.scene.try_claim(shard, ready=f"mid@{self.name}")
        assert isinstance(claimed, Claimed)
        self.owned[shard] = OwnedShard(shard, claimed)
        self.turns.release(shard)
        self.turns.adopt(self.owned[shard])

    def commit(self, shard: str) -> None:
        """Some entries for the sink, if it is the owner still."""
        world, owned = self._world, self.owned[shard]
        payloads = [world.payload(shard, number) for number in range(world.rng.randint(1, 3))]
        outputs = tuple(Output(SINK, payload, 1, external=True) for payload in payloads)
        commit: Commit = owned.commit(1, outputs=outputs)
        answer = world.scene.store.call(commit)
        if answer is not Answer.OK:
            del self.owned[shard]
            self.turns.release(shard)
            return
        world.expected[shard] += payloads
        self.turns.place(owned, [(number, payload) for _, number, payload in owned.settle(commit, answer)])

    def turn(self) -> None:
        if self.is_in_turn:
            return
        self.is_in_turn = True
        try:
            self.turns.turn()
        finally:
            self.is_in_turn = False
        self.turns.take_written()


class World:
    def __init__(
        self,
        seed: int,
        writer: Callable[[MemoryTransactionLog, str, int], BatchWriter] = TransactionalWriter,
        turns: type[BatchTurns] = BatchTurns,
    ) -> None:
        self.rng = random.Random(seed)
        self.writer = writer
        self.turns = turns
        self.clock = TurnedClock()
        self.scene = Scene(MemoryStore(MemoryNode(), "t", Bounds()))
        self.scene.set_up(*SHARDS)
        self.log = MemoryTransactionLog(self.at)
        self.expected: dict[str, list[bytes]] = {shard: [] for shard in SHARDS}
        self.starts = 0
        self.depth = 0
        self.is_rough = True
        self.tasks = [self.task("a"), self.task("b")]

    def task(self, name: str) -> Task:
        self.starts += 1
        return Task(self, name)

    def payload(self, shard: str, number: int) -> bytes:
        return f"[{shard}-{len(self.expected[shard]) + number}]".encode()

    def at(self, where: str) -> None:
        """Between two effects of a turn."""
        if not self.is_rough:
            return
        kind = self.rng.random()
        if kind < 0.03:
            raise Died
        if kind < 0.06:
            raise InDoubt("no answer") if where in ("commit", "committed") else StoreUnreachable("no answer")
        if kind < 0.3 and self.depth < DEPTH_MAX:
            self.step()

    def step(self) -> None:
        self.depth += 1
        place = self.rng.randrange(2)
        task, shard = self.tasks[place], self.rng.choice(SHARDS)
        try:
            match self.rng.randrange(8):
                case 0:
                    task.claim(shard)
                case 1 | 2 if shard in task.owned:
                    task.commit(shard)
                case 3:
                    self.clock.sleep_us(self.rng.choice((1_000, PATIENCE_US)))
                case 4 if self.rng.random() < 0.2:
                    # Its thread stands still amid something, and goes on after its successor began.
                    self.tasks[place] = self.task(task.name)
                case _:
                    task.turn()
        except Died:
            if self.tasks[place] is task:
                self.tasks[place] = self.task(task.name)
        finally:
            self.depth -= 1

    def settle(self) -> None:
        """Faults stop, and one task has all: what is its own already goes on as it is."""
        self.is_rough = False
        for shard in SHARDS:
            owned = self.tasks[0].owned.get(shard)
            if owned is None or owned.epoch != self.scene.measure(shard).epoch:
                self.tasks[0].claim(shard)
        for _ in range(30):
            self.tasks[0].turn()
            self.clock.sleep_us(PATIENCE_US)


def played(seed: int, **parts: Any) -> World:
    world = World(seed, **parts)
    for _ in range(STEPS):
        world.step()
    world.settle()
    return world


def is_right(world: World) -> bool:
    waiting = [world.scene.outbox(shard, SINK) for shard in SHARDS]
    found = {shard: world.log.payloads.get(shard, []) for shard in SHARDS}
    return found == world.expected and waiting == [[], [], []]


def test_each_entry_is_in_the_sink_once_and_in_order() -> None:
    for seed in range(SEEDS):
        assert is_right(played(seed)), f"seed {seed}"


class RepeatingWriter:
    """A sink that cannot be asked: what failed, or was begun by another owner, is written once more."""

    gather_us = 0
    is_asked = False

    def __init__(self, log: MemoryTransactionLog, base: str, gather_us: int) -> None:
        self._log = log

    def next_name(self) -> bytes:
        raise AssertionError("it has no names")

    def outcome(self, name: bytes, *, fence: bool) -> Outcome:
        raise AssertionError("it has no names")

    def write(self, name: bytes, parts: Sequence[Part]) -> None:
        self._log.at("write")
        for part in parts:
            self._log.payloads.setdefault(part.shard, []).extend(part.payloads)
        self._log.at("written")

    def close(self) -> None:
        """Nothing is open."""


def test_without_names_each_entry_is_in_the_sink_at_least_once_and_none_waits() -> None:
    for seed in range(SEEDS):
        world = played(seed, writer=RepeatingWriter)
        for shard, expected in world.expected.items():
            firsts = list(dict.fromkeys(world.log.payloads.get(shard, [])))
            assert firsts == expected, f"seed {seed}: {shard}"
            assert world.scene.outbox(shard, SINK) == [], f"seed {seed}: {shard}"


class NumbersAreUsedAgain(TransactionalWriter):
    """A number that was named and not written is the next batch's."""

    def next_name(self) -> bytes:
        self._is_named = False
        return super().next_name()


class NobodyIsFenced(TransactionalWriter):
    """What is not in by now is taken for out, though its writer may still commit it."""

    def outcome(self, name: bytes, *, fence: bool) -> Outcome:
        outcome = super().outcome(name, fence=False)
        return Outcome.OUT if outcome is Outcome.OPEN else outcome


class WrittenBeforeIntended(BatchTurns):
    """The store is told of a batch when it is in."""

    def _intended(self, name: bytes, parts: dict[str, Part]) -> dict[str, Part]:
        self._writer.write(name, tuple(parts.values()))
        return {}


class DoubtIsTakenForOut(BatchTurns):
    """A batch whose end nobody saw is written again."""

    def _write(self, ready: Sequence[Lane]) -> None:
        try:
            super()._write(ready)
        except InDoubt as doubt:
            for lane in self._lanes.values():
                if lane.doubt is not None:
                    lane.resolved(lane.doubt, is_in=False)
            raise RetryError(str(doubt)) from doubt


class IntentsForgetWhatWasBefore(BatchTurns):
    """An intent says nothing of the batch before, which may not be acknowledged yet."""

    def _intended(self, name: bytes, parts: dict[str, Part]) -> dict[str, Part]:
        forgetful = {shard: Part(shard, 0, one.number, one.payloads) for shard, one in parts.items()}
        return {shard: parts[shard] for shard in super()._intended(name, forgetful)}


@pytest.mark.parametrize(
    "parts",
    [
        {"writer": NumbersAreUsedAgain},
        {"writer": NobodyIsFenced},
        {"turns": WrittenBeforeIntended},
        {"turns": DoubtIsTakenForOut},
        {"turns": IntentsForgetWhatWasBefore},
    ],
    ids=lambda parts: next(iter(parts.values())).__name__,
)
def test_a_planted_bug_is_caught(parts: dict[str, Any]) -> None:
    def goes_wrong(seed: int) -> bool:
        try:
            return not is_right(played(seed, **parts))
        except (AssertionError, ValueError, KeyError):
            return True

    assert any(goes_wrong(seed) for seed in range(SEEDS))
