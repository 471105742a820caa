"""How the processes of tasks ended: exit codes and signals, which Spark does not tell.

A task is a child of the process that forks tasks (`task_daemon`), in which Spark has children collected by
the kernel, unasked. There `report_ends` collects them instead and writes each end into a pipe of the main
process, found by its environment. On another node there is no such pipe, and nothing is told.
Neighbour: `resident_tasks` asks `TaskEnds` about a task whose job failed.
"""

from __future__ import annotations

import os
import signal
import struct
import threading
from collections import OrderedDict
from contextlib import suppress
from types import FrameType
from typing import Any

PIPE = "PENSTOCK_TASK_ENDS"
"""Name of the environment variable: the pipe's path below /proc, and its inode."""
_RECORD = struct.Struct("<qq")
_KEPT_MAX = 1024
DAEMON = -(1 << 31)
"""In the place of an exit code: the process that forks tasks has begun."""


class TaskEnds:
    """The main process' end. Made before the JVM is, which hands its environment on."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC)
        inode = os.fstat(self._write).st_ino
        os.environ[PIPE] = f"/proc/{os.getpid()}/fd/{self._write}:{inode}"
        self._known: OrderedDict[int, int] = OrderedDict()
        self._changed = threading.Condition()
        self.daemons: set[int] = set()
        """Processes that fork tasks; some may have ended."""
        threading.Thread(target=self._listen, name="task-ends", daemon=True).start()

    def code(self, pid: int, within_s: float) -> int | None:
        """The exit code of a task's process, or minus the signal that ended it; None when it is not told."""
        with self._changed:
            self._changed.wait_for(lambda: pid in self._known, within_s)
            return self._known.get(pid)

    def _listen(self) -> None:
        while record := os.read(self._read, _RECORD.size):
            pid, code = _RECORD.unpack(record)
            with self._changed:
                if code == DAEMON:
                    self.daemons.add(pid)
                    continue
                self._known[pid] = code
                self._known.move_to_end(pid)
                while len(self._known) > _KEPT_MAX:
                    self._known.popitem(last=False)
                self._changed.notify_all()


class _ReportingSignals:
    """Python's module `signal`, as pyspark's daemon is to see it: who wants children to be collected unasked
    gets a handler that collects and tells."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def signal(self, number: int, handler: Any) -> Any:
        if number == signal.SIGCHLD and handler == signal.SIG_IGN:
            handler = self._collect
        return signal.signal(number, handler)

    def _collect(self, number: int, frame: FrameType | None) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            # The main process may be gone.
            with suppress(OSError):
                os.write(self._pipe, _RECORD.pack(pid, os.waitstatus_to_exitcode(status)))


def report_ends(daemon: Any) -> None:
    """In the process that forks tasks, before it begins: `daemon` is the module pyspark.daemon."""
    path, _, inode = os.environ.get(PIPE, "").rpartition(":")
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return
    if os.fstat(pipe).st_ino != int(inode):
        os.close(pipe)
        return
    os.write(pipe, _RECORD.pack(os.getpid(), DAEMON))
    daemon.signal = _ReportingSignals(pipe)
