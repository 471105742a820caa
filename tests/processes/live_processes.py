"""Looking at processes that may end at any moment: what is asked of one that has ended, or that nobody has
reaped yet, is answered as of nothing. Tests that kill look at process trees through these.
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from typing import Protocol

import psutil


def process_tree(pid: int) -> list[psutil.Process]:
    """The process itself first; nothing once it has ended."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def kill_tree(pid: int) -> None:
    """Kill the process and all under it, the process itself first: others may end because of that."""
    for process in process_tree(pid):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def command_line(process: psutil.Process) -> str:
    """Its words, joined by blanks; empty once it has ended."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def runs_program(name: str, process: psutil.Process) -> bool:
    """Whether it lives and its executable has this name."""
    with suppress(psutil.Error):
        return process.name() == name and process.status() != psutil.STATUS_ZOMBIE
    return False


def is_child_of(parent: int, process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.ppid() == parent
    return False


def lives(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


class Seen(Protocol):
    """A row that a process wrote of itself."""

    @property
    def pid(self) -> int: ...


def is_another(seen: Seen | None, ended: Container[int]) -> bool:
    """Whether it is there, and none of those that were ended: their rows stand until somebody has noticed."""
    return seen is not None and seen.pid not in ended


def left_running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended; who reaps them does not matter."""
    left = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                left.append(process)
    return left


def is_sentinel(process: psutil.Process) -> bool:
    """Whether it is what ends a local run's processes when the run itself is killed."""
    return "processes.sentinel" in command_line(process)
