"""Sockets between a main process and its tasks: they have a name and no file, so that a killed worker leaves
none behind, and both ends look whether the other is this user.

Neighbours: `standby` and `batch_door` speak through them.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct

_CREDENTIALS = struct.Struct("3i")
"""Process, user, group of who is at the other end."""
_LENGTH_BYTES = 8


def unnamed_listener() -> tuple[str, socket.socket]:
    """A socket that listens, and what to connect to. Raises OSError."""
    path = f"\0penstock-{secrets.token_hex(16)}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    return path, listener


def is_this_user(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to whom this one does."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(told)[1]
    return user == os.getuid()


def received(connection: socket.socket, count: int | None = None) -> bytes:
    """`count` bytes, or all until the other end closes; fewer when it closes before."""
    data = bytearray()
    while count is None or len(data) < count:
        part = connection.recv(65_536 if count is None else min(count - len(data), 1 << 20))
        if not part:
            break
        data += part
    return bytes(data)


def send_message(connection: socket.socket, message: bytes) -> None:
    """A message, its length in front."""
    connection.sendall(len(message).to_bytes(_LENGTH_BYTES, "big"))
    connection.sendall(message)


def received_message(connection: socket.socket) -> bytes | None:
    """What `send_message` sent; None when the other end closes before all of it is there."""
    head = received(connection, _LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    size_bytes = int.from_bytes(head, "big")
    message = received(connection, size_bytes)
    return message if len(message) == size_bytes else None


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end is gone. It has said all that it says."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
