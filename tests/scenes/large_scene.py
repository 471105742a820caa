"""A topology whose rows and commits are larger than the store takes at once, with faults between its calls.

Under small bounds. Every call of user code draws a number that it has never drawn before and writes it into
all that it changes and puts out: what is mixed from two calls, done twice or left out shows at the end.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.store.codec import decode_counts
from penstock.store.memory import state as memory_state
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.moving.mover import move_once
from penstock.store.port import (
    Answer,
    Bounds,
    Claim,
    Enroll,
    Failures,
    Measure,
    OpenStore,
    Owner,
    Publish,
    Request,
    SetTasks,
    StateSnapshot,
)
from penstock_worker.sinks import delivery as sink_delivery
from penstock_worker.spark.task_entry import assemble
from penstock_worker.stages import keyed_stage
from penstock_worker.stages.part_size import PartSize
from penstock_worker.state import encoding
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.loop import TaskLoop
from scenes.task_scene import Between, Scene

SMALL = Bounds(
    inbox_bytes_max=4_000,
    outbox_bytes_max=4_000,
    entry_bytes_max=600,
    outputs_per_commit_max=8,
    commit_bytes_max=3_000,
    drain_bytes_max=2_000,
    chunk_bytes_max=1_500,
)
PART_BYTES = 1_200
PART_ROWS = 2
CODE = """
from itertools import count

from pyspark.sql.streaming import StatefulProcessor

DRAWN = count(1)
WORDS = 20


def split(line):
    drawn = next(DRAWN)
    for word in line.value.split():
        for number in range(WORDS if line.value.startswith("many") else 1):
            yield f"{word}" if number == 0 else f"{word}-{drawn}-{number}"


class Count(StatefulProcessor):
    def init(self, handle):
        self.text = handle.getValueState("text", "t string, n long")
        self.items = handle.getListState("items", "drawn long, t string")
        self.map = handle.getMapState("map", "k long", "drawn long, t string")

    def handleInputRows(self, key, rows, timers):
        word = key[0]
        for row in rows:
            if len(word) > 100 or "-" in word:
                yield (word, 0)
                continue
            drawn = next(DRAWN)
            before = self.text.get()
            number = before[1] if before else 0
            listed = sorted({item[0] for item in self.items.get()})
            mapped = [self.map.getValue((n,))[0] for n in range(3)] if number else []
            yield (f"{word}/{number}/state/{listed}/{mapped}", drawn)
            self.text.update((f"{drawn}" * 900, number + 1))
            for _ in range(4):
                self.items.appendValue((drawn, "y" * 250))
            for n in range(3):
                self.map.updateValue((n,), (drawn, "z" * 1500))
            for n in range(12):
                yield (f"{word}/{number}/{n}", drawn)
            yield (f"{word}/{number}/large/" + "B" * 2500, drawn)

    def close(self):
        pass
"""


class Killed(BaseException):
    """The task is gone, in the middle of what it did."""


class Counted(Between):
    """Says of each single call that it is about to be made, and when it was."""

    def __init__(self, store: MemoryStore, before: Callable[[int], None]) -> None:
        super().__init__(store)
        self.calls = 0
        self._before = before

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        answers = []
        for call in calls:
            self._before(self.calls)
            self.calls += 1
            answers.append(self._store.call(call))
        return answers


class NotYet(Between):
    """Refuses the first claim of each shard, as while it is on its way: the next one travels with a fetch."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._refused: set[str] = set()

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        return [Answer.MOVING if self._is_first(call) else self._store.call(call) for call in calls]

    def _is_first(self, call: Request[Any]) -> bool:
        is_first = isinstance(call, Claim) and call.shard not in self._refused
        if isinstance(call, Claim):
            self._refused.add(call.shard)
        return is_first


class LargeScene(Scene):
    """Lines are fed when it is made. Node n2 is there too, with worker w2, for shards that move."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, lines: str, bounds: Bounds = SMALL) -> None:
        patch.setattr(encoding, "PART_BYTES", PART_BYTES)
        patch.setattr(keyed_stage, "PartSize", lambda: PartSize(PART_ROWS))
        patch.setattr(sink_delivery, "_LEFTOVER_BYTES_MAX", 700)
        patch.setattr(memory_state, "LOAD_BYTES", 2_000)
        patch.syspath_prepend(str(folder))
        patch.delitem(__import__("sys").modules, "loop_code", raising=False)
        super().__init__(folder, bounds=bounds)
        (folder / "loop_code.py").write_text(CODE)
        (folder / "a.txt").write_text(lines)
        self.publish(["lines/a.txt"])
        self.node2 = MemoryNode()
        self.store2 = MemoryStore(self.node2, "t", bounds)
        self.store2.call(OpenStore("n2"))
        self._versions: dict[str, int] = {}

    def dying(self, operator: str, shards: Sequence[str], ready: str, at: int) -> bool:
        """Run a task that is killed before its call number `at`; whether it came to that."""

        def before(number: int) -> None:
            if number == at:
                raise Killed

        store = Counted(self.store, before)
        try:
            self.run(self.task(operator, shards, ready, store=store))
        except Killed:
            return True
        return False

    def run(self, *tasks: TaskLoop, rounds: int = 120) -> None:
        """Turns of all tasks until nothing waits, or until somebody is killed."""
        quiet = 0
        for _ in range(rounds):
            self.clock.sleep_us(20_000)
            for task in tasks:
                if not task.retired:
                    task.turn()
            quiet = quiet + 1 if not self.busy() else 0
            if quiet > 3:
                return

    def busy(self) -> bool:
        return any(
            one is not None and (one.inbox_entries or (one.outbox_entries and not one.finished))
            for store in (self.store, self.store2)
            for one in store.call(Measure(("lines/a.txt", *self.count_shards)))
        ) or any(
            one is not None and one.epoch and not one.finished
            for one in self.store.call(Measure(("lines/a.txt",)))
        )

    # --- the other node

    def leave(self, shard: str) -> None:
        """The shard's home is n2 from now on."""
        operator = shard.split("/", maxsplit=1)[0]
        shards = {"lines": ("lines/a.txt",), "count": self.count_shards}[operator]
        call = Publish(
            operator,
            2,
            0,
            (("w1", "n1", "localhost", "u1"), ("w2", "n2", "localhost", "u2")),
            ((f"{operator}-w1", "w1", 1), (f"{operator}-w2", "w2", 1)),
            tuple(
                (s, f"{operator}-w2" if s == shard else f"{operator}-w1", "n2" if s == shard else "n1")
                for s in shards
            ),
        )
        self.store.call(call)
        self.store2.call(call)
        assert self.store2.call(Enroll("w2", "u2", 5, 1)) is Answer.OK

    def move_on(self, shard: str, chunks_max: int = 1) -> bool:
        """A part of the shard's move; whether it is over."""
        stores = {"n1": self.store, "n2": self.store2}
        return move_once(
            self.store, stores.get, shard, target_id="n2", version=2, chunks_max=chunks_max
        ).is_over

    def task_at_n2(self, operator: str, shards: Sequence[str], ready: str) -> TaskLoop:
        mapping = tuple((shard, ready) for shard in shards)
        assert self.store2.call(SetTasks("w2", "u2/5/1", f"{operator}-w2", mapping)) is Answer.OK
        launch = TaskLaunch(
            "t", "memory", "w2", Owner(f"{operator}-w2", "u2/5/1", ready), 0, self.plan.stage(operator),
            str(self.folder), False, self.bounds, prints=False,
        )  # fmt: skip
        return assemble(launch, self.store2, self.store2, self.clock)

    # --- what it came to

    def check(self, rows: dict[str, int], many: int = 0) -> None:
        """Each of so many rows of a word was worked on once, whole, in order, by one call of user code."""
        failures = [store.call(Failures()) for store in (self.store, self.store2)]
        assert failures == [{}, {}], failures
        found: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        drawn: dict[tuple[str, int], set[int]] = defaultdict(set)
        states: dict[tuple[str, int], str] = {}
        steps: Counter[str] = Counter()
        for line in self.out():
            row = json.loads(line)
            text = row["word"]
            if "/" not in text:
                steps[text] += 1
                continue
            word, number, kind, *rest = text.split("/")
            found[word, int(number)][kind] += 1
            drawn[word, int(number)].add(row["total"])
            if kind == "state":
                states[word, int(number)] = "/".join(rest)
            if kind == "large":
                assert rest == ["B" * 2500]
        kinds = {"state": 1, "large": 1} | {str(n): 1 for n in range(12)}
        assert set(found) == {(word, n) for word, count in rows.items() for n in range(count)}
        for key, kinds_found in found.items():
            assert dict(kinds_found) == kinds, key
            assert len(drawn[key]) == 1, key
        for word, count in rows.items():
            so_far = [next(iter(drawn[word, n])) for n in range(count)]
            for n in range(count):
                before = so_far[:n]
                assert states[word, n] == f"{before}/{[before[-1]] * 3 if before else []}", (word, n)
        assert sum(steps.values()) == many
        assert set(steps.values()) <= {1}
        assert self.counted("totals") == len(self.out())

    def counted(self, name: str) -> int:
        """Rows that came out of `name`, as the stores have them."""
        shards = ("lines/a.txt", *self.count_shards)
        known = [one for store in (self.store, self.store2) for one in store.call(Measure(shards))]
        return sum(decode_counts(one.counts).get(name, 0) for one in known if one is not None)

    def left(self) -> list[bytes]:
        """Collections that hold what is no user's state."""
        snapshots = [
            store.call(StateSnapshot(shard))
            for store in (self.store, self.store2)
            for shard in ("lines/a.txt", *self.count_shards)
        ]
        return [name for found in snapshots for name, _ in found if name[:1] in {b"x", b"f"}]

    def steal(self, shard: str) -> None:
        """Somebody else claims the shard."""
        self.store.call(Claim(shard, Owner("count-w1", "u1/5/1", "thief"), 1))
