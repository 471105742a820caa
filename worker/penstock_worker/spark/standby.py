"""Processes that stand by for the next resident task, so that its start is a message and not a Spark job.

A standby is a Spark task like any other: forked and connected, it waits at a socket of the main process for
the launch of what it is to run. Starting one takes a job and a fork; telling it takes a millisecond. The
socket has a name and no file, so that a killed worker leaves none behind; both ends look whether the other is
this user, since a launch names the store's login. Neighbours: `resident_tasks` starts standbys and gives
them launches, `task` is what they run then.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from pyspark.serializers import CPickleSerializer

from penstock_worker.spark.task_entry import run_resident_task
from penstock_worker.task.launch import TaskLaunch

_NUMBER_BYTES = 8
_CREDENTIALS = struct.Struct("3i")
"""Process, user, group of who is at the other end."""
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
        self.path = f"\0penstock-{secrets.token_hex(16)}"
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
            if not _is_this_user(door):
                return
            door.sendall(standby.number.to_bytes(_NUMBER_BYTES, "big"))
            told = _received(door)
        except OSError:
            # The main process ends.
            return
    if told:
        run_resident_task(CPickleSerializer().loads(told))


def _knocked(connection: socket.socket) -> int | None:
    """The number of the standby that has connected; None for one that is another user's, or says nothing."""
    try:
        if not _is_this_user(connection):
            return None
        connection.settimeout(_KNOCK_S)
        number = _received(connection, _NUMBER_BYTES)
        connection.settimeout(None)
    except OSError:  # a time-out too
        return None
    return int.from_bytes(number, "big") if len(number) == _NUMBER_BYTES else None


def _is_this_user(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to whom this one does."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(told)[1]
    return user == os.getuid()


def _received(connection: socket.socket, count: int | None = None) -> bytes:
    """`count` bytes, or all until the other end closes; fewer when it closes before."""
    data = b""
    while count is None or len(data) < count:
        part = connection.recv(65_536 if count is None else count - len(data))
        if not part:
            break
        data += part
    return data
