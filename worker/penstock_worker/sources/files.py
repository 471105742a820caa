"""Text files as a source: one shard a file, one row a line.

A file is read to its end, also to one that is farther away by then: lines may be appended while it is read,
and afterwards. A file that is another one before its position is refused: what was committed would not fit
what is read (`file_changes`). Neighbours: `line_formats` says what a line means,
`penstock.connectors.files` finds the files, `penstock.dataflow.file_position` is a position.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from penstock.connectors.files import FilesSource, discover, file_of
from penstock.dataflow.file_position import FilePosition, file_position
from penstock.dataflow.json_lines import BadLine
from penstock.dataflow.partitions import part_of, shard_name
from penstock.errors import PermanentError
from penstock.store.port import Bounds
from penstock_worker.process.open_files import OpenFile, OpenFiles
from penstock_worker.sources.file_changes import FileChanges
from penstock_worker.sources.line_formats import Rows, format_of
from penstock_worker.sources.pace import AnyPace, pace_of, rate_of
from penstock_worker.sources.reader import BadInput, SourceBatch

CHUNK_BYTES = 128 << 10
OPEN_MAX = 64
"""Each open file has a chunk in memory."""
LINE_BYTES_MAX = Bounds().row_bytes_max - (1 << 20)
"""What a packed row may have; a stage that adds to it has some room."""
_UTF8_BYTES_MAX = 4
_FEW_ROWS = 64
"""Up to so many lines are looked for one by one; the whole cache would be too much to cut for them."""


@dataclass(slots=True)
class _TextFile(OpenFile):
    """`chunk` is a cache: the file's bytes from `chunk_at` on."""

    chunk: bytes = b""
    chunk_at: int = 0

    def load(self, offset: int, length: int) -> None:
        self.chunk = os.pread(self.descriptor, length, offset)
        self.chunk_at = offset

    def holds(self, offset: int) -> bool:
        return self.chunk_at <= offset < self.chunk_at + len(self.chunk)

    def lines(self, offset: int, rows_max: int, bytes_max: int) -> bytes:
        """Whole lines from `offset` on, out of the cache: at most so many and about so many bytes, but one
        at the least; b"" when no line ends in it."""
        begin = offset - self.chunk_at
        end = self.chunk.find(b"\n", begin) + 1
        stop = begin + bytes_max
        if rows_max <= _FEW_ROWS:
            for _ in range(rows_max - 1):
                end = self.chunk.find(b"\n", end, stop) + 1 or end
            return self.chunk[begin:end]
        piece = self.chunk[begin : max(end, self.chunk.rfind(b"\n", begin, stop) + 1)]
        rest = piece.split(b"\n", rows_max)[rows_max:]
        return piece[: len(piece) - len(rest[0])] if rest else piece


class FilesReader:
    """Reads the shards of one text source.

    With a rate, each file gets a part of it in proportion to its size, so that all together keep the rate
    and end at about the same time. `line_bytes_max` bounds a line, in UTF-8 and without its end.
    """

    def __init__(
        self, operator: str, source: FilesSource, base_dir: Path, line_bytes_max: int = LINE_BYTES_MAX
    ) -> None:
        self._source = source
        self._base_dir = base_dir
        self._line_bytes_max = line_bytes_max
        self._paces: dict[str, AnyPace | None] = {}
        self._changes: dict[str, FileChanges] = {}
        self._files = OpenFiles(_open_text, OPEN_MAX)
        self._format = format_of(source)
        self._rate = rate_of(operator, source, base_dir)
        self._shares = {} if self._rate is None else _shares(operator, source.glob, base_dir)
        self._spares = False

    def spare(self) -> None:
        self._spares = True

    def record_of(self, raw: Any) -> object:
        return {"line": raw}

    def rows_again(self, raw: Any) -> list[tuple[Any, ...]]:
        try:
            return self._format.rows([raw])
        except BadLine as bad:
            raise PermanentError(f"the line{bad}") from bad

    @property
    def paced(self) -> bool:
        return self._rate is not None

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        self._paces[shard] = None
        self._changes[shard] = FileChanges(self._path(shard))
        if self._rate is not None:
            spread, phase = self._shares.get(shard, (float(len(self._shares)), 0.0))
            line = file_position(position).line if position else 0
            self._paces[shard] = pace_of(self._rate, spread, phase * spread, line, now_us)

    def release(self, shard: str) -> None:
        self._paces.pop(shard, None)
        self._changes.pop(shard, None)
        self._files.close(self._path(shard))

    def close(self) -> None:
        self._paces.clear()
        self._changes.clear()
        self._files.close_all()

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        path = self._path(shard)
        try:
            while True:
                batch = self._read(path, shard, position, rows_max, bytes_max, now_us)
                # Blank lines may fill all that was read; without a row nobody commits the position.
                if batch.rows or batch.bad or batch.finished or batch.position == position:
                    return batch
                position = batch.position
        except FileNotFoundError as error:
            raise PermanentError(f"file {path} is gone; put it back, or start anew") from error
        except OSError as error:
            raise PermanentError(f"file {path} cannot be read: {error.strerror}") from error

    def _path(self, shard: str) -> Path:
        return file_of(part_of(shard), self._base_dir)

    def grew(self, shard: str, position: bytes) -> bool:
        return self._source.grew(part_of(shard), position, self._base_dir)

    def _read(
        self, path: Path, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int
    ) -> SourceBatch:
        file, pace, changes = self._files.get(path), self._paces[shard], self._changes[shard]
        at = changes.position(file.descriptor, position)
        if at is None:
            return SourceBatch([], [], position, finished=False, next_due_us=None)
        if pace is not None and at.offset < at.size:
            rows_max = min(rows_max, pace.due_rows(at.line, now_us))
            if rows_max == 0:
                return SourceBatch([], [], position, finished=False, next_due_us=pace.due_us(at.line))
        piece = self._piece(path, file, at, rows_max, bytes_max)
        at_end = at.offset + len(piece) >= at.size
        quiet_us = changes.quiet_us(at, now_us) if at_end else None
        if quiet_us is not None and not piece.endswith(b"\n"):
            return SourceBatch([], [], position, finished=False, next_due_us=quiet_us)
        lines = self._decoded(path, piece, at.line)
        after = structs.replace(
            at,
            offset=at.offset + len(piece),
            line=at.line + len(lines),
            digest=zlib.crc32(piece, at.digest or 0),
            ended=piece.endswith(b"\n") if piece else at.ended,
        )
        finished = at_end and quiet_us is None and not changes.is_unsure
        if finished:
            self._files.close(path)
        due_us = quiet_us if at_end or pace is None else pace.due_us(after.line)
        times_us = [now_us] * len(lines) if pace is None else pace.timestamps_us(at.line, len(lines))
        bad: list[BadInput] = []
        rows, times_us = self._rows(path, lines, times_us, at.line, bad)
        return SourceBatch(
            rows, times_us, position=after.packed(), finished=finished, next_due_us=due_us, bad=bad
        )

    def _rows(
        self, path: Path, lines: list[str], times_us: list[int], lines_before: int, bad_lines: list[BadInput]
    ) -> tuple[Rows, list[int]]:
        """The rows of `lines`, and those of `times_us` that are theirs: a blank line may be none."""
        is_blank = self._format.is_blank
        numbers: Sequence[int] = range(len(lines))
        if is_blank is not None and any(map(is_blank, lines)):
            numbers = [number for number, line in enumerate(lines) if not is_blank(line)]
            lines = [lines[number] for number in numbers]
            times_us = [times_us[number] for number in numbers]
        try:
            return self._format.rows(lines), times_us
        except BadLine as bad:
            if not self._spares:
                number = lines_before + numbers[bad.index] + 1
                raise PermanentError(f"file {path}, line {number}{bad}; correct that line") from bad
        rows: Rows = []
        rows_us: list[int] = []
        for number, line, time_us in zip(numbers, lines, times_us, strict=True):
            try:
                rows += self._format.rows([line])
                rows_us.append(time_us)
            except BadLine as bad:
                place = f"file {path}, line {lines_before + number + 1}"
                bad_lines.append(BadInput(line, f"{place}{bad}", place))
        return rows, rows_us

    def _piece(self, path: Path, file: _TextFile, at: FilePosition, rows_max: int, bytes_max: int) -> bytes:
        """Lines from the position on, with their ends; b"" at the end of the file."""
        if not file.holds(at.offset):
            file.load(at.offset, CHUNK_BYTES)
        piece = file.lines(at.offset, rows_max, bytes_max)
        if not piece:
            # The line goes beyond the cache, or is the file's last and has no end.
            return self._long_piece(path, file, at, rows_max, bytes_max)
        return piece

    def _long_piece(
        self, path: Path, file: _TextFile, at: FilePosition, rows_max: int, bytes_max: int
    ) -> bytes:
        """As `_piece`; what is read grows until the line's end is in it."""
        left = at.size - at.offset
        most = min(left, self._line_bytes_max + len(b"\r\n"))
        length = 0
        while length < most:
            length = min(most, max(CHUNK_BYTES, 4 * length))
            file.load(at.offset, length)
            piece = file.lines(at.offset, rows_max, bytes_max)
            if piece:
                return piece
        if most < left:
            raise self._too_long(path, at.line + 1)
        return file.chunk

    def _decoded(self, path: Path, piece: bytes, lines_before: int) -> list[str]:
        """The lines of `piece` without their ends; bytes that are no UTF-8 become U+FFFD."""
        text = piece.decode("utf-8", "replace")
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        if max(map(len, lines), default=0) * _UTF8_BYTES_MAX > self._line_bytes_max:
            for number, line in enumerate(lines, lines_before + 1):
                if len(line.encode()) > self._line_bytes_max:
                    raise self._too_long(path, number)
        return lines

    def _too_long(self, path: Path, number: int) -> PermanentError:
        return PermanentError(
            f"file {path}, line {number}: longer than {self._line_bytes_max} bytes, the most that one record "
            "may have; split the line"
        )


def _shares(operator: str, glob: str, base_dir: Path) -> dict[str, tuple[float, float]]:
    """Shard -> (how many rows the source has for one of its, phase)."""
    parts = discover(glob, base_dir)
    sizes = [max(1, file_of(part, base_dir).stat().st_size) for part in parts]
    return {
        shard_name(operator, part): (sum(sizes) / size, order / len(parts))
        for order, (part, size) in enumerate(zip(parts, sizes, strict=True))
    }


def _open_text(path: Path) -> _TextFile:
    return _TextFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
