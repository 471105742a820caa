"""Holds the processes of a worker to `workers.memory`, as its pod's kernel would, as well as one machine can.

There is no cgroup that any user may make, so the run looks itself, four times a second: first at a sum that
is too large but cheap (pages that forks share count for each), and only when that is over the limit at the
true one. What is over it costs the largest process its life. What was killed, and why, is written where the
worker finds it. Memory that is taken within a quarter of a second is noticed afterwards. Neighbours:
`processes.fleet` calls, `marked_processes` finds the processes.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from penstock_operator.words import figure_words

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SHARE = re.compile(rb"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)
_WHOLE = re.compile(rb"^Pss:\s+(\d+) kB$", re.MULTILINE)


def keep_within(pids: Iterable[int], limit_bytes: int, kills_file: Path) -> str:
    """Kill the largest of the processes when all of them hold more; a sentence about it, "" otherwise."""
    pids = tuple(pids)
    if sum(_own_bytes(pid) for pid in pids) <= limit_bytes:
        return ""
    shares = {pid: _share_bytes(pid) for pid in pids}
    held = sum(shares.values())
    if held <= limit_bytes:
        return ""
    largest = max(shares, key=lambda pid: shares[pid])
    limit, holds = figure_words.size(limit_bytes), figure_words.size(held)
    name = _name(largest)
    reason = f"out of memory: the worker held {holds}, workers.memory is {limit}"
    with suppress(OSError), kills_file.open("a", encoding="utf-8") as file:
        file.write(f"{largest} {reason}\n")
    with suppress(ProcessLookupError):
        os.kill(largest, signal.SIGKILL)
    return (
        f"holds {holds}, workers.memory is {limit}: its largest process ({name}, "
        f"{figure_words.size(shares[largest])}) was killed"
    )


def _own_bytes(pid: int) -> int:
    """Resident pages that are no file's; those shared with a fork count for both."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES


def _share_bytes(pid: int) -> int:
    """The same, each page divided by how many have it."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_bytes()
    except OSError:
        return 0
    found = _SHARE.findall(rollup) or _WHOLE.findall(rollup)
    return sum(int(kib) for kib in found) << 10


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return "a process"
