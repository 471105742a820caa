"""The names of the files that a topology's file sinks write: one for each (sink, upstream shard).

The worker writes them; a run that starts anew asks which of an earlier run are still there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from penstock.dataflow.plan import Fanout, JsonlSink, Plan

SUFFIX = ".jsonl"
_NAME_BYTES_MAX = 240
_KEPT_BYTES = 160


def sink_file_name(sink: str, operator: str, part: str) -> str:
    """The file of `sink` behind shard "operator/part"; two different triples never share a name.

    "<sink>-<operator>-<part>.jsonl", percent-encoded where a character is no part of a file name, and where
    a "-" in the first two would be taken for one between them. A name that is too long for a file system is
    cut, and told from others by its hash.
    """
    name = f"{_escaped(sink)}-{_escaped(operator)}-{quote(part, safe='').replace('~', '%7E')}"
    if len(name) > _NAME_BYTES_MAX:
        name = f"{name[:_KEPT_BYTES]}~{hashlib.sha256(name.encode()).hexdigest()}"
    return name + SUFFIX


def earlier_files(plan: Plan, base_dir: Path) -> list[Path]:
    """Files that sinks of `plan` would write and that are there already, of any part; sorted.

    A first start of a topology must not find any: what they hold is another run's, and what lies behind the
    end of what is written now would look as if it belonged to it.
    """
    found: set[Path] = set()
    for stage in plan.stages:
        for sink in _file_sinks(stage.out):
            prefix = f"{_escaped(sink.name)}-{_escaped(stage.operator)}-"
            folder = base_dir / sink.path
            if folder.is_dir():
                found.update(
                    path
                    for path in folder.iterdir()
                    if path.name.startswith(prefix) and path.name.endswith(SUFFIX) and path.is_file()
                )
    return sorted(found)


def sink_folders(plan: Plan, base_dir: Path) -> dict[Path, str]:
    """The folders that the plan's file sinks write into, absolute, each with the first sink that does."""
    folders: dict[Path, str] = {}
    for stage in plan.stages:
        for sink in _file_sinks(stage.out):
            folders.setdefault((base_dir / sink.path).absolute(), sink.name)
    return folders


def _escaped(name: str) -> str:
    return quote(name, safe="").replace("-", "%2D").replace("~", "%7E")


def _file_sinks(fanout: Fanout) -> Iterator[JsonlSink]:
    yield from (sink for sink in fanout.sinks if isinstance(sink, JsonlSink))
    for step in fanout.steps:
        yield from _file_sinks(step.out)
