"""`python -m bench.task_cost`: CPU time of one source's and one keyed task over a fixed number of records.

Both tasks run in this process, turn by turn, on a redis-server of their own, and time is what they are told:
other load on the machine makes it slower, but changes nothing of what is done. It prints, in microseconds of
CPU, what a record costs in each of the three, and for windows what a result costs when they close: its timer
is fetched, its state is changed, its row is in the sink's file. `--profile task` or `--profile closing`
prints what cProfile says of the keyed task. `make bench-event-time` has the figures of whole systems; this
one compares two versions of the code, in turns.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.turned_tasks import TurnedNode

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.port import Measure

BENCH = Path(__file__).parent
SHARDS = 64
FAST_PER_S = 140_000
PORT = 17_461
WINDOW_END_US = 1_700_000_000_000_000


class _Scene:
    """A node, and a task for each stage."""

    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        self.folder = folder
        for file in (
            *BENCH.glob("counting*.py"),
            BENCH / "timing.py",
            *(BENCH / "topologies").glob("*.yaml"),
        ):
            shutil.copy(file, folder)
        overrides = [f"records.source.zipf.ratePerSecond={arguments.rate}", *arguments.set]
        self.plan = compile_topology(load_topology(folder / f"{arguments.topology}.yaml", overrides))
        self.rounds = -(-arguments.records * 1000 // (arguments.rate * arguments.round_ms))
        began_us = WINDOW_END_US - self.rounds * arguments.round_ms * 1000
        self.node = TurnedNode(folder, self.plan, arguments.port, began_us)
        self.clock, self.store = self.node.clock, self.node.store
        shards = {"records": ["records/0"], "count": [f"count/{number}" for number in range(SHARDS)]}
        for operator, named in shards.items():
            self.node.publish(operator, named, source=operator == "records")
        self.node.enroll()
        self.source, self.count = (self.node.task(operator, named) for operator, named in shards.items())

    def store_us(self) -> int:
        return self.node.store_us()

    def done(self, operator: str) -> int:
        shards = [f"count/{n}" for n in range(SHARDS)] if operator == "count" else ["records/0"]
        return sum(c.completed_rows for c in self.store.call(Measure(tuple(shards))) if c is not None)

    def standing(self) -> tuple[int, int, int]:
        """What changes while there is work."""
        return self.done("records"), self.done("count"), self._written_bytes()

    def _written_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.folder / "out").glob("*"))

    def lines(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in (self.folder / "out").glob("*"))


class _Cost:
    """CPU time of what is called, by who took it."""

    def __init__(self, scene: _Scene) -> None:
        self._scene = scene
        self.task_us = self.store_us = self.wall_us = 0

    def of(self, work: Callable[[], None], profile: cProfile.Profile | None = None) -> None:
        began_ns = time.monotonic_ns()
        store_us, task_us = self._scene.store_us(), time.process_time_ns()
        if profile is not None:
            profile.runcall(work)
        else:
            work()
        self.task_us += (time.process_time_ns() - task_us) // 1000
        self.store_us += self._scene.store_us() - store_us
        self.wall_us += (time.monotonic_ns() - began_ns) // 1000


def _measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    scene = _Scene(folder, arguments)
    profile = cProfile.Profile() if arguments.profile else None
    reading, working, closing = (_Cost(scene) for _ in range(3))

    def rounds(count: int, cost: _Cost, profile: cProfile.Profile | None) -> None:
        for _ in range(count):
            scene.clock.time_us += arguments.round_ms * 1000
            seen = None
            while seen != (seen := scene.standing()):
                reading.of(scene.source.turn)
                cost.of(scene.count.turn, profile)

    try:
        for task in (scene.count, scene.source) * 2:
            task.turn()
        rounds(scene.rounds - 1, working, profile if arguments.profile == "task" else None)
        records = scene.done("count")
        found: dict[str, Any] = {
            "source_us": round(reading.task_us / records, 2),
            "task_us": round(working.task_us / records, 2),
            "store_us": round((reading.store_us + working.store_us) / records, 2),
        }
        found["record_us"] = round(sum(found.values()), 2)
        if arguments.topology == "counting":
            # A row comes out for each key of a batch.
            found["rows_a_key"] = round(records / scene.lines(), 1)
        if arguments.topology == "windows":
            lines = scene.lines()
            rounds(2, closing, profile if arguments.profile == "closing" else None)
            more = scene.done("count") - records
            results = scene.lines() - lines
            found["results"] = results
            if results:
                found |= {
                    "result_task_us": round((closing.task_us - more * found["task_us"]) / results, 2),
                    "result_store_us": round((closing.store_us - more * found["store_us"]) / results, 2),
                    "closing_ms": round(closing.wall_us / 1000, 1),
                }
        if profile is not None:
            pstats.Stats(profile).sort_stats(arguments.sort).print_stats(45)
        return found
    finally:
        scene.node.stop()


def main() -> None:
    """Measure `--repeat` times, each in a fresh store; a line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topology", default="windows")
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rate", type=int, default=FAST_PER_S, help="records in a second of told time")
    parser.add_argument("--round-ms", type=int, default=100)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--profile", choices=("task", "closing"))
    parser.add_argument("--sort", default="tottime")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--port", type=int, default=PORT)
    arguments = parser.parse_args()
    for _ in range(arguments.repeat):
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(_measure(arguments, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
