"""Processes that stand by for the next resident task, so that its start is a message and not a Spark job.

A standby is a Spark task like any other: forked and connected, it waits at a socket of the main process for
the launch of what it is to run. Starting one takes a job and a fork; telling it takes a millisecond. The
socket is in a folder that only this user can enter, since a launch names the store's login. Neighbours:
`resident_tasks` starts standbys and gives them launches, `task` is what they run then.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.serializers import CPickleSerializer

from penstock_worker.task import run_resident_task
from penstock_worker.task_launch import TaskLaunch

_NUMBER_BYTES = 8
_KNOCK_S = 5.0
"""Whoever has connected says its number within this time."""


@dataclass(frozen=True, slots=True)
class StandbyLaunch:
    """What a standby is started with: the door to knock at, and its number there."""

    door: str
    number: int


class StandbyDoor:
    """The main process' end: who waits, and what it is told. Called from several threads."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-"))
        self.path = str(self._folder / "standby")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, socket.socket]] = deque()
        self._closed = False
        threading.Thread(target=self._listen, name="standby-door", daemon=True).start()

    def take(self) -> tuple[int, socket.socket] | None:
        """One that waits, as (number, connection); it waits for nobody else any more. None when none does."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        """Send all away; idempotent."""
        with self._lock:
            self._closed = True
            gone = [connection for _, connection in self._waiting]
            self._waiting.clear()
        for connection in (*gone, self._listener):
            # A thread that blocks in accept wakes by the shutdown, not by the close.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
                connection.settimeout(_KNOCK_S)
                number = int.from_bytes(_received(connection, _NUMBER_BYTES), "big")
                connection.settimeout(None)
            except TimeoutError:
                continue
            except OSError:
                return
            with self._lock:
                if not self._closed:
                    self._waiting.append((number, connection))
                    continue
            connection.close()
            return


def hand_over(connection: socket.socket, launch: TaskLaunch) -> bool:
    """Tell the one at the other end what to run. False when nobody is there any more."""
    with connection:
        try:
            connection.sendall(CPickleSerializer().dumps(launch))
        except OSError:
            return False
    return True


def run_standby_task(standby: StandbyLaunch) -> None:
    """Knock, wait for a launch, run it until it retires; without one when the door is closed.

    Raises PermanentError as `run_resident_task` does.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        try:
            door.connect(standby.door)
            door.sendall(standby.number.to_bytes(_NUMBER_BYTES, "big"))
            told = _received(door)
        except OSError:
            # The main process ends.
            return
    if told:
        run_resident_task(CPickleSerializer().loads(told))


def _received(connection: socket.socket, count: int | None = None) -> bytes:
    """`count` bytes, or all until the other end closes; fewer when it closes before."""
    data = b""
    while count is None or len(data) < count:
        part = connection.recv(65_536 if count is None else count - len(data))
        if not part:
            break
        data += part
    return data
