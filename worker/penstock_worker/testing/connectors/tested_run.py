"""A `penstock run` as a user starts it, and its processes, found and killed from outside.

The command is a process of its own: nothing of it is imported here. Neighbours: `source_runs` and `sink_runs`
decide who is killed when.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

from penstock.metrics.rows import TaskRow, WorkerRow, unpack
from penstock.process_look import look_at
from penstock.store.port import Measure, ReadMetrics, StoreUnreachable
from penstock.store.redis.store import RedisStore

PATIENCE_S = 200.0
"""A worker's start is a JVM's, which takes its time where others work. Only a failing run waits for it."""
LOOK_S = 0.02
ENDED_S = 60.0


class TestedRun:
    """Of the manifest in `folder`; state and output lie beside it. Used in a `with`: nothing is left."""

    __test__ = False  # it is no class of tests

    def __init__(self, manifest: Path) -> None:
        self._manifest = manifest
        self._state = manifest.parent / "state"
        self._log = manifest.parent / "run.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> TestedRun:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def start(self, workers: int, env: Mapping[str, str] | None = None) -> None:
        """With what this interpreter finds, so that modules beside the tests are found too."""
        command = [
            sys.executable, "-m", "penstock_operator.cli", "run", str(self._manifest), "--no-live",
            "--state-dir", str(self._state), "--workers", str(workers),
        ]  # fmt: skip
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._manifest.parent,
                env={**os.environ, "PYTHONPATH": path, **(env or {})},
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Fails when the run ends before, or when it takes too long."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert not self.ended(), f"the run ended before there was {what}:\n{self.output}"
            assert time.monotonic() < deadline_s, f"no {what} within {PATIENCE_S} s:\n{self.output}"
            time.sleep(LOOK_S)

    def finish(self, is_done: Callable[[], bool]) -> None:
        """Until it has ended by itself, or is done and was asked to."""
        deadline_s = time.monotonic() + PATIENCE_S
        assert self._process is not None
        while not self.ended() and not is_done():
            assert time.monotonic() < deadline_s, f"the run did not come to its end:\n{self.output}"
            time.sleep(LOOK_S)
        if not self.ended():
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)
        code = self._process.wait(ENDED_S)
        assert code in (0, 130), f"the run ended with {code}:\n{self.output}"

    # --- its processes

    def kill(self, victim: str, operator: str) -> None:
        """SIGKILL to a task of `operator`, the main process of worker w0, the store, or all of the run."""
        assert self._process is not None
        match victim:
            case "run":
                self._process.kill()
                self._process.wait()
                return
            case "store":
                found = self._store_pids
            case "worker":
                found = self._worker_pids
            case _:

                def found() -> list[int]:
                    return self._task_pids(operator)

        self.until(found, f"process to be killed: {victim}")
        for pid in found()[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _store_pids(self) -> list[int]:
        assert self._process is not None
        return [pid for pid in children(self._process.pid) if program(pid).startswith("redis-server")]

    def _rows(self) -> list[TaskRow | WorkerRow]:
        try:
            with closing(self._store()) as store:
                found = [unpack(name, data) for name, data in store.call(ReadMetrics()).items()]
        except (StoreUnreachable, FileNotFoundError, json.JSONDecodeError):
            return []
        return [row for row in found if isinstance(row, TaskRow | WorkerRow) and look_at(row.pid) is not None]

    def _store(self) -> RedisStore:
        launch = json.loads((self._state / "workers" / "w0.json").read_text())
        return RedisStore(str(launch["store_url"]), str(launch["topology_uid"]))

    def _worker_pids(self) -> list[int]:
        return [row.pid for row in self._rows() if isinstance(row, WorkerRow) and row.state == "ready"]

    def _task_pids(self, operator: str) -> list[int]:
        return [row.pid for row in self._rows() if isinstance(row, TaskRow) and row.operator == operator]

    def completed(self, shards: tuple[str, ...]) -> int | None:
        """Rows that these shards have worked off; None where nobody can say now."""
        try:
            with closing(self._store()) as store:
                found = store.call(Measure(shards))
        except (StoreUnreachable, FileNotFoundError, json.JSONDecodeError):
            return None
        return sum(of.completed_rows for of in found if of is not None)


def children(parent: int) -> Iterator[int]:
    """The processes right below one."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            if int(fields[1]) == parent:
                yield int(entry.name)


def program(pid: int) -> str:
    """Its executable's name; "" where it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
