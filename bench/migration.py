"""`make bench-migration`: N-Storm's experiment, throughput while executors change nodes with their state.

Two nodes as processes of this machine (`two_nodes`), a worker on each, executors of one task over both. A
record takes its time by waiting, so that the capacity is known; the source brings 80% of it. Every so often M
executors change to the other node. Ways to do it, each on the same running processes:

- penstock: the new executors are announced, and shards go to them when their tasks are up, as an operator
  does it;
- N-Storm: one new schedule, agents and workers look for it every T_S and T_W (the paper's best: 1 s and
  300 ms), with the executors that go killed at once or (N-Storm+) when the new ones are at work;
- Storm*: the workers are stopped, and started again by the new schedule;
- Storm: so too, but the source is halted before, and what is under way given time: the paper's 30 s in 600 s.

Throughput is records in the sink files by buckets of 100 ms; normal is its mean in the stretch before a run's
first migration. After each run the source is halted, and the totals in the files are compared with what it
made.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from bench import cpu, degradation, machine, plots
from bench.file_growth import FileGrowth
from bench.screen import RESULTS, Screen, scratch, seconds_per_figure, show
from bench.two_nodes import START_S, Nodes, NodesFailedError, eventually
from numpy.typing import NDArray
from rich.table import Table

from penstock.dataflow.sink_files import sink_file_name
from penstock.schedule.record import ExecutorPlace

HERE = Path(__file__).parent
SECONDS = 24.0
"""Of each run; the paper's are 600."""
IS_FULL = bool(os.environ.get("BENCH_FULL"))
EXECUTORS = 16
M_OURS = (1, 2, 4, 8, 16) if IS_FULL else (1, 4, 16)
CYCLES_S = ((10.0, 3.0), (3.0, 1.0), (1.0, 0.3), (0.3, 0.1)) if IS_FULL else ((1.0, 0.3),)
"""(T_S, T_W)."""
BEST_CYCLES_S = (1.0, 0.3)
RATE_PER_S = 640
SHARDS = tuple(f"wait/{number}" for number in range(64))
CYCLE_S_MIN = 10.0
PAPER_CYCLE_PART = 0.1
"""A reassignment every 60 s of 600."""
PAPER_WAIT_PART = 0.05
"""Storm's rebalance gives what is under way 30 s of 600."""
QUIET_S = 4.0
MOVE_S_MAX = 60.0
WORKERS = {"a0": "a", "b0": "b"}


@dataclass(frozen=True, slots=True)
class Run:
    """One way with one M: when it was looked at, and when it migrated (wall clock seconds)."""

    name: str
    executors: int
    start_s: float
    migrations_s: tuple[float, ...]
    end_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """What a run came to. `seconds` is level -> seconds; `counts` are records by bucket."""

    run: Run
    normal: float
    seconds: Mapping[str, float]
    quiet: Mapping[str, float]
    counts: NDArray[np.int64]


class Cluster:
    """The topology on its nodes, and the ways to migrate executors of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(HERE / "topologies" / "migrating.yaml", folder / "topology.yaml")
        shutil.copy(HERE / "waiting.py", folder)
        self.nodes = Nodes(folder, WORKERS, "bench.cycled_worker")
        self.files = {
            shard: folder / "out" / sink_file_name("totals", *shard.split("/", 1)) for shard in SHARDS
        }
        self.watch = FileGrowth(self.files)
        self.place = {number: "a0" if number % 2 else "b0" for number in range(EXECUTORS)}
        self._next = 0

    def start(self) -> None:
        executors = self.executors()
        first = executors[0].name
        source = ExecutorPlace("records-a0", "a0", 1)
        self.nodes.begin([source, *executors], {"records": "records-a0", "wait": first})
        self.nodes.start_stores()
        self.nodes.wait_applied()
        self.nodes.place("wait", self.runs(range(EXECUTORS)))
        self.nodes.wait_moved()
        self.nodes.start_workers()
        self.wait_all()

    def executors(self) -> list[ExecutorPlace]:
        return [ExecutorPlace(_executor(number, on), on, 1) for number, on in self.place.items()]

    def runs(self, numbers: Sequence[int] | range) -> dict[str, str]:
        """Shard -> executor, of the shards of these executors."""
        return {
            shard: _executor(number % EXECUTORS, self.place[number % EXECUTORS])
            for number, shard in enumerate(SHARDS)
            if number % EXECUTORS in numbers
        }

    def wait_all(self) -> None:
        """Until every shard has committed, from now on."""
        now_s = time.time()

        def works() -> bool:
            self.nodes.check()
            return all(self.watch.last_s(shard) > now_s for shard in SHARDS)

        eventually(works, "all shards commit", START_S)

    def pick(self, count: int) -> list[int]:
        """The next executors to migrate, in turn; they are noted at their new workers."""
        numbers = [(self._next + step) % EXECUTORS for step in range(count)]
        self._next = (self._next + count) % EXECUTORS
        for number in numbers:
            self.place[number] = "b0" if self.place[number] == "a0" else "a0"
        return numbers

    # --- ways

    def penstock(self, count: int) -> None:
        before = self.executors()
        numbers = self.pick(count)
        fresh = [executor for executor in self.executors() if executor not in before]
        self.nodes.place("wait", {}, [*before, *fresh])
        self.nodes.wait_running(fresh)
        moves = self.runs(numbers)
        self.nodes.place("wait", moves, [*before, *fresh])
        self.nodes.wait_committed(moves, MOVE_S_MAX, "the migrated executors commit")
        self.nodes.place("wait", {}, self.executors())

    def n_storm(self, count: int, *, delayed_kill: bool) -> None:
        """Without delayed kill the executors that go are told so at once; with it when all is done."""
        before = self.executors()
        moves = self.runs(self.pick(count))
        after = self.executors()
        stay = [executor for executor in before if executor not in after] if delayed_kill else []
        self.nodes.place("wait", moves, [*stay, *after])
        self.nodes.wait_committed(moves, MOVE_S_MAX, "the migrated executors commit")
        if stay:
            self.nodes.place("wait", {}, after)

    def storm_star(self, count: int) -> None:
        moves = self.runs(self.pick(count))
        self.nodes.stop_workers()
        self.nodes.place("wait", moves, self.executors())
        self.nodes.wait_moved()
        self.nodes.start_workers()
        self.wait_all()

    def storm(self, count: int, wait_s: float) -> None:
        self.nodes.set_tasks("records", "records-a0", 0)
        time.sleep(wait_s)
        moves = self.runs(self.pick(count))
        self.nodes.stop_workers()
        self.nodes.place("wait", moves, self.executors())
        self.nodes.set_tasks("records", "records-a0", 1)
        self.nodes.wait_moved()
        self.nodes.start_workers()
        self.wait_all()

    def cycles(self, agent_s: float, worker_s: float) -> None:
        """N-Storm's T_S and T_W from now on; 0 and 0 are the product's wake-ups."""
        told = self.folder / "cycle.tmp"
        told.write_text(str(worker_s))
        told.replace(self.folder / "cycle")
        for node in self.nodes.nodes.values():
            node.look_every(agent_s)

    # --- a run

    def run(self, name: str, count: int, seconds: float, migrate: Callable[[int], None]) -> Run:
        cycle_s = max(CYCLE_S_MIN, PAPER_CYCLE_PART * seconds)
        start_s = time.time()
        migrations: list[float] = []
        next_s = start_s + QUIET_S
        while next_s < start_s + seconds - QUIET_S:
            time.sleep(max(0.0, next_s - time.time()))
            migrations.append(time.time())
            migrate(count)
            next_s = max(next_s + cycle_s, time.time() + QUIET_S)
        time.sleep(max(1.0, start_s + seconds - time.time()))
        end_s = time.time()
        self.halt_and_check()
        return Run(name, count, start_s, tuple(migrations), end_s)

    def halt_and_check(self) -> None:
        """Halt the source, let everything through, compare the totals, and go on. Raises NodesFailedError."""
        nodes = self.nodes
        nodes.set_tasks("records", "records-a0", 0)
        seen = [0]

        def at_rest() -> bool:
            nodes.check()
            counters = nodes.counters(("records/0", *SHARDS))
            if len(counters) < 1 + len(SHARDS):
                return False  # a store gave no answer
            before, seen[0] = seen[0], sum(one.commit for one in counters.values())
            source = counters.pop("records/0")
            waits = source.outbox_entries or any(one.inbox_entries for one in counters.values())
            return seen[0] == before and not waits

        eventually(at_rest, "nothing is under way any more", START_S, every_s=1.0)
        made = nodes.counters(("records/0",))["records/0"].completed_rows
        arrived = sum(int(arrivals(self.files[shard], self.watch, shard)[1].sum()) for shard in SHARDS)
        if arrived != made:
            raise NodesFailedError(f"the source made {made} records, the totals have {arrived}")
        nodes.set_tasks("records", "records-a0", 1)
        self.wait_all()
        time.sleep(QUIET_S)


def _executor(number: int, worker: str) -> str:
    return f"wait-{worker}-{number}"


class TotalRow(msgspec.Struct):
    key: int
    total: int


_DECODER = msgspec.json.Decoder(TotalRow)


def arrivals(file: Path, watch: FileGrowth, shard: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(when it came, records that it counts) of each row. Raises NodesFailedError for a total given twice.

    A row that the watch has not seen yet came when it saw the last one.
    """
    lines = file.read_bytes().splitlines(keepends=True)
    totals: dict[int, int] = {}
    records = np.zeros(len(lines), dtype=np.int64)
    for number, line in enumerate(lines):
        row = _DECODER.decode(line)
        records[number] = row.total - totals.get(row.key, 0)
        totals[row.key] = row.total
    if (records <= 0).any():
        raise NodesFailedError(f"{shard}: a total was given twice")
    times, sizes = watch.growths(shard)
    seen = np.searchsorted(sizes, np.cumsum([len(line) for line in lines]))
    return times[np.minimum(seen, len(times) - 1)], records


def found_of(run: Run, at_s: NDArray[np.float64], records: NDArray[np.int64]) -> Found:
    """The run's figures; `quiet` are those of its stretch before the first migration."""
    quiet = degradation.buckets(at_s, records, run.start_s, run.migrations_s[0])
    normal = float(quiet.mean())
    counts = degradation.buckets(at_s, records, run.migrations_s[0], run.end_s)
    return Found(
        run,
        normal,
        degradation.seconds_at(counts, normal),
        degradation.seconds_at(quiet, normal),
        np.concatenate([quiet, counts]),
    )


def measure(seconds: float, folder: Path, screen: Screen) -> list[Found]:
    cluster = Cluster(folder)
    runs: list[Run] = []

    def run(name: str, count: int, migrate: Callable[[int], None]) -> None:
        with screen.step(f"{name}, M = {count}"):
            runs.append(cluster.run(name, count, seconds, migrate))

    try:
        with cluster.watch:
            with screen.step("starting"):
                cluster.start()
                time.sleep(2 * QUIET_S)
            for count in M_OURS:
                run("penstock", count, cluster.penstock)
            # as in the paper, cycles are compared at the largest M
            for agent_s, worker_s in CYCLES_S:
                cluster.cycles(agent_s, worker_s)
                name = f"N-Storm+, {agent_s:g} s, {worker_s:g} s"
                run(name, M_OURS[-1], partial(cluster.n_storm, delayed_kill=True))
            cluster.cycles(*BEST_CYCLES_S)
            name = "N-Storm, {:g} s, {:g} s".format(*BEST_CYCLES_S)
            run(name, M_OURS[-1], partial(cluster.n_storm, delayed_kill=False))
            cluster.cycles(0, 0)
            run("Storm*", 1, cluster.storm_star)
            run("Storm", 1, lambda count: cluster.storm(count, PAPER_WAIT_PART * seconds))
    finally:
        cluster.nodes.stop()
    arrived = [arrivals(cluster.files[shard], cluster.watch, shard) for shard in SHARDS]
    at_s = np.concatenate([times for times, _ in arrived])
    records = np.concatenate([counts for _, counts in arrived])
    return [found_of(each, at_s, records) for each in runs]


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    seconds = seconds_per_figure(SECONDS)
    screen = Screen(1 + len(M_OURS) + len(CYCLES_S) + 3)
    with scratch("migration") as folder:
        found = measure(seconds, folder, screen)
    ours = {str(one.run.executors): one for one in found if one.run.name == "penstock"}
    restarts = {one.run.name: one for one in found if one.run.name.startswith("Storm")}
    result = {
        "bench": "migration",
        "degraded_60_s": {count: one.seconds["60"] for count, one in ours.items()},
        "degraded_20_s": {count: one.seconds["20"] for count, one in ours.items()},
        "restart_degraded_60_s": {name: one.seconds["60"] for name, one in restarts.items()},
        "runs": [
            {
                "way": one.run.name,
                "executors": one.run.executors,
                "migrations": len(one.run.migrations_s),
                "seconds": round(one.run.end_s - one.run.migrations_s[0], 1),
                "degraded_s": one.seconds,
                "degraded_without_moves_s": one.quiet,
                "seconds_without_moves": round(one.run.migrations_s[0] - one.run.start_s, 1),
                "normal_per_s": round(one.normal / degradation.BUCKET_S, 1),
            }
            for one in found
        ],
        "executors": EXECUTORS,
        "seconds": seconds,
        "machine": machine.description(),
    }
    RESULTS.mkdir(exist_ok=True)
    curves = {f"{one.run.name}, M = {one.run.executors}": (one.counts / one.normal) for one in found}
    plots.migrations(RESULTS / "migration.png", curves, degradation.BUCKET_S)
    show(_table(found), result)


def _table(found: Sequence[Found]) -> Table:
    table = Table(title="Seconds of degraded throughput while executors change nodes")
    table.add_column("way")
    headers = ("M", "migrations", "seconds", *(f"-{level}%" for level in degradation.LEVELS))
    for header in (*headers, "-20%, quiet"):
        table.add_column(header, justify="right")
    for one in found:
        table.add_row(
            one.run.name,
            str(one.run.executors),
            str(len(one.run.migrations_s)),
            f"{one.run.end_s - one.run.migrations_s[0]:.0f}",
            *(f"{one.seconds[str(level)]:.1f}" for level in degradation.LEVELS),
            f"{one.quiet['20']:.1f} of {one.run.migrations_s[0] - one.run.start_s:.0f}",
        )
    return table


if __name__ == "__main__":
    main()
