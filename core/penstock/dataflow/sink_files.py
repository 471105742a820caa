"""The names of the files that a topology's file sinks write: one for each (sink, upstream shard).

The worker writes them; a run that starts anew asks which of an earlier run are still there.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote

from penstock.dataflow.plan import Plan

SUFFIX = ".jsonl"
_NAME_BYTES_MAX = 240
_KEPT_BYTES = 160


def sink_file_name(sink: str, operator: str, part: str, life: int = 0) -> str:
    """The file of `sink` behind shard "operator/part"; two different triples never share a name.

    "<sink>-<operator>-<part>.jsonl", percent-encoded where a character is no part of a file name, and where
    a "-" in the first two would be taken for one between them. A name that is too long for a file system is
    cut, and told from others by its hash. A shard whose state was lost writes into another file in each
    `life`, "<sink>-<operator>-<part>~<life>.jsonl": where the one before ended is not known any more.
    """
    name = sink_file_prefix(sink, operator) + quote(part, safe="").replace("~", "%7E")
    if len(name) > _NAME_BYTES_MAX:
        name = f"{name[:_KEPT_BYTES]}~{hashlib.sha256(name.encode()).hexdigest()}"
    return (f"{name}~{life}" if life else name) + SUFFIX


def sink_file_prefix(sink: str, operator: str) -> str:
    """What the names of all files of `sink` behind `operator` begin with."""
    return f"{_escaped(sink)}-{_escaped(operator)}-"


def earlier_files(plan: Plan, base_dir: Path) -> list[Path]:
    """Files that sinks of `plan` would write and that are there already, of any part; sorted.

    A first start of a topology must not find any: what they hold is another run's, and what lies behind the
    end of what is written now would look as if it belonged to it.
    """
    found: set[Path] = set()
    for stage in plan.stages:
        for sink, _ in stage.all_sinks():
            found.update(sink.earlier_files(stage.operator, base_dir))
    return sorted(found)


def sink_folders(plan: Plan, base_dir: Path) -> dict[Path, str]:
    """The folders that the plan's sinks write into, absolute, each with the first sink that does."""
    folders: dict[Path, str] = {}
    for stage in plan.stages:
        for sink, _ in stage.all_sinks():
            if (folder := sink.folder(base_dir)) is not None:
                folders.setdefault(folder, sink.name)
    return folders


def _escaped(name: str) -> str:
    return quote(name, safe="").replace("-", "%2D").replace("~", "%7E")
