"""Runs real topologies with `penstock run`, and looks into the run's store while it goes on.

The commands are the user's own; processes are found through what the run leaves in its state directory, and
only those are ever signalled.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from clocks.eventually import eventually
from penstock.metrics.rows import TaskRow, WorkerRow, unpack
from penstock.store.port import Measure, ReadMetrics, ShardCounters, StoreUnreachable
from penstock.store.redis.store import RedisStore
from processes.live_processes import lives, runs_program

"""Between two looks at what only polling shows."""
WORDS = ("river", "stone", "lamp", "Größe", "sea", "night", "door", "glass", "north", "wheel", "ash", "tide")


def write_texts(folder: Path, *, seed: int, files: int, lines: int) -> Counter[str]:
    """Seeded texts of some skew; answers how often each word stands in them, counted as they are written."""
    generator = random.Random(seed)
    vocabulary = [f"{word.lower()}{i}" if i else word.lower() for i in range(40) for word in WORDS]
    weights = [1 / (rank + 1) for rank in range(len(vocabulary))]
    counts: Counter[str] = Counter()
    folder.mkdir(parents=True)
    for number in range(files):
        with (folder / f"text {number}.txt").open("w", encoding="utf-8") as out:
            for _ in range(lines):
                words = generator.choices(vocabulary, weights, k=8)
                counts.update(words)
                out.write(" ".join(words) + "\n")
    return counts


def read_rows(folder: Path) -> Iterator[dict[str, object]]:
    """What is in the files of a sink that nobody writes to: each of their lines is whole."""
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def rows_so_far(folder: Path) -> int:
    """How many rows a sink's files have while a run writes, which may be in the midst of a line."""
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.jsonl"))


def assert_counted_exactly_once(folder: Path, expected: Counter[str]) -> None:
    """Every row of a word count's sink is there once, and a word's rows lead up to its total."""
    totals: dict[str, list[int]] = {}
    for row in read_rows(folder / "out"):
        totals.setdefault(str(row["word"]), []).append(int(str(row["total"])))
    assert {word: max(found) for word, found in totals.items()} == dict(expected)
    for word, found in totals.items():
        assert found == sorted(set(found)), f"{word}: rows out of order or twice"


def assert_figures_are_right(folder: Path, summary: dict[str, Any], expected: Counter[str]) -> None:
    """A run that did it all tells, of each operator, what an oracle counts."""
    lines = sum(len(path.read_text().splitlines()) for path in (folder / "texts").glob("*.txt"))
    told = {name: known["records"] for name, known in summary["operators"].items()}
    words, rows = sum(expected.values()), sum(1 for _ in read_rows(folder / "out"))
    assert told == {"lines": lines, "words": words, "count": words, "totals": rows}


@dataclass
class Run:
    """One `penstock run` of `manifest`; `state` is its state directory."""

    manifest: Path
    state: Path
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    output: str = ""

    @property
    def summary(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.state.parent / "summary.json").read_text())
        return loaded

    @property
    def command(self) -> list[str]:
        return [
            sys.executable, "-m", "penstock_operator.cli", "run", str(self.manifest), "--no-live",
            "--state-dir", str(self.state), "--json-summary", str(self.state.parent / "summary.json"),
            *self.arguments,
        ]  # fmt: skip

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.env},
        )

    def finish(self, seconds: float = 120) -> int:
        """Wait for the end; answers the exit code. `output` holds what was printed."""
        assert self.process is not None
        try:
            self.output, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.output, _ = self.process.communicate(timeout=45)
            finally:
                self.process.kill()
            raise AssertionError(f"the run did not end within {seconds} s:\n{self.output}") from None
        return self.process.returncode

    def abandon(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    # --- looking into the run -----------------------------------------------------------------------

    def launch(self, worker: str) -> dict[str, object]:
        """FileNotFoundError where it is not there yet, or being written."""
        text = (self.state / "workers" / f"{worker}.json").read_text()
        if not text.endswith("}"):
            raise FileNotFoundError(f"the launch of {worker} is being written")
        loaded: dict[str, object] = json.loads(text)
        return loaded

    @contextmanager
    def store(self) -> Iterator[RedisStore]:
        launch = self.launch("w0")
        store = RedisStore(str(launch["store_url"]), str(launch["topology_uid"]))
        try:
            yield store
        finally:
            store.close()

    def store_pid(self) -> int:
        """The run's own redis-server."""
        assert self.process is not None
        (server,) = [
            p for p in psutil.Process(self.process.pid).children() if runs_program("redis-server", p)
        ]
        return server.pid

    def rows(self) -> list[TaskRow | WorkerRow]:
        """The metric rows of tasks and workers; empty while the store is away."""
        try:
            with self.store() as store:
                found = [unpack(name, data) for name, data in store.call(ReadMetrics()).items()]
        except (StoreUnreachable, FileNotFoundError):
            return []
        return [row for row in found if isinstance(row, TaskRow | WorkerRow)]

    def worker(self, name: str) -> WorkerRow | None:
        """The newest row of a worker that says it is ready and whose process lives."""
        for row in self.rows():
            if isinstance(row, WorkerRow) and row.worker == name and row.state == "ready" and lives(row.pid):
                return row
        return None

    def ready_worker(self, name: str) -> WorkerRow:
        """Its row, once there is one: a store that was just replaced has none for a moment."""
        found: list[WorkerRow] = []

        def is_there() -> bool:
            row = self.worker(name)
            found.extend([] if row is None else [row])
            return row is not None

        eventually(is_there, f"worker {name} is ready")
        return found[-1]

    def tasks(self, operator: str) -> list[TaskRow]:
        """Rows of an operator's tasks whose processes live."""
        return [
            row for row in self.rows()
            if isinstance(row, TaskRow) and row.operator == operator and lives(row.pid)
        ]  # fmt: skip

    def counters(self, operator: str, shards: int) -> list[ShardCounters]:
        try:
            with self.store() as store:
                found = store.call(Measure(tuple(f"{operator}/{i}" for i in range(shards))))
        except (StoreUnreachable, FileNotFoundError):
            return []
        return [counters for counters in found if counters is not None]

    def waiting(self, operator: str, shards: int, executors: str = "") -> int:
        """Entries in the inboxes of an operator; of executors whose name ends in `executors` only."""
        return sum(c.inbox_entries for c in self.counters(operator, shards) if c.executor.endswith(executors))

    def completed(self, operator: str, shards: int, executors: str = "") -> int:
        """Rows that an operator has worked off; of executors whose name ends in `executors` only."""
        counters = self.counters(operator, shards)
        return sum(c.completed_rows for c in counters if c.executor.endswith(executors))


def main_processes(run: Run, tasks: list[int]) -> set[int]:
    """Of the workers that these tasks are in."""
    above: set[int] = set()
    for pid in tasks:
        with suppress(psutil.NoSuchProcess):
            above |= {process.pid for process in psutil.Process(pid).parents()}
    return {row.pid for row in run.rows() if isinstance(row, WorkerRow)} & above


@contextmanager
def tasks_held(run: Run, operator: str) -> Iterator[None]:
    """The tasks that now run an operator stand still meanwhile, and their workers' main processes, which
    would start others. Of a source: input is left, however long the machine takes for what is awaited, and a
    paced one gives all that fell due by then at once."""
    eventually(lambda: bool(run.tasks(operator)), f"a task of {operator}")
    tasks = [row.pid for row in run.tasks(operator)]
    pids = [*main_processes(run, tasks), *tasks]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def kill_with_records_waiting(run: Run, pids: list[int], waiting: Callable[[], int]) -> int:
    """Stop the processes, wait until records wait for them, then SIGKILL. Answers how many entries waited."""
    seen = 0

    def some_wait() -> bool:
        nonlocal seen
        seen = waiting()
        return seen > 0

    kill_stopped(pids, some_wait, "records in the inboxes of what is about to be killed")
    return seen


def kill_stopped(pids: list[int], holds: Callable[[], object], what: str) -> None:
    """Stop the processes, wait until `what` holds, then SIGKILL."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        eventually(holds, what)
    finally:
        for pid in pids:
            # The run may have noticed the first death and be ending the rest already.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
