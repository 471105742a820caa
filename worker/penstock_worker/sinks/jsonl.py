"""JSONL files: what a task writes of its shards' committed outputs, one file a (sink, upstream shard).

An entry that waits in an outbox is committed: its bytes are fixed, and so is its place in the file, right
behind the entry before it. The recorded position (a byte offset) says how far the acknowledged ones go. A
shard whose state was lost, position and all, and that lives once more (`penstock.store.lives`) writes into
another file: its position is "OFFSET@LIFE".
Whoever writes an entry (the owner, the next one after a crash, an earlier owner that comes late) puts the
same bytes in the same place, so files are written at offsets, never appended to, and nothing is locked.

Nothing is ever truncated either. Bytes behind the position are there only because an owner wrote
(part of) entries that are committed and not yet acknowledged; the next owner finds them to be the same, or
completes them. Where nothing waits in the outbox, nothing is behind the position. Other bytes are somebody
else's, and are not written over. Cutting a file could take away bytes that an earlier owner has written,
and acknowledged, in the meantime.

Neighbours: `sinks.delivery` knows what to write and acknowledges it; `dataflow.sink_files` names the files,
`dataflow.sink_folder` says whose they are, `json_entries` makes the lines.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from penstock.connectors.files import JsonlSink
from penstock.dataflow.schema import Schema
from penstock.dataflow.sink_files import sink_file_name
from penstock.dataflow.sink_folder import FolderOwner, claim_folder, owner_of, sync_folder
from penstock.errors import PermanentError, RetryError
from penstock.store.lives import life_of
from penstock_worker.process.open_files import OpenFile, OpenFiles
from penstock_worker.sinks.json_entries import JsonEntries
from penstock_worker.sinks.writer import SinkPlace

OPEN_MAX = 256
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class SinkDiskFull(RetryError):
    """A file finds no room; what is to be written waits in the store."""


class JsonlSinkWriter:
    """Writes the files of one sink, for all shards that feed it in this task.

    With `place.durable` a file is made so that it is found after a loss of power; `sync` does the rest.
    """

    def __init__(self, sink: JsonlSink, schema: Schema, place: SinkPlace) -> None:
        self._sink = sink
        self._owner = FolderOwner(place.uid, place.topology, sink.name)
        self._folder = place.base_dir / sink.path
        self._rows = JsonEntries(schema)
        self._durable = place.durable
        self._files = OpenFiles(self._open, OPEN_MAX)
        self._paths: dict[str, tuple[int, Path]] = {}
        self._inodes: dict[Path, tuple[int, int]] = {}
        """Which files were written to, by what the file system knows them by."""

    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        """Write the rows of (pair number, payload) batches, which follow each other, from `position` on.

        Answers the position behind them. b"" is the start of the file, and the only position at which it
        may be missing. Raises PermanentError when the file is not what was written, or cannot be.
        """
        offset, life = _read_position(position) if position else (0, life_of(entries[0][0]) if entries else 0)
        path = self.path(shard, life)
        data = self._rows.lines([payload for _, payload in entries])
        try:
            if not position:
                self._create(path, data)
            self._write_at(path, offset, data)
        except OSError as error:
            if position and isinstance(error, FileNotFoundError):
                raise _missing(path, offset) from error
            if error.errno in _FULL:
                raise SinkDiskFull(f"no space is left for {path}: free some; until then it waits") from error
            raise PermanentError(f"file {path} cannot be written: {error.strerror}") from error
        return _position(offset + len(data), life)

    def check(self, shard: str, position: bytes) -> None:
        """See that the file is still what was written to it, up to `position`, and no more: what lies behind
        must not be written over. For a shard whose committed rows are all written. Raises PermanentError."""
        if not position:
            return
        offset, life = _read_position(position)
        path = self.path(shard, life)
        try:
            stat = os.stat(path)
        except FileNotFoundError as error:
            raise _missing(path, offset) from error
        except OSError as error:
            raise PermanentError(f"file {path} cannot be looked at: {error.strerror}") from error
        self._see_same(path, stat)
        if stat.st_size < offset:
            raise _cut(path, stat.st_size, offset)
        if stat.st_size > offset:
            raise _foreign(path, offset)

    def sync(self, shard: str) -> None:
        """Bring to disk what was written for a shard; safe beside `write`, from another thread.

        Raises PermanentError.
        """
        path = self.path(shard)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                self._see_same(path, os.fstat(descriptor))
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise PermanentError(f"file {path} cannot be brought to disk: {error.strerror}") from error

    def path(self, shard: str, life: int | None = None) -> Path:
        """The file that holds a shard's rows in its `life`; None: in the one that was asked for last."""
        known = self._paths.get(shard)
        if known is not None and life in (None, known[0]):
            return known[1]
        operator, _, part = shard.partition("/")
        path = self._folder / sink_file_name(self._sink.name, operator, part, life or 0)
        self._paths[shard] = (life or 0, path)
        return path

    def close(self) -> None:
        self._files.close_all()

    def _create(self, path: Path, data: bytes) -> None:
        """Make the file unless it is there: an owner before may have made it, and written to it."""
        folder = path.parent
        missing = [above for above in (folder, *folder.parents) if not above.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in _FULL:
                raise
            raise PermanentError(
                f"file {path} cannot be written: folder {error.filename} cannot be made ({error.strerror}); "
                f"mend that, or give sink {self._sink.name} another path"
            ) from error
        if not path.exists():
            claim_folder(folder, self._owner, durable=self._durable)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        elif owner_of(folder) is None:
            # Of an owner before there were owner files, then its bytes are these; or somebody else's.
            with path.open("rb") as file:
                if not _may_become(file.read(len(data)), data):
                    raise _foreign(path, 0)
        if self._durable:
            # A file is found after a loss of power only if its folder is on disk, and so on upwards. Whoever
            # made them may have been killed before that, so it is done for files that were there, too.
            above = len(Path(self._sink.path).parts)
            for each in {folder, *folder.parents[:above], *(made.parent for made in missing)}:
                sync_folder(each)

    def _open(self, path: Path) -> OpenFile:
        claim_folder(path.parent, self._owner, durable=self._durable)
        file = OpenFile(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        stat = os.fstat(file.descriptor)
        try:
            self._see_same(path, stat)
        except PermanentError:
            os.close(file.descriptor)
            raise
        self._inodes[path] = (stat.st_dev, stat.st_ino)
        return file

    def _see_same(self, path: Path, stat: os.stat_result) -> None:
        known = self._inodes.get(path)
        if known is not None and known != (stat.st_dev, stat.st_ino):
            raise PermanentError(
                f"file {path} is another one than was written to, which was moved away or deleted; put that "
                "one back, or start anew"
            )

    def _write_at(self, path: Path, offset: int, data: bytes) -> None:
        descriptor = self._files.get(path).descriptor
        stat = os.fstat(descriptor)
        if stat.st_nlink == 0:
            self._files.close(path)
            raise _missing(path, offset)
        if stat.st_size < offset:
            raise _cut(path, stat.st_size, offset)
        if stat.st_size > offset:
            there = os.pread(descriptor, len(data), offset)
            if there == data:
                return
            if not _may_become(there, data):
                raise _foreign(path, offset)
        written = os.pwrite(descriptor, data, offset)
        while written < len(data):
            written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)


def _position(offset: int, life: int) -> bytes:
    return b"%d@%d" % (offset, life) if life else b"%d" % offset


def _read_position(position: bytes) -> tuple[int, int]:
    """Offset and life."""
    offset, _, life = position.partition(b"@")
    return int(offset), int(life or 0)


def _may_become(there: bytes, data: bytes) -> bool:
    """Whether what is there is a part of `data` that an owner wrote. A byte that never came to disk before a
    loss of power is 0, which no line has."""
    if data.startswith(there):
        return True
    return all(found in (0, wanted) for found, wanted in zip(there, data, strict=False))


def _missing(path: Path, offset: int) -> PermanentError:
    return PermanentError(
        f"file {path} is missing, but {offset} bytes were written to it; put it back, or start anew"
    )


def _cut(path: Path, size: int, offset: int) -> PermanentError:
    return PermanentError(
        f"file {path} has {size} bytes, but {offset} were written to it; put it back as it was, or start anew"
    )


def _foreign(path: Path, offset: int) -> PermanentError:
    return PermanentError(
        f"file {path} holds something behind its first {offset} bytes that this topology did not write, and "
        f"that it would have to write over; take that out (truncate -s {offset}), or start anew elsewhere"
    )
