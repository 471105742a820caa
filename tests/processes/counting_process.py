"""A `CountingWorker` as a process without an end: `python -m processes.counting_process SETTINGS`.

It can be killed and stopped like any. In its folder: while there is a file `pause` its sources give no rows;
a file `hold-NAME` holds it before the next commit of rows to the shard that the file names (`held-NAME` says
that it is held); commits that were refused are told line by line in `NAME.journal`. Neighbour: `kill_scene`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.store.port import Answer, Commit, NodeStore, Request
from processes import counting_code
from processes.counting_plan import EndlessRows
from processes.counting_worker import CountingWorker

BALLAST_FIELDS = 300
"""So that a shard takes more than one chunk, and is copied ahead."""


class Settings(msgspec.Struct):
    folder: str
    name: str
    store_url: str
    sources: list[str]
    step_s: float
    tables: bool = False


class Held(NodeStore):
    """Holds commits while somebody wants that, and writes down what was refused."""

    def __init__(self, store: NodeStore, folder: Path, name: str) -> None:
        self._store = store
        self._hold = folder / f"hold-{name}"
        self._held = folder / f"held-{name}"
        self._journal = (folder / f"{name}.journal").open("a", buffering=1)

    def call(self, call: Request[Any]) -> Any:
        return self._store.call(call)

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        return self._store.pipeline(calls)

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        for call in calls:
            if isinstance(call, Commit) and call.consumed_rows:
                self._wait_while_held(call.shard)
        answers = self._store.post(calls)

        def seen() -> list[Any]:
            told = answers()
            for call, answer in zip(calls, told, strict=True):
                if isinstance(call, Commit) and answer not in (Answer.OK, Answer.DONE):
                    self._journal.write(f"loss {call.shard}: {answer}\n")
            return told

        return seen

    def close(self) -> None:
        self._store.close()
        self._journal.close()

    def _wait_while_held(self, shard: str) -> None:
        if self._hold.exists() and self._hold.read_text() == shard:
            self._held.touch()
            while self._hold.exists():
                time.sleep(0.002)


class ProcessWorker(CountingWorker):
    def __init__(self, settings: Settings) -> None:
        folder, name = Path(settings.folder), settings.name
        rows = {source: EndlessRows(source) for source in settings.sources}
        super().__init__(
            name,
            settings.store_url,
            rows,
            between=lambda store: Held(store, folder, name),
            tables=settings.tables,
        )
        self._pause = folder / "pause"
        self.step_s = settings.step_s

    def turn(self) -> None:
        self.part = 0.0 if self._pause.exists() else 1.0
        super().turn()


if __name__ == "__main__":
    counting_code.End.ballast = BALLAST_FIELDS
    ProcessWorker(msgspec.json.decode(sys.argv[1].encode(), type=Settings)).run()
