"""Runs over a real store with workers as processes: all of `penstock run` but Spark.

Neighbours: `orders_run` is the program; only processes that it has started are ever signalled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from clocks.eventually import eventually
from processes.live_processes import command_line, is_sentinel


class Command:
    """One run in `folder`; what it printed is in its files."""

    def __init__(self, folder: Path, outputs: Path, number: int, *arguments: str) -> None:
        self.folder = folder
        self.stdout = outputs / f"stdout-{number}"
        self.stderr = outputs / f"stderr-{number}"
        with self.stdout.open("wb") as stdout, self.stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "processes.orders_run", str(folder), *arguments],
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def names(self) -> list[str]:
        whole = self.stdout.read_text().rpartition("\n")[0]
        return [json.loads(line)["name"] for line in whole.splitlines()]

    def told(self) -> str:
        return self.stderr.read_text()

    def wait_for_rows(self, count: int) -> None:
        eventually(lambda: len(self.names()) >= count or self.process.poll() is not None)
        assert self.process.poll() is None, self.told()

    def end(self) -> int:
        return self.process.wait(60)

    def tree(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def sentinel(self) -> psutil.Process:
        """Waits for one that is about to be replaced."""
        found: list[psutil.Process] = []

        def look() -> bool:
            found[:] = [p for p in self.tree() if is_sentinel(p)]
            return len(found) == 1

        eventually(look)
        return found[0]

    def children(self, part: str) -> list[psutil.Process]:
        """Processes of this run whose command line holds `part`."""
        return [process for process in running_in(self.folder) if part in command_line(process)]


def running_in(folder: Path) -> list[psutil.Process]:
    """Whatever was started for a run in `folder`: store and workers name it in their command lines."""
    found = []
    for process in psutil.process_iter():
        line = command_line(process)
        if str(folder) in line and "orders_run" not in line:
            found.append(process)
    return found


class Commands:
    def __init__(self, folder: Path, outputs: Path | None = None) -> None:
        self.folder = folder
        self.outputs = outputs or folder
        self.started: list[Command] = []

    def start(self, *arguments: str) -> Command:
        self.started.append(Command(self.folder, self.outputs, len(self.started), *arguments))
        return self.started[-1]

    @contextmanager
    def all(self) -> Iterator[Commands]:
        """Whatever was started ends here."""
        try:
            yield self
        finally:
            for command in self.started:
                if command.process.poll() is None:
                    command.process.kill()
                    command.process.wait()
            eventually(lambda: not running_in(self.folder))
