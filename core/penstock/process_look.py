"""A process of this machine at one moment, as Linux's /proc has it: is it stopped, does it work? And what a
worker's end tells.

Neighbours: `penstock run` looks at its store and its workers, a worker at its tasks and its JVM.
"""

from __future__ import annotations

from dataclasses import dataclass

STOPPED = "T"
RUNNABLE = "R"
WAITS_FOR_DISK = "D"
EXIT_JVM_GONE = 4
"""A worker's exit code when the JVM under it has ended: nothing is wrong with the worker but that."""


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """`state` is the letter of /proc/PID/stat (T: stopped, R: runs or may run, D: waits for a disk);
    `worked_ticks` the processor time that it has had, in the kernel's ticks."""

    state: str
    worked_ticks: int


def look_at(pid: int) -> ProcessLook | None:
    """None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(") ")[2].split()
    except OSError:
        return None
    return ProcessLook(fields[0], int(fields[11]) + int(fields[12]))
