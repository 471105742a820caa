"""One connection to a node store, without retries: commands go out packed, replies come back raw.

redis-py connects (URL forms, TLS, login, RESP3); the exchange itself works on its socket with hiredis,
which costs a task's pipeline of 64 commits 0.3 ms instead of 0.75 ms through redis-py's own connection.
A URL that names a user takes the password from the file that PENSTOCK_STORE_PASSWORD_FILE names, or from who
made the wire, anew at each connect, so that it is in no URL, log or argument and may change while a process
runs. A login that is refused passes by itself where passwords are being rotated, so it counts as a store that
is away.
This is also where a server's and a socket's errors become the port's. Neighbour: `redis.store` decides
what to send.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from penstock.errors import PenstockError, PermanentError
from penstock.store.port import (
    ProtocolMismatch,
    StoreDiskFull,
    StoreFull,
    StoreUnreachable,
    UnreadableState,
)
from penstock.store.redis.library import with_parts

Command = tuple[bytes | str | int, ...]

PASSWORD_FILE = "PENSTOCK_STORE_PASSWORD_FILE"  # noqa: S105 - the name of a variable
"""The environment's name of the file that holds the password of the user in a store's URL."""

Password = Callable[[], str]
"""The password as it is now."""

_CONNECT_TIMEOUT_S = 2.0
_READ_BYTES = 1 << 16
_FURTHER_READS_MAX = 128
"""Of one look at what was pushed: whoever is flooded still returns. A server keeps no more for one who
listens than these take: beyond 8 MB for a minute, its default, it cuts the connection."""
_NOT_YET = object()
_AWAY = {"LOADING", "BUSY", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "UNBLOCKED"}
"""Codes of errors that pass by themselves."""
_BROKEN = (
    OSError,
    redis.ConnectionError,
    redis.TimeoutError,
    redis.InvalidResponse,  # something else listens there
    hiredis.ProtocolError,
)
"""What a connection raises that is of no use any more."""

# hiredis' own annotation knows only tuples of one
_pack = cast("Callable[[Command], bytes]", hiredis.pack_command)


class ServerError(Exception):
    """An error reply that no caller expects: a bug."""


class Wire:
    """A connection that is made when first needed and again after it broke.

    `timeout_s` bounds the wait for a reply; a blocking command needs more than it blocks for.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        password: Password | None = None,
        reply_bytes_max: int | None = None,
    ) -> None:
        """`url` is unix:///path or redis://host:port, with user@ before path or host where one logs in;
        redis-py's forms are all taken. Without `password` it is in the file that the environment names.
        Replies that are larger together than `reply_bytes_max` are not read."""
        self.url = _without_password(url)
        self._reply_bytes_max = reply_bytes_max
        self._password_is_in = "who calls" if password is not None else f"the file that {PASSWORD_FILE} names"
        address, login = _address_and_login(url, password)
        self._pool = redis.ConnectionPool.from_url(
            address,
            credential_provider=login,
            protocol=3,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=_CONNECT_TIMEOUT_S,
            socket_timeout=timeout_s,
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
            # Its own version is of no use here, and redis-py looks for it in all of sys.path, each time.
            driver_info=None,
        )
        self._connection: Any = None
        self._line: tuple[socket.socket, hiredis.Reader] | None = None
        self._pushed_bytes = 0
        """Of a message that has not come as a whole."""

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write and read a reply for each.

        An error reply stands in the list as a `ServerError`. Raises StoreUnreachable when the
        connection breaks or the server is not ready; which of the commands took effect is then unknown.
        """
        self.send(commands)
        return self.receive(len(commands))

    def send(self, commands: Sequence[Command]) -> None:
        """The first half of `exchange`: replies may be read later, in order."""
        try:
            server, _ = self._line or self._connect()
            server.sendall(b"".join([_pack(command) for command in commands]))
        except BaseException as error:
            self._drop(error)
            raise

    def receive(self, count: int, more_bytes: int = 0) -> list[Any]:
        """The second half: the next `count` replies, which may be so much larger than others. Raises
        UnreadableState for more bytes than are read."""
        try:
            if self._line is None:
                raise ConnectionResetError("the connection broke before the reply")
            server, reader = self._line
            return self._read(server, reader, count, more_bytes)
        except BaseException as error:
            self._drop(error)
            raise

    def _drop(self, error: BaseException) -> None:
        """Close a connection that broke, or that was left in the middle of something, as by an interrupt:
        what arrives later answers nothing asked later. Raises StoreUnreachable for one that broke."""
        self.close()
        if isinstance(error, _BROKEN):
            raise StoreUnreachable(f"the store at {self.url} does not answer: {error}") from error

    def _read(self, server: socket.socket, reader: hiredis.Reader, count: int, more_bytes: int) -> list[Any]:
        replies: list[Any] = []
        size_bytes, most_bytes = 0, self._reply_bytes_max
        if most_bytes is not None:
            most_bytes += more_bytes
        while len(replies) < count:
            reply = reader.gets()
            if reply is _NOT_YET:
                data = server.recv(_READ_BYTES)
                if not data:
                    raise ConnectionResetError("connection closed by the server")
                size_bytes += len(data)
                if most_bytes is not None and size_bytes > most_bytes:
                    raise UnreadableState(f"a reply of more than {most_bytes} bytes")
                reader.feed(data)
            else:
                replies.append(reply)
        return replies

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, with what was subscribed to on it."""
        return self._line is not None

    def pushed(self, timeout_s: float) -> bool:
        """Wait for a message of what this connection subscribed to, and take all that have come.

        The time is kept here: a server ends a blocking command up to 100 ms late when it has nothing else to
        do. False when none came in time. Raises StoreUnreachable when the connection broke.
        """
        taken = first = self._take_pushed(max(0.0, timeout_s))
        for _ in range(_FURTHER_READS_MAX):
            if taken < _READ_BYTES:
                break
            taken = self._take_pushed(0.0)
        return first > 0

    def _take_pushed(self, timeout_s: float) -> int:
        """One read; how many bytes came."""
        try:
            if self._line is None:
                raise ConnectionResetError("nothing is subscribed to")
            server, reader = self._line
            server.settimeout(timeout_s)
            data = server.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("connection closed by the server")
            self._pushed_bytes += len(data)
            if self._reply_bytes_max is not None and self._pushed_bytes > self._reply_bytes_max:
                raise ConnectionResetError(f"a message of more than {self._reply_bytes_max} bytes")
            reader.feed(data)
        except (TimeoutError, BlockingIOError):
            return 0
        except OSError as error:
            self.close()
            raise StoreUnreachable(f"the store at {self.url} does not answer: {error}") from error
        while reader.gets() is not _NOT_YET:
            self._pushed_bytes = 0
        return len(data)

    def close(self) -> None:
        """Drop the connection; the next exchange makes a new one."""
        if self._connection is not None:
            self._connection.disconnect()
        self._line = None
        self._pushed_bytes = 0

    def _connect(self) -> tuple[socket.socket, hiredis.Reader]:
        if self._connection is None:
            # One for good, connected again and again: a pool makes no more than a hundred.
            self._connection = self._pool.make_connection()
        connection = self._connection
        try:
            connection.connect()
        except redis.AuthenticationError as error:
            raise StoreUnreachable(
                f"the store at {self.url} refuses the login ({error}): the user must be one of the store's,"
                f" and {self._password_is_in} must hold its password"
            ) from error
        except redis.ResponseError as error:
            raise translate(str(error)) from error
        server = connection._sock  # noqa: SLF001 - redis-py has no public way to its socket
        self._line = server, hiredis.Reader(replyError=ServerError, notEnoughData=_NOT_YET)
        return self._line


class Login(redis.CredentialProvider):
    """A user whose password is asked for at each connect; without `password` it is the content of a file,
    without the line's end."""

    def __init__(self, user: str, password: Password | None = None) -> None:
        self._user = user
        self._password = password

    def get_credentials(self) -> tuple[str, str]:
        """Raises PermanentError when there is no such file."""
        if self._password is not None:
            return self._user, self._password()
        name = os.environ.get(PASSWORD_FILE, "")
        if not name:
            raise PermanentError(
                f"the store's URL names the user {self._user}, and {PASSWORD_FILE} is not set:"
                " it must name the file with the password"
            )
        try:
            return self._user, Path(name).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise PermanentError(
                f"the password file {name} ({PASSWORD_FILE}) cannot be read: {error.strerror}"
            ) from error


def url_beside(url: str, address: str) -> str:
    """The URL of the store at `address` (host:port), where one logs in as in `url`."""
    login = re.match(r"\w+://([^/@]+@)", url)
    return f"redis://{login[1] if login else ''}{address}"


def _address_and_login(url: str, password: Password | None) -> tuple[str, Login | None]:
    """The URL as redis-py shall see it, and who logs in when it names a user without a password."""
    login = re.match(r"(?P<scheme>\w+://)(?P<user>[^/@:]+)@", url)
    if login is None:
        return url, None
    return login["scheme"] + url[login.end() :], Login(unquote(login["user"]), password)


def _without_password(url: str) -> str:
    return re.sub(r"(?<=://)([^/@]*):[^/@]*@", r"\1@", url)


def is_out_of_memory(error: ServerError) -> bool:
    """Whether a server refused a command as it is at its memory limit."""
    return str(error).startswith("OOM ")


def translate(message: str) -> PenstockError | ServerError:
    """The port's error for a server's error reply; ServerError when it has none, with the lines of
    the library as they are in its parts."""
    code = message.split(" ", 1)[0]
    if code == "OOM":
        return StoreFull(
            "the node store is at its memory limit: give it more (maxmemory), or let what waits in it"
            f" be worked off ({message})"
        )
    if code in {"MISCONF", "NOSPACE"}:
        return StoreDiskFull(
            f"the node store cannot write to its disk: free space in its state directory ({message})"
        )
    if code == "NOPERM" or "ACL failure in script" in message:
        return PermanentError(f"the store does not allow this user's call ({message}): check its users.acl")
    if code in {"NOAUTH", "WRONGPASS"}:
        return PermanentError(
            f"the store does not know who calls ({message}): its URL must name one of the store's users, and"
            f" {PASSWORD_FILE} the file with that user's password"
        )
    if code in _AWAY or message.startswith("ERR max number of clients"):
        return StoreUnreachable(f"the store does not take calls now: {message}")
    if message.startswith("ERR Function not found"):
        return ProtocolMismatch(
            "the store does not hold the function library of this version of Penstock:"
            " run the same version on both sides, or load the library"
        )
    return ServerError(with_parts(message))
