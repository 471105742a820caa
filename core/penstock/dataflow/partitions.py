"""The parts that an operator's shards are named by: numbers of a keyed processor and a generator, file
names of a text source.

Whoever creates shards (the run, the agent) asks here, and the reader of a text source goes from a part
back to its file. A shard is called "OPERATOR/PART" everywhere.
"""

from __future__ import annotations

import glob as glob_module
from pathlib import Path

from penstock.dataflow.plan import FilesSource, Processor, Stage, ZipfSource
from penstock.errors import PermanentError


def shard_name(operator: str, part: str) -> str:
    return f"{operator}/{part}"


def part_of(shard: str) -> str:
    """The part of a shard's name; operators have no slash in theirs."""
    return shard.partition("/")[2]


def shards_of(stage: Stage, base_dir: Path) -> tuple[str, ...]:
    """The names of all shards of `stage`, which never change. Raises what `discover` raises."""
    match stage.head:
        case FilesSource(glob=glob):
            parts = discover(glob, base_dir)
        case ZipfSource(partitions=count) | Processor(shards=count):
            parts = [str(number) for number in range(count)]
    return tuple(shard_name(stage.operator, part) for part in parts)


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
