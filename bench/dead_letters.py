"""`python -m bench.dead_letters`: what a dead letter costs its row, and what it costs all others.

A keyed task works on one batch after the other, in this process, on a redis-server of its own, as mode
Process has it. The time of a batch is from when it is in the inbox until its rows are in the sink's file, and
so its letter in its sink's file, or in the store. Batches with one bad row and without, of operators that
keep letters and of one that does not, are worked in turns; the batch behind one with a letter is measured
too. The bad row is alone of its key, or one of many. Medians, in microseconds.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine
from bench.node_store import NodeStore as Server
from bench.screen import Screen, show
from bench.turned_tasks import Unwaiting, connected, published
from rich.table import Table

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.codec import encode_batch
from penstock.store.port import Answer, Append, Bounds, Enroll, Measure, Owner, SetTasks
from penstock.store.redis.store import RedisStore
from penstock_worker.process.clock import SystemClock
from penstock_worker.spark.task_entry import assemble
from penstock_worker.task.launch import TaskLaunch

BENCH = Path(__file__).parent
PORT = 17_463
SHAPES = ((1, 1), (64, 1), (1, 64), (256, 1), (1, 256))
"""Keys of a batch, and rows of each."""
KEEPS = ("count.onError.policy=DeadLetter", "count.onError.keep=100000")
SENDS = ("deadLetters.files.path=dead", "count.onError.policy=DeadLetter")
SIDES: dict[str, tuple[Sequence[str], bool]] = {
    "Fail, none": ((), False),
    "DeadLetter, none": (KEEPS, False),
    "a letter in the store": (KEEPS, True),
    "a letter in a sink": (SENDS, True),
}
"""Settings, and whether a row of every other batch is bad."""
WARM = 20
TO_REACH_US = 1000.0
_INCARNATION = "u1/5/1"


@dataclass(frozen=True, slots=True)
class Took:
    """Of a batch of a side; `behind`: the one before it had a letter."""

    with_letter: bool
    behind: bool
    took_us: float


class Side:
    """One topology in `folder` and its task, on the server at `url`."""

    def __init__(self, name: str, folder: Path, url: str, keys: int, rows_each: int) -> None:
        overrides, self._fails = SIDES[name]
        folder.mkdir()
        for file in (BENCH / "failing.py", BENCH / "topologies" / "failing.yaml"):
            shutil.copy(file, folder)
        plan = compile_topology(load_topology(folder / "failing.yaml", overrides))
        uid = folder.name
        self._store = connected(url, uid)
        published(self._store, "count", ["count/0"], source=False)
        self._store.call(Enroll("w1", "u1", 5, 1))
        self._store.call(SetTasks("w1", _INCARNATION, "count-w1", (("count/0", "count.ready"),)))
        launch = TaskLaunch(
            uid, url, "w1", Owner("count-w1", _INCARNATION, "count.ready"), 0, plan.stage("count"),
            str(folder), False, Bounds(),
        )  # fmt: skip
        self._clock = SystemClock(None)
        waiter: Any = Unwaiting(RedisStore(url, uid, Bounds()))
        self._task = assemble(launch, RedisStore(url, uid, Bounds()), waiter, self._clock)
        self._rows = [(key, False) for _ in range(rows_each) for key in range(keys)]
        self._files = {name: folder / name for name in ("out", "dead")}
        self._sends = name == "a letter in a sink"
        self._number = 0
        self._had_letter = False

    def batch(self) -> Took:
        """Work on the next one."""
        self._number += 1
        rows = list(self._rows)
        with_letter = self._fails and self._number % 2 == 0
        if with_letter:
            # In the middle, so that it is neither the first nor the last that is tried.
            key, _ = rows[len(rows) // 2]
            rows[len(rows) // 2] = (key, True)
        goes_out = len(rows) > 1 or not with_letter
        wanted = {
            name: self._size(name)
            for name, is_wanted in (("out", goes_out), ("dead", with_letter and self._sends))
            if is_wanted
        }
        commits = self._commits()
        now_us = self._clock.now_us()
        payload = encode_batch([now_us] * len(rows), rows)
        append = Append("bench", "count/0", self._number, payload, len(rows), now_us)
        if self._store.call(append) is not Answer.OK:
            raise RuntimeError("the inbox takes nothing")
        began_ns = time.monotonic_ns()
        while any(self._size(name) == before for name, before in wanted.items()) or (
            not wanted and self._commits() == commits
        ):
            self._task.turn()
        took = Took(with_letter, self._had_letter, (time.monotonic_ns() - began_ns) / 1000)
        self._had_letter = with_letter
        return took

    def _commits(self) -> int:
        (counters,) = self._store.call(Measure(("count/0",)))
        return 0 if counters is None else counters.completed_rows

    def _size(self, name: str) -> int:
        return sum(path.stat().st_size for path in self._files[name].glob("*.jsonl"))


def measure(rounds: int, port: int, screen: Screen) -> dict[str, dict[str, float]]:
    """Shape -> what -> its median."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        server = Server(folder, "n1", port)
        server.start()
        try:
            for number, (keys, rows_each) in enumerate(SHAPES):
                words = f"{keys} keys of {rows_each}"
                with screen.step(words):
                    sides = {
                        name: Side(name, folder / f"s{number}{place}", server.url, keys, rows_each)
                        for place, name in enumerate(SIDES)
                    }
                    found[words] = _of_shape(sides, rounds)
        finally:
            server.stop()
    return found


def _of_shape(sides: dict[str, Side], rounds: int) -> dict[str, float]:
    took: dict[str, list[float]] = defaultdict(list)
    for number in range(2 * (rounds + WARM)):
        for name, side in sides.items():
            one = side.batch()
            if number < 2 * WARM:
                continue
            is_behind = one.behind and not one.with_letter
            took[f"{name}: the batch behind" if is_behind else name].append(one.took_us)
    return {name: round(statistics.median(each), 1) for name, each in took.items()}


def _table(found: dict[str, dict[str, float]]) -> Table:
    table = Table(title="A batch until it is in the sink, microseconds, and what it is more")
    names = list(dict.fromkeys(name for shape in found.values() for name in shape))
    table.add_column("of one operator")
    for shape in found:
        table.add_column(shape, justify="right")
    for name in names:
        cells = []
        for shape in found.values():
            more = shape[name] - shape["DeadLetter, none"]
            cells.append(f"{shape[name]:,.0f} ({more:+,.0f})")
        table.add_row(name, *cells)
    return table


def main() -> None:
    """Measure, show, and print the result as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="batches with a letter, of each kind")
    parser.add_argument("--port", type=int, default=PORT)
    arguments = parser.parse_args()
    screen = Screen(len(SHAPES))
    found = measure(arguments.rounds, arguments.port, screen)
    costs = {
        shape: {
            name: round(of[name] - of["DeadLetter, none"], 1)
            for name in of
            if name not in ("DeadLetter, none", "Fail, none")
        }
        for shape, of in found.items()
    }
    letters = ("a letter in the store", "a letter in a sink")
    result = {
        "bench": "dead_letters",
        "batch_us": found,
        "more_us": costs,
        "to_reach_us": TO_REACH_US,
        "reached": all(costs[shape][name] < TO_REACH_US for shape in costs for name in letters),
        "machine": machine.description(),
    }
    show(_table(found), result)


if __name__ == "__main__":
    main()
