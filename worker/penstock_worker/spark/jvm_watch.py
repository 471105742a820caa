"""Watches the JVM that the worker's Spark session lives in, and the processes that fork tasks for it.

Without its JVM a worker can start no task and is told of no task's end, so it ends at once and with a code of
its own: whoever started it starts it again. This is done from a thread: the main loop may be waiting for the
store, or for the JVM itself. A JVM that stands still for ten seconds is killed, as is a process that forks
tasks; of the latter Spark starts another one, and the tasks that run do not need it. Neighbours: `__main__`
puts it up, `spark.session` starts the JVM, `task_ends` knows who forks tasks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from penstock.process_look import EXIT_JVM_GONE, STOPPED, look_at
from penstock_worker.spark.task_ends import TaskEnds

_LOOK_S = 1.0
STANDS_LOOKS = 10
"""So many looks in a row at which a process is stopped are enough."""


def ending(code: int) -> str:
    """How a process ended, in words; `code` as `Popen` has it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


class JvmWatch:
    """`jvm` is the JVM's process. `end` is told why once it is gone, from a thread."""

    def __init__(self, jvm: subprocess.Popen[bytes], end: Callable[[str], None], ends: TaskEnds) -> None:
        self._jvm = jvm
        self._end = end
        self._ends = ends
        self._dismissed = threading.Event()
        self._stopped: dict[int, int] = {}

    def start(self) -> None:
        for watch in (self._await_end, self._look_about):
            threading.Thread(target=watch, name="jvm-watch", daemon=True).start()

    def dismiss(self) -> None:
        """The worker ends, and the JVM with it."""
        self._dismissed.set()

    def _await_end(self) -> None:
        code = self._jvm.wait()
        if not self._dismissed.is_set():
            self._end(f"its JVM {ending(code)}")

    def _look_about(self) -> None:
        while not self._dismissed.wait(_LOOK_S):
            self.look()

    def look(self) -> None:
        """Once a second: kill who has been stopped for too long."""
        stopped: dict[int, int] = {}
        for pid in (self._jvm.pid, *self._ends.daemons):
            seen = look_at(pid)
            if seen is None:
                self._ends.daemons.discard(pid)
            elif seen.state == STOPPED:
                stopped[pid] = self._stopped.get(pid, 0) + 1
                if stopped[pid] >= STANDS_LOOKS:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self._stopped = stopped


def end_at_once(worker: str, why: str) -> None:
    """Leave this process from any thread, whatever the others wait for."""
    # The log may find no room.
    with suppress(OSError):
        sys.stderr.write(f"worker {worker}: {why}; the worker ends, to be started again\n")
        sys.stderr.flush()
    os._exit(EXIT_JVM_GONE)
