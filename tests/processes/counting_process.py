"""A `CountingWorker` as a process without an end: `python -m processes.counting_process SETTINGS`.

It can be killed and stopped like any. In its folder: while there is a file `pause` its sources give no rows;
a file `hold-NAME` holds it before the next commit of rows to the shard that the file names (`held-NAME` says
that it is held); what went wrong is told line by line in `NAME.journal`. Neighbour: `kill_scene`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.store.ownership import OwnedShard
from penstock.store.port import Commit, StateWrite
from processes.counting_worker import CountingWorker, EndlessRows, Row

BALLAST_FIELDS = 1_000


class Settings(msgspec.Struct):
    folder: str
    name: str
    store_url: str
    attempt: int
    sources: list[str]
    targets: dict[str, list[str]]
    step_s: float


class ProcessWorker(CountingWorker):
    def __init__(self, settings: Settings) -> None:
        rows = {source: EndlessRows(source) for source in settings.sources}
        super().__init__(settings.name, settings.store_url, rows, settings.targets, settings.attempt)
        folder = Path(settings.folder)
        self._pause = folder / "pause"
        self._hold = folder / f"hold-{settings.name}"
        self._held = folder / f"held-{settings.name}"
        self._journal = (folder / f"{settings.name}.journal").open("a", buffering=1)
        self.step_s = settings.step_s
        self.before_commit = self._wait_while_held

    def _step(self) -> None:
        self.part = 0.0 if self._pause.exists() else 1.0
        super()._step()
        for kind, lines in (("fault", self.faults), ("loss", self.losses)):
            for line in lines:
                self._journal.write(f"{kind} {line}\n")
            lines.clear()

    def _counted(self, owned: OwnedShard, batch: Sequence[Row]) -> tuple[StateWrite, ...]:
        """With the first commit so much that a shard takes more than one chunk, and is copied ahead."""
        counted = super()._counted(owned, batch)
        if owned.number > 0:
            return counted
        return (*counted, *(StateWrite(b"ballast", b"%d" % number, b"") for number in range(BALLAST_FIELDS)))

    def _wait_while_held(self, commit: Commit) -> None:
        if commit.consumed_rows and self._hold.exists() and self._hold.read_text() == commit.shard:
            self._held.touch()
            while self._hold.exists():
                time.sleep(0.002)


if __name__ == "__main__":
    ProcessWorker(msgspec.json.decode(sys.argv[1].encode(), type=Settings)).run()
