"""Groups of processes that divide the cores by their weights, as a node's pods do: Linux's control groups.

Without groups Linux divides cores between sessions first where it goes by these (`sched_autogroup_enabled`),
so that a system whose processes are of several sessions has as many shares.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.cpu import tree

_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
_MEMBERS = "cgroup.procs"
_numbers = itertools.count()


class CoreGroup:
    """One group. Where the machine has none, or does not let it, nothing is done."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @property
    def is_there(self) -> bool:
        return self._folder is not None

    def take(self, root: int) -> None:
        """A process and all that it has started so far; what they start later comes by itself."""
        if self._folder is not None:
            for process in tree(root):
                _move(process.pid, self._folder)


@contextmanager
def core_group(weight: int = 1) -> Iterator[CoreGroup]:
    """A group that weighs as much as so many others. Who is in it at the end is in none again."""
    folder = _made(weight)
    try:
        yield CoreGroup(folder)
    finally:
        if folder is not None:
            with suppress(OSError):
                for pid in (folder / _MEMBERS).read_text().split():
                    _move(int(pid), folder.parent)
                folder.rmdir()


def _made(weight: int) -> Path | None:
    name = f"penstock-bench-{os.getpid()}-{next(_numbers)}"
    with suppress(OSError):
        if (_V1 / "cpu.shares").exists():
            folder, setting, one = _V1 / name, "cpu.shares", 1024
        elif "cpu" in (_V2 / "cgroup.subtree_control").read_text().split():
            folder, setting, one = _V2 / name, "cpu.weight", 100
        else:
            return None
        folder.mkdir()
        try:
            (folder / setting).write_text(str(one * weight))
        except OSError:
            folder.rmdir()
            raise
        return folder
    return None


def _move(pid: int, folder: Path) -> None:
    # It may have ended.
    with suppress(OSError):
        (folder / _MEMBERS).write_text(str(pid))
