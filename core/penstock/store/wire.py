"""One connection to a node store, without retries: commands go out packed, replies come back raw.

redis-py connects (URL forms, TLS, login, RESP3); the exchange itself works on its socket with hiredis,
which costs a task's pipeline of 64 commits 0.3 ms instead of 0.75 ms through redis-py's own connection.
This is also where a server's and a socket's errors become the port's. Neighbour: `redis_store` decides
what to send.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from penstock.errors import PenstockError, PermanentError
from penstock.store.port import ProtocolMismatch, StoreFull, StoreUnreachable

Command = tuple[bytes | str | int, ...]

_CONNECT_TIMEOUT_S = 2.0
_READ_BYTES = 1 << 16
_NOT_YET = object()

# hiredis' own annotation knows only tuples of one
_pack = cast("Callable[[Command], bytes]", hiredis.pack_command)


class ServerError(Exception):
    """An error reply that no caller expects: a bug."""


class Wire:
    """A connection that is made when first needed and again after it broke.

    `timeout_s` bounds the wait for a reply; a blocking command needs more than it blocks for.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        """`url` is unix:///path or redis://host:port; redis-py's forms are all taken."""
        self.url = url
        self._pool = redis.ConnectionPool.from_url(
            url,
            protocol=3,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=_CONNECT_TIMEOUT_S,
            socket_timeout=timeout_s,
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
        self._connection: Any = None
        self._line: tuple[socket.socket, hiredis.Reader] | None = None

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write and read a reply for each.

        An error reply stands in the list as a `ServerError`. Raises StoreUnreachable when the
        connection breaks or the server is not ready; which of the commands took effect is then unknown.
        """
        self.send(commands)
        return self.receive(len(commands))

    def send(self, commands: Sequence[Command]) -> None:
        """The first half of `exchange`: replies may be read later, in order."""
        with self._guarded():
            server, _ = self._line or self._connect()
            server.sendall(b"".join([_pack(command) for command in commands]))

    def receive(self, count: int) -> list[Any]:
        """The second half: the next `count` replies."""
        with self._guarded():
            if self._line is None:
                raise ConnectionResetError("the connection broke before the reply")
            server, reader = self._line
            return _read(server, reader, count)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Drop a connection that broke, or that was left in the middle of something."""
        try:
            yield
        except (OSError, redis.ConnectionError, redis.TimeoutError, hiredis.ProtocolError) as error:
            self.close()
            raise StoreUnreachable(f"the store at {self.url} does not answer: {error}") from error
        except BaseException:
            # an interrupt in the middle of an exchange: what arrives later answers nothing asked later
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, with what was subscribed to on it."""
        return self._line is not None

    def pushed(self, timeout_s: float) -> bool:
        """Wait for a message of what this connection subscribed to, and take all that have come.

        The time is kept here: a server ends a blocking command up to 100 ms late when it has nothing else to
        do. False when none came in time. Raises StoreUnreachable when the connection broke.
        """
        try:
            if self._line is None:
                raise ConnectionResetError("nothing is subscribed to")
            server, reader = self._line
            server.settimeout(max(0.0, timeout_s))
            data = server.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("connection closed by the server")
            reader.feed(data)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError as error:
            self.close()
            raise StoreUnreachable(f"the store at {self.url} does not answer: {error}") from error
        while reader.gets() is not _NOT_YET:
            pass
        return True

    def close(self) -> None:
        """Drop the connection; the next exchange makes a new one."""
        if self._connection is not None:
            self._connection.disconnect()
        self._connection = self._line = None

    def _connect(self) -> tuple[socket.socket, hiredis.Reader]:
        connection: Any = self._pool.make_connection()
        try:
            connection.connect()
        except redis.AuthenticationError as error:
            raise PermanentError(f"the store at {self.url} refuses the login: {error}") from error
        except redis.ResponseError as error:
            raise translate(str(error)) from error
        self._connection = connection
        server = connection._sock  # noqa: SLF001 - redis-py has no public way to its socket
        self._line = server, hiredis.Reader(replyError=ServerError, notEnoughData=_NOT_YET)
        return self._line


def _read(server: socket.socket, reader: hiredis.Reader, count: int) -> list[Any]:
    replies: list[Any] = []
    while len(replies) < count:
        reply = reader.gets()
        if reply is _NOT_YET:
            data = server.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("connection closed by the server")
            reader.feed(data)
        else:
            replies.append(reply)
    return replies


def translate(message: str) -> PenstockError | ServerError:
    """The port's error for a server's error reply; ServerError when it has none."""
    code = message.split(" ", 1)[0]
    if code == "OOM":
        return StoreFull(
            "the node store is at its memory limit: give it more (maxmemory), or let what waits in it"
            f" be worked off ({message})"
        )
    if code in {"MISCONF", "NOSPACE"}:
        return StoreFull(
            f"the node store cannot write to its disk: free space in its state directory ({message})"
        )
    if code in {"LOADING", "BUSY", "MASTERDOWN", "READONLY", "CLUSTERDOWN"}:
        return StoreUnreachable(f"the store does not take calls now: {message}")
    if message.startswith("ERR Function not found"):
        return ProtocolMismatch(
            "the store does not hold the function library of this version of Penstock:"
            " run the same version on both sides, or load the library"
        )
    return ServerError(message)
