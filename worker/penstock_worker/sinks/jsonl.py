"""JSONL files: what a task writes of its shards' committed outputs, one file a (sink, upstream shard).

An entry that waits in an outbox is committed: its bytes are fixed, and so is its place in the file, right
behind the entry before it. The recorded position (a byte offset) says how far the acknowledged ones go.
Whoever writes an entry (the owner, the next one after a crash, an earlier owner that comes late) puts the
same bytes in the same place, so files are written at offsets, never appended to, and nothing is locked.

Nothing is ever truncated either. Bytes behind the position are there only because an owner wrote
(part of) entries that are committed and not yet acknowledged; the next owner writes these again, over
them. Where nothing waits in the outbox, nothing is behind the position. Cutting a file could take away
bytes that an earlier owner has written, and acknowledged, in the meantime.

Neighbours: `sink_delivery` knows what to write and acknowledges it; `dataflow.sink_files` names the files,
`dataflow.json_rows` makes the lines.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.plan import JsonlSink
from penstock.dataflow.schema import Schema
from penstock.dataflow.sink_files import sink_file_name
from penstock.errors import PermanentError, RetryError
from penstock.store.codec import decode_batch
from penstock_worker.open_files import OpenFile, OpenFiles

OPEN_MAX = 256
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class SinkDiskFull(RetryError):
    """A file finds no room; what is to be written waits in the store."""


class JsonlSinkWriter:
    """Writes the files of one sink, for all shards that feed it in this task.

    `durable` (mode Disk): a file is made so that it is found after a loss of power; `sync` does the rest.
    """

    def __init__(self, sink: JsonlSink, schema: Schema, base_dir: Path, *, durable: bool) -> None:
        self._sink = sink
        self._folder = base_dir / sink.path
        self._rows = JsonRows(schema)
        self._durable = durable
        self._files = OpenFiles(_open_for_writing, OPEN_MAX)
        self._paths: dict[str, Path] = {}

    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        """Write the rows of (pair number, payload) batches, which follow each other, from `position` on.

        Answers the position behind them. b"" is the start of the file, and the only position at which it
        may be missing. Raises PermanentError when the file is not what was written, or cannot be.
        """
        path = self.path(shard)
        offset = int(position) if position else 0
        data = b"".join(self._rows.lines(_rows_of(payload)) for _, payload in entries)
        try:
            if not position:
                self._create(path)
            self._write_at(path, offset, data)
        except OSError as error:
            if position and isinstance(error, FileNotFoundError):
                raise self._missing(path, offset) from error
            if error.errno in _FULL:
                raise SinkDiskFull(f"no space is left for {path}: free some; until then it waits") from error
            raise PermanentError(f"file {path} cannot be written: {error.strerror}") from error
        return b"%d" % (offset + len(data))

    def sync(self, shard: str) -> None:
        """Bring to disk what was written for a shard; safe beside `write`, from another thread.

        Raises PermanentError.
        """
        path = self.path(shard)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise PermanentError(f"file {path} cannot be brought to disk: {error.strerror}") from error

    def path(self, shard: str) -> Path:
        """The file that holds a shard's rows."""
        path = self._paths.get(shard)
        if path is None:
            operator, _, part = shard.partition("/")
            path = self._paths[shard] = self._folder / sink_file_name(self._sink.name, operator, part)
        return path

    def close(self) -> None:
        self._files.close_all()

    def _create(self, path: Path) -> None:
        """Make the file unless it is there: an owner before may have made it, and written to it."""
        if path.exists():
            return
        missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in _FULL:
                raise
            raise PermanentError(
                f"file {path} cannot be written: folder {error.filename} cannot be made ({error.strerror}); "
                f"mend that, or give sink {self._sink.name} another path"
            ) from error
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        if self._durable:
            # A file is found after a loss of power only if its folder is on disk, and so on upwards.
            for folder in (path.parent, *(made.parent for made in missing)):
                _sync_folder(folder)

    def _write_at(self, path: Path, offset: int, data: bytes) -> None:
        descriptor = self._files.get(path).descriptor
        stat = os.fstat(descriptor)
        if stat.st_nlink == 0:
            self._files.close(path)
            raise self._missing(path, offset)
        if stat.st_size < offset:
            raise PermanentError(
                f"file {path} has {stat.st_size} bytes, but {offset} were written to it; "
                "put it back as it was, or start anew"
            )
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            offset += written
            view = view[written:]

    def _missing(self, path: Path, offset: int) -> PermanentError:
        return PermanentError(
            f"file {path} is missing, but {offset} bytes were written to it; put it back, or start anew"
        )


def _rows_of(payload: bytes) -> list[list[object]]:
    return decode_batch(payload).rows


def _open_for_writing(path: Path) -> OpenFile:
    return OpenFile(os.open(path, os.O_WRONLY | os.O_CLOEXEC))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
