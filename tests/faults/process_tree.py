"""The processes of one run, each by what it is.

All of them inherit a variable from the environment that the run was started with, which finds them whoever
their parent is by then; only those are ever signalled. Neighbours: `strikes` hits them, `leftovers` asks
whether any is left.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SCENE = "PENSTOCK_FAULTS_SCENE"
"""Name of the variable; its value is the folder of the seed."""
_SERVERS = ("redis-server", "valkey-server")
_WORKER_FILE = re.compile(r"/(w\d+)\.json\b")
_MARK = re.compile(r"/worker/[^/]*-(w\d+)-\d+/")


class Role(StrEnum):
    RUN = "run"
    SENTINEL = "sentinel"
    STORE = "store"
    WORKER = "worker"
    JVM = "JVM"
    DAEMON = "daemon"
    TASK = "task"
    STANDBY = "standby"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Found:
    """A process. `worker` is whose tree it is in, "" for none; `operator` what a task runs."""

    pid: int
    role: Role
    worker: str = ""
    operator: str = ""

    def words(self) -> str:
        return " ".join(part for part in (str(self.role), self.worker, self.operator) if part)


def look(scene: Path, run_pid: int, tasks: Mapping[int, str]) -> list[Found]:
    """All living processes of a scene. `tasks` is pid -> operator, as tasks themselves have told."""
    found = []
    for pid in pids(scene):
        with suppress(OSError):  # it ended meanwhile
            found.append(_named(pid, run_pid, tasks))
    return found


def pids(scene: Path) -> set[int]:
    """Living processes that were started for `scene`; zombies have no environment."""
    wanted = f"{SCENE}={scene}".encode()
    return {pid for pid in _all() if wanted in _environment(pid) or _is_store_of(pid, str(scene))}


def end_all(scene: Path) -> int:
    """SIGKILL whatever is left of a scene; answers how many there were."""
    ended = set()
    while left := pids(scene) - {os.getpid()}:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended |= left
    return len(ended)


def memory_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _named(pid: int, run_pid: int, tasks: Mapping[int, str]) -> Found:
    line = _command_line(pid)
    worker = _worker_of(pid, line)
    if pid == run_pid:
        role = Role.RUN
    elif "processes.sentinel import" in line:
        role = Role.SENTINEL
    elif line.partition(" ")[0].endswith(_SERVERS):
        role = Role.STORE
    elif "-m penstock_worker " in line:
        role = Role.WORKER
    elif _is_java(pid):
        role = Role.JVM
    elif "task_daemon" in line or "pyspark.daemon" in line:
        # Tasks are forks of the daemon, and bear its command line.
        if pid in tasks:
            return Found(pid, Role.TASK, worker, tasks[pid])
        role = Role.DAEMON if _is_java(_parent(pid)) else Role.STANDBY
    else:
        role = Role.OTHER
    return Found(pid, role, worker)


def _worker_of(pid: int, line: str) -> str:
    named = _WORKER_FILE.search(line)
    if named is not None:
        return named[1]
    for variable in _environment(pid):
        if variable.startswith(b"PENSTOCK_PROCESS_MARK=") and (mark := _MARK.search(variable.decode())):
            return mark[1]
    return ""


def _is_java(pid: int) -> bool:
    return Path(os.readlink(f"/proc/{pid}/exe")).name == "java"


def _is_store_of(pid: int, scene: str) -> bool:
    """A redis-server writes its title over its environment; the title names its socket."""
    line = _command_line(pid)
    return f"{scene}/" in line and line.partition(" ")[0].endswith(_SERVERS)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _all() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
