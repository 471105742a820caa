"""What the benches show: progress on stderr while they run, the table and the last line on stdout."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.table import Table

RESULTS = Path(os.environ.get("BENCH_RESULTS", Path(__file__).with_name("results")))
"""A run in short form names another folder, so that it takes no measured figure's place."""
WIDTH = 110
"""Of a table that goes to a file or a pipe."""


class Screen:
    """Says what is being measured and how long it has taken; quiet lines when not a terminal."""

    def __init__(self, steps: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._steps = steps
        self._step = 0
        self._began_s = time.monotonic()
        self._what = ""
        self._status: Status | None = None

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """One measured run."""
        self._step += 1
        self._what = f"[{self._step}/{self._steps}] {what}"
        if self._console.is_terminal:
            with self._console.status(self._what) as status:
                self._status = status
                yield
            self._status = None
        else:
            self.note(self._what)
            yield

    def tell(self, phase: str) -> None:
        """What the step is at."""
        if self._status is not None:
            self._status.update(f"{self._what}: {phase}")

    def note(self, text: str) -> None:
        """A line that stays."""
        self._console.print(self._elapsed(text), markup=False, soft_wrap=True)

    def _elapsed(self, text: str) -> str:
        seconds = int(time.monotonic() - self._began_s)
        return f"{seconds // 60}:{seconds % 60:02d} {text}"


def paper() -> Console:
    """Stdout, as wide as the terminal, or `WIDTH` columns where there is none."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def show(table: Table, result: dict[str, Any]) -> None:
    """The table for people, then the one line of JSON; a copy of that goes to the results' folder."""
    paper().print(table)
    line = json.dumps(result, allow_nan=False)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{result['bench']}.json").write_text(json.dumps(result, indent=2) + "\n")
    sys.stdout.write(line + "\n")


def seconds_per_figure(default: float) -> float:
    """How long each figure is measured: BENCH_SECONDS, or what keeps the bench under five minutes."""
    return float(os.environ.get("BENCH_SECONDS", default))


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """An empty folder for the state of a run, the same disk for both systems: BENCH_DIR or the system's own.

    It is removed afterwards, except when the run failed: then its logs are of use.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"penstock-bench-{name}-", dir=os.environ.get("BENCH_DIR")))
    yield folder
    shutil.rmtree(folder)
