"""How far a text file is read, as it is committed with what was read of it.

The reader in the worker writes and reads it; `penstock run` looks by it whether a file that was read to its
end is still the one that was read.
"""

from __future__ import annotations

import os

import msgspec


class FilePosition(msgspec.Struct, frozen=True, array_like=True):
    """`offset` bytes with `line` lines are read, of a file that had `size` bytes and the time of change
    `changed_ns` when it was last looked at.

    `digest` is the CRC-32 of the bytes that are read; None where it is not known. `ended`: the last line that
    was read had an end.
    """

    offset: int
    line: int
    size: int
    changed_ns: int
    digest: int | None = None
    ended: bool = True

    def is_of(self, stat: os.stat_result) -> bool:
        """The file was not touched since."""
        return (self.size, self.changed_ns) == (stat.st_size, stat.st_mtime_ns)

    def packed(self) -> bytes:
        return _ENCODER.encode(self)


_DECODER = msgspec.msgpack.Decoder(FilePosition)
_ENCODER = msgspec.msgpack.Encoder()


def file_position(packed: bytes) -> FilePosition:
    """Inverse of `packed`."""
    return _DECODER.decode(packed)
