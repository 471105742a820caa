"""Processes found by a mark in their environment, and their end.

A worker is a tree: main process, JVM, Python processes. Spark gives some of them process groups of their
own, and a child whose parent was killed hangs under somebody else, so neither group nor parentage finds
all of them. The environment does: it is inherited. `processes.fleet` marks each worker, `sentinel` ends
what a killed command left behind. Only the standard library, and Linux's /proc: the sentinel runs alone.
"""

from __future__ import annotations

import os
import signal

MARK = "PENSTOCK_PROCESS_MARK"
"""Name of the environment variable; its value is "run token/worker uid"."""


def marked(prefix: str) -> set[int]:
    """Living processes of this user whose mark begins with `prefix`. Zombies have no environment."""
    return set(marks(prefix))


def marks(prefix: str) -> dict[int, str]:
    """The same with their marks."""
    found = {}
    wanted = f"{MARK}={prefix}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:  # ended meanwhile, or another user's
            continue
        for variable in variables:
            if variable.startswith(wanted):
                found[int(name)] = variable.decode(errors="replace").partition("=")[2]
    return found


def kill_marked(prefix: str) -> set[int]:
    """SIGKILL them; answers who got it. Call again until empty: a fork may slip past one look."""
    hit = marked(prefix)
    for pid in hit:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return hit
