"""Whether a file that changed is still the one whose beginning was read and committed.

A file may grow while it is read, or afterwards: what was appended is read on. What was read must be there
as it was: where size or time of change say that something happened, it is read again, some at a time, and
its digest compared; once when the file is taken up, and of one that grows meanwhile before it is finished.
Neighbours: `files` reads, `penstock.dataflow.file_position` is what is committed.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from msgspec import structs

from penstock.dataflow.file_position import FilePosition, file_position
from penstock.errors import PermanentError

COMPARED_BYTES = 8 << 20
"""Of one read; other shards have their turn then."""
_BLOCK_BYTES = 1 << 20
QUIET_US = 1_000_000
"""A file that grows is at its end, and a last line without end is a line, once nothing came for so long."""


class FileChanges:
    """What happened to one file since its position was committed, and since it was first looked at here."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_known = False
        self._is_unsure = False
        self._grows = False
        self._compared_bytes = self._digest = 0
        self._last: tuple[int, int] | None = None
        self._since_us = 0

    def position(self, descriptor: int, packed: bytes) -> FilePosition | None:
        """Where to read on, with the file as it is now; None while what was read is being compared.

        Raises PermanentError when that has changed.
        """
        stat = os.fstat(descriptor)
        if not packed:
            self._is_known = True
            return FilePosition(0, 0, stat.st_size, stat.st_mtime_ns, 0)
        at = file_position(packed)
        if stat.st_size < at.size:
            raise PermanentError(
                f"file {self._path} was truncated: it has {stat.st_size} bytes, and had {at.size} when last "
                f"looked at; it was read to line {at.line}. Put it back as it was, or start anew"
            )
        self._grows = self._grows or stat.st_size > at.size
        self._is_unsure = self._is_unsure or not at.is_of(stat) or at.digest is None
        if self._is_unsure and (not self._is_known or at.digest is None or at.offset == stat.st_size):
            digest = self._compared(descriptor, at.offset)
            if digest is None:
                return None
            if at.digest not in (digest, None):
                raise PermanentError(
                    f"file {self._path} was changed before line {at.line + 1}, where it is read on: its "
                    f"first {at.offset} bytes are not those that were read. Put them back as they were, or "
                    "start anew; lines may be appended"
                )
            at = structs.replace(at, digest=digest)
            self._is_unsure = False
        self._is_known = True
        at = structs.replace(at, size=stat.st_size, changed_ns=stat.st_mtime_ns)
        return at if at.ended or at.offset == at.size else self._behind_its_end(descriptor, at)

    def quiet_us(self, at: FilePosition, now_us: int) -> int | None:
        """At the end of the file, or of its whole lines: when to look again whether more came; None when it
        has come to its end."""
        if not self._grows:
            return None
        seen = (at.size, at.changed_ns)
        if self._last != seen:
            self._last, self._since_us = seen, now_us
        until_us = self._since_us + QUIET_US
        return until_us if now_us < until_us else None

    @property
    def is_unsure(self) -> bool:
        """The file changed, and what was read of it has to be compared before it is finished."""
        return self._is_unsure

    def _compared(self, descriptor: int, length: int) -> int | None:
        """The digest of the first bytes as they are there; None when there is more of them to read."""
        if self._compared_bytes > length:
            self._compared_bytes = self._digest = 0
        until = min(length, self._compared_bytes + COMPARED_BYTES)
        while self._compared_bytes < until:
            block_bytes = min(_BLOCK_BYTES, until - self._compared_bytes)
            block = os.pread(descriptor, block_bytes, self._compared_bytes)
            if not block:
                break  # cut meanwhile; the next look tells
            self._digest = zlib.crc32(block, self._digest)
            self._compared_bytes += len(block)
        if self._compared_bytes < length:
            return None
        digest = self._digest
        self._compared_bytes = self._digest = 0
        return digest

    def _behind_its_end(self, descriptor: int, at: FilePosition) -> FilePosition:
        """The last line had no end when it was read: if it has one now, go on behind that."""
        more = os.pread(descriptor, 2, at.offset)
        end = next((end for end in (b"\n", b"\r\n") if more.startswith(end)), b"")
        if not end:
            raise PermanentError(
                f"file {self._path}, line {at.line}: it had no end when it was read as the last one, and it "
                "goes on now. Put it back as it was, or start anew; who appends to a file ends each line"
            )
        digest = zlib.crc32(end, at.digest or 0)
        return structs.replace(at, offset=at.offset + len(end), digest=digest, ended=True)
