"""The kind `files`, of sources and of sinks: lines of files, one partition a file; rows below a folder.

The worker's `sources.files` reads and `sinks.jsonl` writes them. Neighbours in `penstock.dataflow`:
`file_position` is a source's position, `sink_files` names a sink's files, `sink_folder` says whose they are.
"""

from __future__ import annotations

import glob as glob_module
import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from penstock.connectors.rate import ONE_RATE, RatePerSecond, RateTraceSpec, rate_faults, trace_file
from penstock.connectors.sink import Place, SinkFields
from penstock.connectors.source import SourceFields
from penstock.dataflow.ddl import InvalidSchema, parse_schema
from penstock.dataflow.file_position import file_position
from penstock.dataflow.json_lines import unreadable
from penstock.dataflow.schema import Column, Schema
from penstock.dataflow.sink import Sink
from penstock.dataflow.sink_files import SUFFIX, sink_file_name, sink_file_prefix
from penstock.dataflow.source import Rate, Source
from penstock.errors import PermanentError
from penstock.manifest.document import Ddl, PathText, cel, fixed
from penstock.manifest.faults import Fault, nearest

TEXT_SCHEMA = Schema((Column("value", "string"),))


# --- source --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FilesSource(Source):
    """Text files, one source shard each, read line by line to their end."""

    kind: ClassVar[str] = "files"
    refuses_input: ClassVar[bool] = True
    trace_may_end: ClassVar[bool] = False
    parts_are: ClassVar[str] = "files"

    glob: str
    format: str
    rate_per_s: float | None
    """Lines a second over all files; None reads as fast as downstream takes them."""
    rate_trace: str | None = None
    """A file with the rate over time (`rate_trace`), instead of `rate_per_s`."""
    schema: Schema = TEXT_SCHEMA
    """Of its rows."""

    @property
    def rate(self) -> Rate:
        return Rate(self.rate_per_s, self.rate_trace)

    def parts(self, base_dir: Path) -> tuple[str, ...]:
        return tuple(discover(self.glob, base_dir))

    def grew(self, part: str, position: bytes, base_dir: Path) -> bool:
        """One that is gone was read to its end; whether one that changed may be read on, a read tells."""
        try:
            return bool(position) and not file_position(position).is_of(file_of(part, base_dir).stat())
        except OSError:
            return False

    def identity_text(self) -> str:
        return f"{self.glob} ({self.format})"


class FilesSourceSpec(SourceFields):
    """Text files, each a shard of its own, read line by line to the end."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.glob == oldSelf.glob", "a source's files are fixed for life"),
            ONE_RATE,
            (
                "(self.format == 'jsonl') == has(self.schema)",
                "format jsonl needs a schema, and format text has none",
            ),
            (
                "self.format == oldSelf.format && " + fixed("schema"),
                "a source's format and schema are fixed for life: rows of it wait in inboxes",
            ),
        )
    )

    planned: ClassVar[type[Source]] = FilesSource

    glob: PathText
    """Which files; `**` goes into folders. Relative to the manifest's folder."""
    format: Literal["text", "jsonl"] = "text"
    """text: one row a line, in the column `value string`. jsonl: one JSON object a line, in the columns of
    `schema`."""
    columns: Annotated[Ddl | None, Field(alias="schema")] = None
    """The columns of jsonl, in Spark's DDL. A field that is missing is null, one that is no column is passed
    over."""
    rate_per_second: RatePerSecond | None = None
    """Lines a second over all files; without it as fast as downstream takes them."""
    rate_trace: RateTraceSpec | None = None
    """Lines a second over all files, over time; instead of ratePerSecond."""

    @classmethod
    def schema_of(cls, body: Mapping[str, Any]) -> Schema | None:
        match body.get("format", "text"), body.get("schema"):
            case "text", _:
                return TEXT_SCHEMA
            case "jsonl", str(ddl) if ddl:
                try:
                    return parse_schema(ddl)
                except InvalidSchema:
                    return None
            case _:
                return None

    @classmethod
    def faults_of(cls, path: str, body: Mapping[str, Any]) -> list[Fault]:
        message = _schema_fault(body)
        faults = [] if message is None else [Fault(f"{path}.schema", message)]
        return [*rate_faults(path, body), *faults]

    def plan(self) -> FilesSource:
        return FilesSource(
            self.glob,
            self.format,
            self.rate_per_second,
            trace_file(self.rate_trace),
            TEXT_SCHEMA if self.columns is None else parse_schema(self.columns),
        )


def _schema_fault(body: Mapping[str, Any]) -> str | None:
    ddl = body.get("schema")
    match body.get("format", "text"):
        case "text" if ddl is not None:
            return "format text has the one column `value string`; leave it out, or give format: jsonl"
        case "jsonl" if ddl is None and not nearest("schema", list(body)):
            return "is missing; format jsonl needs its columns, such as 'user string, amount bigint'"
        case "jsonl" if isinstance(ddl, str) and ddl:
            try:
                return unreadable(parse_schema(ddl))
            except InvalidSchema as error:
                return str(error)
    return None


def discover(glob: str, base_dir: Path) -> list[str]:
    """The files that `glob` matches, sorted: a part each, with slashes on every system.

    A relative pattern (taken from `base_dir`) gives names relative to it, an absolute one absolute names, so
    no two files share a part. Raises PermanentError when nothing matches, or a name is not UTF-8.
    """
    found = {
        Path(name).as_posix()
        for name in glob_module.glob(glob, root_dir=base_dir, recursive=True)
        if (base_dir / name).is_file()
    }
    if not found:
        raise PermanentError(
            f"no file matches {glob!r} (looked for in {base_dir}); correct the glob or put files there"
        )
    for name in found:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise PermanentError(f"the name of file {name!r} is not UTF-8; rename it") from error
    return sorted(found)


def file_of(part: str, base_dir: Path) -> Path:
    """The file behind a part that `discover` gave."""
    return base_dir / part


# --- sink ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JsonlSink(Sink):
    """One file per upstream shard below `path`, one JSON object a line."""

    kind: ClassVar[str] = "files"

    name: str
    path: str

    def identity_text(self) -> str:
        return f"files below {self.path}"

    def folder(self, base_dir: Path) -> Path:
        return (base_dir / self.path).absolute()

    def warnings(self, base_dir: Path) -> list[str]:
        """The folder is made when a run begins, in the nearest one above it that is there."""
        folder = self.folder(base_dir)
        try:
            there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
            if not there.is_dir():
                reason = f"{there} is no folder"
            elif not os.access(there, os.W_OK | os.X_OK):
                reason = f"{there} may not be written into"
            elif os.statvfs(there).f_flag & os.ST_RDONLY:
                reason = f"the file system of {there} is read-only"
            else:
                return []
        except OSError as error:
            reason = str(error.strerror)
        return [f"folder {folder} cannot be written into ({reason}); mend that, or give another path"]

    def files(self, operator: str, parts: Iterable[str], base_dir: Path) -> list[Path]:
        folder = self.folder(base_dir)
        return [folder / sink_file_name(self.name, operator, part) for part in parts]

    def earlier_files(self, operator: str, base_dir: Path) -> list[Path]:
        prefix = sink_file_prefix(self.name, operator)
        folder = base_dir / self.path
        return [
            path
            for path in (folder.iterdir() if folder.is_dir() else ())
            if path.name.startswith(prefix) and path.name.endswith(SUFFIX) and path.is_file()
        ]


class FilesSinkSpec(SinkFields):
    """Files below a folder, one for each upstream shard; a replay writes no row twice."""

    model_config = ConfigDict(
        json_schema_extra=cel(("self.path == oldSelf.path", "a sink's folder is fixed for life"))
    )

    planned: ClassVar[type[Sink]] = JsonlSink

    path: PathText
    """The folder. Relative to the manifest's folder."""
    format: Literal["jsonl"] = "jsonl"
    """jsonl: one JSON object a line."""

    @classmethod
    def place_of(cls, body: Mapping[str, Any]) -> Place | None:
        """Two sinks that write into one folder would write into one another's files."""
        path = body.get("path")
        return Place("path", "folder", posixpath.normpath(path)) if isinstance(path, str) else None

    def plan(self, name: str, feeders: tuple[str, ...] = ()) -> JsonlSink:
        return JsonlSink(name, self.path)
