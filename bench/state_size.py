"""`make bench-state-size`: how many bytes of its store the state of a key takes, by the form of the state.

A source's and a keyed task work in this process, turn by turn (`turned_tasks`), until each of `KEYS` keys has
come once; the processors are those of `keeping`. What the store says it uses, less what it used before the
first key, is divided by the keys: so the server's tables and the allocator's classes are in it, and what a
shard takes that has no key is not. The log is what the store's folder holds more, of which a rewrite leaves
about what it says to hold.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from bench import machine
from bench.screen import Screen, scratch, show
from bench.turned_tasks import TurnedNode
from rich.table import Table

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.port import Measure

BENCH = Path(__file__).parent
KEYS = 100_000
SHARDS = [f"count/{number}" for number in range(64)]
PORT = 17_465
BEGAN_US = 1_700_000_000_000_000
FORMS = {
    "Long": "a value: a bigint",
    "Text": "a value: a string of 100 bytes",
    "Longs": "a list of ten bigints",
    "Counts": "a map of ten bigints",
    "Timers": "a timer",
}


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of one key."""

    memory: float
    log: float


class _Kept:
    """A topology whose keyed operator keeps one form of state."""

    def __init__(self, folder: Path, form: str) -> None:
        for name in ("keeping.py", "topologies/keeping.yaml"):
            shutil.copy(BENCH / name, folder)
        keys = "".join(f'{{"key": {key}}}\n' for key in range(KEYS))
        (folder / "keys.jsonl").write_text(keys)
        plan = compile_topology(load_topology(folder / "keeping.yaml", [f"count.processor=keeping:{form}"]))
        self.node = TurnedNode(folder, plan, PORT, BEGAN_US)
        sources = ["records/keys.jsonl"]
        self.node.publish("records", sources, source=True)
        self.node.publish("count", SHARDS, source=False)
        self.node.enroll()
        self.source = self.node.task("records", sources)
        self.count = self.node.task("count", SHARDS)

    def turn(self) -> None:
        for task in (self.source, self.count):
            self.node.clock.time_us += 1_000
            task.turn()

    def done(self) -> int:
        """Rows that the keyed operator has worked on."""
        measured = self.node.store.call(Measure(tuple(SHARDS)))
        return sum(one.completed_rows for one in measured if one is not None)

    def used(self) -> Size:
        """Of the whole store: memory, and what its folder holds."""
        with redis.Redis.from_url(self.node.server.url) as client:
            memory: Any = client.info("memory")
        files = sum(path.stat().st_size for path in self.node.server.folder.rglob("*") if path.is_file())
        return Size(memory["used_memory"], files)


def measured(folder: Path, form: str) -> Size:
    """What a key takes. Raises RuntimeError when the keys do not all come."""
    kept = _Kept(folder, form)
    try:
        before = kept.used()
        done, idle = 0, 0
        while done < KEYS:
            kept.turn()
            idle = 0 if (now := kept.done()) > done else idle + 1
            done = now
            if idle > 1_000:
                raise RuntimeError(f"{done} of {KEYS} keys have come")
        for _ in range(4):
            kept.turn()
        after = kept.used()
        return Size((after.memory - before.memory) / KEYS, (after.log - before.log) / KEYS)
    finally:
        kept.node.stop()


def main() -> None:
    """Measure, show, and print the result as the last line."""
    screen = Screen(len(FORMS))
    table = Table(title=f"What a key takes, of {KEYS:,} in {len(SHARDS)} shards")
    for name in ("", "memory, bytes", "log as written, bytes", "keys in 1 GiB"):
        table.add_column(name, justify="right")
    result: dict[str, Any] = {"bench": "state-size", "keys": KEYS, "forms": {}}
    for form, words in FORMS.items():
        with screen.step(words), scratch("state-size") as folder:
            size = measured(folder, form)
        table.add_row(words, f"{size.memory:,.0f}", f"{size.log:,.0f}", f"{2**30 / size.memory:,.0f}")
        result["forms"][words] = {"memory_bytes": round(size.memory, 1), "log_bytes": round(size.log, 1)}
    result["machine"] = machine.description()
    show(table, result)


if __name__ == "__main__":
    main()
