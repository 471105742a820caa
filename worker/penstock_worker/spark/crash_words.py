"""How the crash of a task's process is told: by what it ended, at which shard and key, for which reason.

Pure, but for `killed_by_cgroup` and `told_by_run`, which read what the container's kernel and `penstock run`
have written. Neighbour: `resident_tasks` gathers what is known.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from penstock_worker.task.note import Noted

_CGROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")
_FRAMES_MAX = 6
_NOT_THE_USERS = ("/penstock_worker/", "/pyspark/", "/threading.py", "<frozen ")


def crash_words(code: int | None, at: Noted, *, memory: str, reason: str, fault: str) -> str:
    """`code` is the exit code, minus a signal, or None where nobody knows. `memory` is the worker's limit in
    words. `reason` is why it was killed, where that was told; `fault` is what Python wrote at its end."""
    words = f"its process {_ended_by(code)}"
    if not at.pid:
        words += " before it had begun"
    elif at.shard:
        words += f" as it worked on shard {at.shard}" + (f", key {at.key}" if at.key else "")
    else:
        words += " while no user code ran"
    if reason:
        words += f": {reason}"
    elif code == -signal.SIGKILL:
        words += f"; that is most likely a lack of memory (workers.memory is {memory}), or somebody killed it"
    return "\n".join([words, *_users_frames(fault)])


def _ended_by(code: int | None) -> str:
    if code is None:
        return "crashed"
    if code >= 0:
        return f"ended itself with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _users_frames(fault: str) -> Sequence[str]:
    """Of the thread that crashed: what happened, and the frames of user code, innermost first."""
    lines = fault.splitlines()
    frames = []
    is_current = False
    for line in lines:
        # Other threads may stand before and behind it.
        if "hread 0x" in line:
            is_current = line.startswith("Current")
        is_users = not any(part in line for part in _NOT_THE_USERS)
        if is_current and line.lstrip().startswith("File ") and is_users:
            frames.append(line)
    told = [line for line in lines[:1] if line]
    return [*told, *frames[:_FRAMES_MAX]]


def killed_by_cgroup() -> int | None:
    """How many processes of this container its kernel has killed for memory; None where that is not told."""
    try:
        events = _CGROUP_EVENTS.read_text(encoding="ascii")
    except OSError:
        return None
    fields = dict(line.split(maxsplit=1) for line in events.splitlines() if " " in line)
    return int(fields["oom_kill"]) if "oom_kill" in fields else None


def told_by_run(file: str, pid: int) -> str:
    """Why `penstock run` killed a process, from its lines "PID REASON"; "" when it did not."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines() if file else []
    except OSError:
        return ""
    return next((line.partition(" ")[2] for line in reversed(lines) if line.startswith(f"{pid} ")), "")
