"""Processes that stand by for the next resident task, so that its start is a message and not a Spark job.

A standby is a Spark task like any other: forked and connected, it waits at a socket of the main process for
the launch of what it is to run. Starting one takes a job and a fork; telling it takes a millisecond. The
socket has a name and no file, so that a killed worker leaves none behind; both ends look whether the other is
this user, since a launch names the store's login. Neighbours: `resident_tasks` starts standbys and gives
them launches, `task` is what they run then.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from pyspark.serializers import CPickleSerializer

from penstock_worker.spark.local_socket import is_this_user, received, unnamed_listener
from penstock_worker.spark.task_entry import run_resident_task
from penstock_worker.task.launch import TaskLaunch

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
        self.path, self._listener = unnamed_listener()
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

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            number = _knocked(connection)
            if number is None:
                connection.close()
                continue
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
            if not is_this_user(door):
                return
            door.sendall(standby.number.to_bytes(_NUMBER_BYTES, "big"))
            told = received(door)
        except OSError:
            # The main process ends.
            return
    if told:
        run_resident_task(CPickleSerializer().loads(told))


def _knocked(connection: socket.socket) -> int | None:
    """The number of the standby that has connected; None for one that is another user's, or says nothing."""
    try:
        if not is_this_user(connection):
            return None
        connection.settimeout(_KNOCK_S)
        number = received(connection, _NUMBER_BYTES)
        connection.settimeout(None)
    except OSError:  # a time-out too
        return None
    return int.from_bytes(number, "big") if len(number) == _NUMBER_BYTES else None
