"""The log file of a worker: what it and user code print, bounded, and kept over restarts of worker and run.

All processes of a worker write to one open file, so it cannot be replaced under them: a file that has become
too large is copied beside and cut off. What is printed between the two is lost, at most some milliseconds'.
Neighbour: `processes.fleet` opens it for its workers.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

BYTES_MAX = 16 << 20


def earlier_log(log: Path) -> Path:
    """Where what stood in `log` before goes."""
    return log.with_suffix(".log.1")


def begin_log(log: Path) -> None:
    """A new run: what an earlier one wrote is kept beside."""
    with suppress(FileNotFoundError):
        if log.stat().st_size:
            log.replace(earlier_log(log))


def bound_log(log: Path) -> bool:
    """Cut off a log that is too large; whether it was. Writers have it open to append."""
    try:
        if log.stat().st_size <= BYTES_MAX:
            return False
    except FileNotFoundError:
        return False
    # On a full disk the bound is what counts.
    with suppress(OSError):
        shutil.copyfile(log, earlier_log(log))
    with log.open("r+b") as file:
        file.truncate(0)
    return True
