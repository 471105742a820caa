"""Batches of a sink that is a stage, under seeded faults: ids without a hole, each with the same rows always.

Two tasks take the shard from one another at any moment, also in the middle of a call of the function: between
any two calls of the store, and around the function's effect, the other one may claim and write, a call may
fail before or after it took effect, a task may die. What is handed out may be less than before. The stage,
its intents and its commits are the product's, the store is the twin.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.dataflow.ddl import parse_schema
from penstock.store.codec import encode_batch
from penstock.store.fragments import fragments_of
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import Answer, Bounds, Claimed, Entry, Fetch, StoreUnreachable
from penstock_worker.stages import batch_stage
from penstock_worker.stages.batch_stage import BatchBounds, BatchStage
from penstock_worker.stages.within import Batches
from penstock_worker.task.batch_size import WholeInbox
from penstock_worker.values.arrow_rows import unpacked
from scenes.meddled_store import Died, MeddledStore
from scenes.store_scenario import Scene
from scenes.task_scene import TurnedClock

SHARD = "end/0"
SCHEMA = parse_schema("n bigint, text string")
BOUNDS = BatchBounds(rows_max=8, bytes_max=400)
STEPS = 60
SEEDS = 300
DEPTH_MAX = 2


class World:
    """`written` has the rows of each batch whose function returned, `given` those of each call."""

    def __init__(self, seed: int, stage: type[BatchStage] = BatchStage) -> None:
        self.rng = random.Random(seed)
        self.stage = stage
        self.clock = TurnedClock()
        self.scene = Scene(MemoryStore(MemoryNode(), "t", Bounds()))
        self.scene.set_up(SHARD)
        self.is_rough = True
        self.depth = 0
        self.rows = 0
        self.entries = 0
        self.given: dict[int, list[int]] = {}
        self.written: dict[int, list[int]] = {}
        self.tasks = [Task(self, "a"), Task(self, "b")]

    def at(self, where: str) -> None:
        """Between two effects of a turn."""
        if not self.is_rough:
            return
        kind = self.rng.random()
        if kind < 0.03:
            raise Died
        if kind < 0.06:
            raise StoreUnreachable("no answer")
        if kind < 0.3 and self.depth < DEPTH_MAX:
            self.step()

    def call(self, number: int, _rows: int, records: bytes) -> None:
        """The user's function."""
        numbers: list[int] = unpacked(records).column("n").to_pylist()
        assert self.given.setdefault(number, numbers) == numbers, f"batch {number} came with other rows"
        assert number == 0 or number - 1 in self.written, f"batch {number} came before the one before it"
        self.at("called")
        self.written[number] = numbers
        self.at("written")

    def put(self) -> None:
        """Some rows come into the inbox, now and then one in fragments."""
        count = self.rng.randint(1, 3)
        rows = [(self.rows + number, "x" * self.rng.randint(0, 40)) for number in range(count)]
        self.rows += count
        payload = encode_batch([0] * count, rows)
        pieces = [payload]
        if count == 1 and self.rng.random() < 0.4:
            pieces = fragments_of("far/0", payload, 60)
        for number, piece in enumerate(pieces, 1):
            self.entries += 1
            answer = self.scene.append(SHARD, self.entries, piece, rows=count if number == len(pieces) else 0)
            assert answer is Answer.OK

    def step(self) -> None:
        self.depth += 1
        task = self.rng.choice(self.tasks)
        try:
            match self.rng.randrange(6):
                case 0:
                    task.claim()
                case 1 | 2 if self.rows < 60:
                    self.put()
                case _:
                    task.turn()
        except Died:
            task.owned = None
        finally:
            self.depth -= 1

    def settle(self) -> None:
        """Faults stop, and one task has the shard."""
        self.is_rough = False
        self.tasks[0].claim()
        for _ in range(200):
            self.tasks[0].turn()


class Task:
    """A task's loop as far as the stage sees it."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._ready = f"end@{name}"
        self._store = MeddledStore(world.scene.store, world.at)
        self._stage = world.stage("end", SCHEMA, BOUNDS, world.call, self._store.call, world.clock)
        self._is_in_turn = False
        self.owned: OwnedShard | None = None

    def claim(self) -> None:
        if self._is_in_turn:
            return
        claimed = self._world.scene.try_claim(SHARD, ready=self._ready)
        assert isinstance(claimed, Claimed)
        self.owned = OwnedShard(SHARD, claimed)

    def turn(self) -> None:
        if self._is_in_turn or self.owned is None:
            return
        self._is_in_turn = True
        try:
            self._turn(self.owned)
        except (OwnershipLost, StoreUnreachable):
            self.owned = None
        finally:
            self._is_in_turn = False

    def _turn(self, owned: OwnedShard) -> None:
        rng = self._world.rng
        few = self._world.is_rough and rng.random() < 0.5
        bytes_max = rng.randint(1, 200) if few else WholeInbox.bytes
        for fetched in self._store.call(Fetch(self._ready, bytes_max, WholeInbox.shards)).shards:
            if fetched.epoch != owned.epoch:
                raise OwnershipLost(SHARD, "of another epoch")
            work = self._stage.work(owned, fetched)
            owned.settle(work.commit, self._store.call(work.commit))
            self._stage.settled(owned, work)


def played(seed: int, **parts: Any) -> World:
    world = World(seed, **parts)
    for _ in range(STEPS):
        world.step()
    world.settle()
    return world


def is_right(world: World) -> bool:
    """Ids have no hole, and what an idempotent function kept is each row once, in order."""
    kept = [row for number in sorted(world.written) for row in world.written[number]]
    return sorted(world.written) == list(range(len(world.written))) and kept == list(range(world.rows))


def test_each_batch_has_the_same_rows_always_and_ids_have_no_hole() -> None:
    batches = 0
    for seed in range(SEEDS):
        world = played(seed)
        assert is_right(world), f"seed {seed}"
        batches += len(world.written)
    assert batches > 5 * SEEDS


class IntentsAreNotCommitted(BatchStage):
    """The function is called with what a fetch brought, and only then anything is noted."""

    def _intend(self, owned: OwnedShard, batch: Batches) -> None:
        """Nothing."""


class ABatchIsWhatComes(BatchStage):
    """What is open is called with as much of it as was handed out."""

    def work(self, owned: OwnedShard, fetched: Any) -> Any:
        noted = batch_stage.within.batches(owned.within)
        if noted.last and fetched.entries:
            last = min(noted.last, fetched.entries[-1].number)
            owned.within = batch_stage.within.encode(Batches(noted.number, last))
        return super().work(owned, fetched)


class NumbersGoOnWithTheIntent(BatchStage):
    """A batch that is repeated has the next id."""

    def _written(self, owned: OwnedShard, number: int, entries: tuple[Entry, ...], *, in_hand: bool) -> Any:
        return super()._written(owned, number + 1 if in_hand else number, entries, in_hand=in_hand)


@pytest.mark.parametrize("stage", [IntentsAreNotCommitted, ABatchIsWhatComes, NumbersGoOnWithTheIntent])
def test_a_planted_bug_is_caught(stage: type[BatchStage]) -> None:
    def goes_wrong(seed: int) -> bool:
        try:
            return not is_right(played(seed, stage=stage))
        except AssertionError:
            return True

    assert any(goes_wrong(seed) for seed in range(SEEDS))
