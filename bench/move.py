"""`make bench-move`: how long a moved shard commits nothing, and what its moves cost the others.

Two nodes as processes of this machine (`two_nodes`): a redis-server and an agent each, two workers on the one
and one on the other, real Spark. Four shards hold 32 KiB, 1 MiB, 32 MiB and 256 MiB in values of 1 KiB; the
one that is to be moved gets 1 000 records/s, each of which writes a key's value, the others 250/s each. Kinds
of moves, each by a new version of the Schedule:

- task: an executor's second task goes, or comes: the shards that change task;
- same node: the shard goes to the executor of the other worker on its node, home and state stay;
- node: the shard goes to the other node's executor, and its home with it.

A shard's time without commits is the longest time between two growths of its sink file, which a task writes
when a commit is done (`file_growth`). The others' ages are those of their rows in the files; a stretch
without moves before each kind is the control. The baseline, restart, is carried out at the end on the same
state: workers, agents and stores are stopped (the stores write everything out) and started again.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from bench import commit_gaps, cpu, machine, plots
from bench.commit_gaps import Floats
from bench.file_growth import FileGrowth
from bench.screen import RESULTS, Screen, scratch, seconds_per_figure, show
from bench.two_nodes import START_S, Nodes, NodesFailedError, eventually
from rich.table import Table

from penstock.dataflow.routing import Router
from penstock.dataflow.sink_files import sink_file_name
from penstock.schedule.record import ExecutorPlace
from penstock.store.ownership import OwnedShard
from penstock.store.port import Answer, Claim, Claimed, Enroll, Owner, StateWrite

HERE = Path(__file__).parent
KIB, MIB = 1 << 10, 1 << 20
VALUE_BYTES = 1000
SIZES = {"32KiB": 32 * KIB, "1MiB": MIB, "32MiB": 32 * MIB, "256MiB": 256 * MIB}
"""Of shard 0, 1, 2, 3."""
RATE_PER_S = 1750
"""Of the source, as in the topology: 1 000 for the hot shard, 250 for each other."""
TASK_MOVES, SAME_NODE_MOVES = 60, 60
NODE_MOVES = {"32KiB": 40, "1MiB": 24, "32MiB": 16, "256MiB": 4}
SECONDS = 1.0
"""How many times the moves above; BENCH_SECONDS counts in these."""
CONTROL_S = 6.0
SETTLE_S = 0.25
"""After a shard's first commit at its new place, before the next move."""
TASK_SETTLE_S = 0.6
MOVE_S_MAX = 240.0
WAITING_MAX = 50
"""Entries that may wait while nothing is held up."""
WARMUP_S = 4.0
RESTARTS = 2
SHARDS = tuple(f"hold/{number}" for number in range(len(SIZES)))
LOADER = "hold-loader"
BYTES_AT_ONCE = 1 << 20


# --- the state ------------------------------------------------------------------------------------------


def key_pools(sizes: Sequence[int]) -> list[list[int]]:
    """For each shard as many keys that belong there as values make up its size."""
    router = Router(["bigint"], len(sizes))
    wanted = [max(1, size // KIB) for size in sizes]
    pools: list[list[int]] = [[] for _ in sizes]
    key = 0
    while any(len(pool) < count for pool, count in zip(pools, wanted, strict=True)):
        shard = router.route((key,))
        if len(pools[shard]) < wanted[shard]:
            pools[shard].append(key)
        key += 1
    return pools


def load_state(nodes: Nodes, pools: Sequence[Sequence[int]]) -> None:
    """Fill the shards as their owner would, by commits, before any worker starts."""
    from bench import holding

    from penstock_worker.state import encoding
    from penstock_worker.state.shapes import StateShape
    from penstock_worker.values.spark_types import schema_of

    value = StateShape("state 'state'", schema_of(holding.STATE_SCHEMA)).packed((0, "x" * VALUE_BYTES))
    prefix = encoding.field_prefix(encoding.VALUE, "state")
    store = nodes.store("a")
    worker = nodes.workers["a0"]
    if store.call(Enroll(worker.name, worker.uid, 0, 0)) is not Answer.OK:
        raise NodesFailedError("the loader cannot enrol")
    for shard, pool in zip(SHARDS, pools, strict=True):
        claimed = store.call(Claim(shard, Owner(LOADER, f"{worker.uid}/0/0", "loader"), 1))
        if not isinstance(claimed, Claimed):
            raise NodesFailedError(f"the loader cannot have {shard}: {claimed}")
        owned = OwnedShard(shard, claimed)
        at_once = BYTES_AT_ONCE // len(value)
        for first in range(0, len(pool), at_once):
            keys = pool[first : first + at_once]
            writes = tuple(StateWrite(b"", prefix + encoding.pack((key,)), value) for key in keys)
            commit = owned.commit(time.time_ns() // 1000, state=writes)
            owned.settle(commit, store.call(commit))


# --- moves ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moved:
    """A change of the schedule: when it was written and until when its effects are looked at."""

    kind: str
    shards: tuple[str, ...]
    """Those that changed their owner."""
    start_s: float
    end_s: float


@dataclass(slots=True)
class Story:
    """What happened when, in wall clock seconds."""

    moves: list[Moved] = field(default_factory=list)
    controls: list[tuple[str, float, float]] = field(default_factory=list)
    restarts: list[tuple[float, float]] = field(default_factory=list)


class Driver:
    """Makes the moves."""

    def __init__(self, nodes: Nodes, watch: FileGrowth, screen: Screen, story: Story) -> None:
        self.nodes = nodes
        self.watch = watch
        self.screen = screen
        self.story = story

    def control(self, kind: str, hot: int) -> None:
        """A stretch without moves, with the load of the moves to come."""
        (self.nodes.folder / "hot.tmp").write_text(str(hot))
        (self.nodes.folder / "hot.tmp").replace(self.nodes.folder / "hot")
        time.sleep(1.0)
        self.catch_up()
        start_s = time.time()
        time.sleep(CONTROL_S)
        self.story.controls.append((kind, start_s, time.time()))

    def catch_up(self) -> None:
        """What a move held up is not to be charged to what comes after it."""

        def caught_up() -> bool:
            counters = self.nodes.counters(("records/0", *SHARDS))
            if len(counters) <= len(SHARDS):
                return False  # a store gave no answer
            to_come = counters.pop("records/0").outbox_entries
            return to_come + sum(one.inbox_entries for one in counters.values()) <= WAITING_MAX

        eventually(caught_up, "what waited is done", MOVE_S_MAX)

    def task_moves(self, count: int) -> None:
        """Take the second task of the executor away, and give it back."""
        moved, tasks = 0, 2
        while moved < count:
            epochs = {shard: one.epoch for shard, one in self.nodes.counters(SHARDS).items()}
            tasks = 3 - tasks
            start_s = time.time()
            self.nodes.set_tasks("hold", "hold-a0", tasks)

            def changed(before: Mapping[str, int] = epochs) -> list[str]:
                self.nodes.check()
                now = self.nodes.counters(SHARDS)
                return [shard for shard in SHARDS if now[shard].epoch != before[shard]]

            eventually(changed, f"shards follow the executor's {tasks} tasks", MOVE_S_MAX)
            time.sleep(TASK_SETTLE_S)
            shards = tuple(changed())
            self.story.moves.append(Moved("task", shards, start_s, time.time()))
            moved += len(shards)
            self.screen.tell(f"{moved} of {count}")

    def moves(self, kind: str, shard: str, executors: Sequence[str], count: int) -> None:
        """Move a shard to and fro."""
        for number in range(count):
            executor = executors[number % len(executors)]
            start_s = time.time()
            self.nodes.place("hold", {shard: executor})
            self.nodes.wait_committed({shard: executor}, MOVE_S_MAX, f"{executor} has {shard}")
            time.sleep(SETTLE_S)
            self.story.moves.append(Moved(kind, (shard,), start_s, time.time()))
            self.catch_up()
            self.screen.tell(f"{number + 1} of {count}")

    def restart(self) -> None:
        """Stop everything on its state, and start it again."""
        nodes = self.nodes
        start_s = time.time()
        nodes.stop_workers()
        nodes.stop_stores()
        nodes.start_stores()
        nodes.wait_applied()
        nodes.start_workers()
        restarted_s = time.time()

        def works() -> bool:
            nodes.check()
            return all(self.watch.last_s(shard) > restarted_s for shard in SHARDS)

        eventually(works, "all shards commit again", START_S)
        time.sleep(1.0)
        self.story.restarts.append((start_s, time.time()))


def run(factor: float, folder: Path, screen: Screen) -> tuple[Story, FileGrowth]:
    """The whole story, counted at its end. Raises NodesFailedError."""
    for name in ("topologies/holding.yaml", "holding.py"):
        shutil.copy(HERE / name, folder / ("topology.yaml" if name.endswith("yaml") else name))
    pools = key_pools(list(SIZES.values()))
    np.savez(folder / "pools.npz", **{str(number): np.array(pool) for number, pool in enumerate(pools)})
    (folder / "hot").write_text("1")
    nodes = Nodes(folder, {"a0": "a", "a1": "a", "b0": "b"})
    executors = [ExecutorPlace("records-a0", "a0", 1), ExecutorPlace(LOADER, "a0", 0)]
    executors += [ExecutorPlace(f"hold-{name}", name, 2 if name == "a0" else 1) for name in nodes.workers]
    nodes.begin(executors, {"records": "records-a0", "hold": LOADER})
    files = {shard: folder / "out" / sink_file_name("totals", *shard.split("/", 1)) for shard in SHARDS}
    watch = FileGrowth(files)
    story = Story()
    try:
        with screen.step("state and workers"), watch:
            _start(nodes, pools, watch)
            driver = Driver(nodes, watch, screen, story)
            with screen.step("between tasks of an executor"):
                driver.control("task", 1)
                driver.task_moves(round(factor * TASK_MOVES))
            with screen.step("between workers of a node"):
                driver.control("same_node", 1)
                driver.moves("same_node", SHARDS[1], ("hold-a1", "hold-a0"), _even(factor * SAME_NODE_MOVES))
            for size, count in NODE_MOVES.items():
                number = list(SIZES).index(size)
                with screen.step(f"between nodes, {size}"):
                    driver.control(size, number)
                    driver.moves(size, SHARDS[number], ("hold-b0", "hold-a0"), _even(factor * count))
            for number in range(RESTARTS):
                with screen.step(f"stop and restart {number + 1}"):
                    driver.restart()
            _drain(nodes)
            check_totals(nodes, files)
    finally:
        nodes.stop()
    return story, watch


def _even(count: float) -> int:
    """There and back."""
    return 2 * max(1, round(count / 2))


def _start(nodes: Nodes, pools: Sequence[Sequence[int]], watch: FileGrowth) -> None:
    nodes.start_stores()
    nodes.wait_applied()
    load_state(nodes, pools)
    nodes.place("hold", dict.fromkeys(SHARDS, "hold-a0"))
    nodes.wait_applied()
    nodes.start_workers()

    def works() -> bool:
        nodes.check()
        return all(watch.last_s(shard) for shard in SHARDS)

    eventually(works, "all shards commit", START_S)
    time.sleep(WARMUP_S)


def _drain(nodes: Nodes) -> None:
    """Stop the source, and let everything through."""
    nodes.set_tasks("records", "records-a0", 0)
    seen = [0]

    def at_rest() -> bool:
        counters = nodes.counters(("records/0", *SHARDS))
        if len(counters) < 1 + len(SHARDS):
            return False  # a store gave no answer
        before, seen[0] = seen[0], sum(one.commit for one in counters.values())
        return seen[0] == before and not any(
            one.inbox_entries or (shard == "records/0" and one.outbox_entries)
            for shard, one in counters.items()
        )

    eventually(at_rest, "nothing is under way any more", START_S, every_s=1.5)


def check_totals(nodes: Nodes, files: Mapping[str, Path]) -> None:
    """Every record that the source made is in the totals, once. Raises NodesFailedError."""
    made = nodes.counters(("records/0",))["records/0"].completed_rows
    totals: dict[int, int] = {}
    for shard, file in files.items():
        for row in rows_of(file):
            expected = totals.get(row.key, 0) + row.rows
            if row.total != expected:
                raise NodesFailedError(f"{shard}: the total of key {row.key} is {row.total}, not {expected}")
            totals[row.key] = row.total
    if sum(totals.values()) != made:
        raise NodesFailedError(f"the source made {made} records, the totals have {sum(totals.values())}")


class HeldRow(msgspec.Struct):
    key: int
    number: int
    rows: int
    total: int


_DECODER = msgspec.json.Decoder(HeldRow)


def rows_of(file: Path) -> list[HeldRow]:
    return [_DECODER.decode(line) for line in file.read_bytes().splitlines()]


# --- figures --------------------------------------------------------------------------------------------


def ages_of(file: Path, watch: FileGrowth, shard: str) -> tuple[Floats, Floats]:
    """(arrival in seconds, age in ms of the oldest record behind the row, up to a constant) of each row."""
    lines = file.read_bytes().splitlines(keepends=True)
    ends = np.cumsum([len(line) for line in lines])
    times, sizes = watch.growths(shard)
    seen = np.searchsorted(sizes, ends)
    known = seen < len(sizes)
    numbers = np.array([_DECODER.decode(line).number for line in lines], dtype=np.float64)
    at_s = times[np.minimum(seen, len(times) - 1)]
    return at_s[known], ((at_s - numbers / RATE_PER_S) * 1000)[known]


def figures(story: Story, watch: FileGrowth, folder: Path) -> dict[str, Any]:
    commits = {shard: watch.growths(shard)[0] for shard in SHARDS}
    gaps: dict[str, list[float]] = {}
    for move in story.moves:
        for shard in move.shards:
            gap_ms = commit_gaps.longest_gap_ms(commits[shard], move.start_s, move.end_s)
            gaps.setdefault(move.kind, []).append(gap_ms)
    restarts_ms = [
        commit_gaps.longest_gap_ms(commits[shard], start_s, end_s)
        for start_s, end_s in story.restarts
        for shard in SHARDS
    ]
    quiet_ms = [
        commit_gaps.longest_gap_ms(commits[shard], at_s, at_s + 0.5)
        for kind, start_s, end_s in story.controls
        for shard in (_hot_of(kind),)
        for at_s in np.arange(start_s, end_s - 0.5, 0.5)
    ]
    others = added_by_kind(story, watch, folder)
    return {
        "task": commit_gaps.quantiles_ms(gaps["task"]),
        "same_node": commit_gaps.quantiles_ms(gaps["same_node"]),
        "node": {size: commit_gaps.quantiles_ms(gaps[size]) for size in NODE_MOVES},
        "restart": {**commit_gaps.quantiles_ms(restarts_ms), "restarts": len(story.restarts)},
        "others_added_p99_ms": others["all"].ms,
        "others_added_p99_interval_ms": [others["all"].low_ms, others["all"].high_ms],
        "others_added_p99_by_kind_ms": {
            kind: [added.ms, added.low_ms, added.high_ms] for kind, added in others.items() if kind != "all"
        },
        "without_moves": commit_gaps.quantiles_ms(quiet_ms),
        "moves": sum(len(move.shards) for move in story.moves),
        "gaps_ms": {kind: [round(gap, 1) for gap in found] for kind, found in gaps.items()},
    }


def _hot_of(kind: str) -> str:
    return SHARDS[list(SIZES).index(kind)] if kind in SIZES else SHARDS[1]


def added_by_kind(story: Story, watch: FileGrowth, folder: Path) -> dict[str, commit_gaps.Added]:
    """Added p99 of the shards that were not moved, for each kind and for all moves together.

    The control's stretches are cut to about the moves' length.
    """
    ages = {}
    for shard in SHARDS:
        file = folder / "out" / sink_file_name("totals", *shard.split("/", 1))
        ages[shard] = ages_of(file, watch, shard)
    first_s = story.controls[0][1]
    last_s = story.moves[-1].end_s
    least_ms = min(float(commit_gaps.within(at_s, age, first_s, last_s).min()) for at_s, age in ages.values())
    moved: dict[str, list[Floats]] = {}
    control: dict[str, list[Floats]] = {}

    def ages_ms(shard: str, start_s: float, end_s: float) -> Floats:
        return commit_gaps.within(*ages[shard], start_s, end_s) - least_ms

    for move in story.moves:
        rest = [shard for shard in SHARDS if shard not in move.shards]
        found = [ages_ms(shard, move.start_s, move.end_s) for shard in rest]
        moved.setdefault(move.kind, []).append(np.concatenate(found or [np.empty(0)]))
    for kind, start_s, end_s in story.controls:
        length_s = statistics.median(m.end_s - m.start_s for m in story.moves if m.kind == kind)
        length_s = min(length_s, CONTROL_S / 4)
        rest = [shard for shard in SHARDS if shard != _hot_of(kind)]
        for at_s in np.arange(start_s, end_s - length_s, length_s):
            found = [ages_ms(shard, at_s, at_s + length_s) for shard in rest]
            control.setdefault(kind, []).append(np.concatenate(found))
    out = {kind: commit_gaps.added_p99(moved[kind], control[kind]) for kind in moved}
    everything = [[ages for each in side.values() for ages in each] for side in (moved, control)]
    out["all"] = commit_gaps.added_p99(*everything)
    return out


# --- all of it ------------------------------------------------------------------------------------------


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    factor = seconds_per_figure(SECONDS)
    screen = Screen(3 + len(NODE_MOVES) + RESTARTS)
    with scratch("move") as folder:
        story, watch = run(factor, folder, screen)
        found = figures(story, watch, folder)
    RESULTS.mkdir(exist_ok=True)
    plots.moves(RESULTS / "move.png", found["gaps_ms"], found["restart"]["p50_ms"])
    result = {"bench": "move", **found, "machine": machine.description()}
    show(_table(found), result)


def _table(found: Mapping[str, Any]) -> Table:
    table = Table(title="Time without commits of a moved shard, at 1 000 writes/s to it")
    for header in ("move", "p50 ms", "p99 ms", "max ms", "moves", "to reach, p99", "others' p99, added ms"):
        table.add_column(header, justify="left" if header == "move" else "right")
    by_kind = found["others_added_p99_by_kind_ms"]
    rows = [("between tasks of an executor", found["task"], "20 ms", by_kind["task"])]
    rows.append(("between workers of a node", found["same_node"], "20 ms", by_kind["same_node"]))
    for size, figures_ in found["node"].items():
        to_reach = {"32KiB": "50 ms", "1MiB": ""}.get(size, "100 ms")
        rows.append((f"between nodes, {size}", figures_, to_reach, by_kind[size]))
    rows.append(("none", found["without_moves"], "", None))
    rows.append(("stop and restart", found["restart"], "", None))
    for name, figures_, to_reach, added in rows:
        told = "" if added is None else f"{added[0]:+.1f} ({added[1]:+.1f} to {added[2]:+.1f})"
        table.add_row(
            name,
            *(f"{figures_[quantile]:,.1f}" for quantile in ("p50_ms", "p99_ms", "max_ms")),
            str(figures_["moves"]),
            to_reach,
            told,
        )
    low_ms, high_ms = found["others_added_p99_interval_ms"]
    table.caption = (
        f"{found['moves']} moves add {found['others_added_p99_ms']:.1f} ms ({low_ms:.1f} to {high_ms:.1f}) "
        "to the others' p99"
    )
    return table


if __name__ == "__main__":
    main()
