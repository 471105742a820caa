"""What a side costs: CPU time and memory of a process with everything it started.

Linux only (/proc). A process that ended is not lost: its CPU time is in its parent's once the parent has
waited for it, and orphans come to the bench itself (`adopt_orphans`). A sampler reads the tree several
times a second, so what a process used is known to within one reading in any case.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parent ends, so that a tree stays one tree."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Process:
    """One reading of /proc/PID/stat. Times in CPU seconds; `reaped_s` is that of ended, awaited children."""

    pid: int
    parent: int
    started_ticks: int
    name: str
    own_s: float
    reaped_s: float


def _read(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    user, system, reaped_user, reaped_system = (int(n) / _TICKS_PER_S for n in fields[11:15])
    return Process(pid, int(fields[1]), int(fields[19]), name, user + system, reaped_user + reaped_system)


def tree(root: int) -> list[Process]:
    """`root` and all its descendants that live now."""
    processes = [p for entry in os.listdir("/proc") if entry.isdigit() and (p := _read(int(entry)))]
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found = [p for p in processes if p.pid == root]
    for process in found:
        found.extend(children.get(process.pid, []))
    return found


@dataclass(slots=True)
class _Account:
    """CPU seconds of a tree over time, ended processes included."""

    live: dict[tuple[int, int], Process] = field(default_factory=dict)
    lost_s: float = 0.0

    def take(self, processes: list[Process]) -> float:
        """Seconds used so far by all that was ever seen in the tree."""
        now = {(p.pid, p.started_ticks): p for p in processes}
        gone_s = sum(p.own_s + p.reaped_s for key, p in self.live.items() if key not in now)
        # What the living gained by awaiting children is what the gone had, if they were awaited.
        awaited_s = sum(
            p.reaped_s - (self.live[key].reaped_s if key in self.live else 0.0) for key, p in now.items()
        )
        self.lost_s += max(0.0, gone_s - awaited_s)
        self.live = now
        return self.lost_s + sum(p.own_s + p.reaped_s for p in processes)


class CpuSampler:
    """Reads the tree of `root` every `every_s` seconds on a thread of its own, while used as a context."""

    def __init__(self, root: int, every_s: float = 0.2) -> None:
        self._root = root
        self._every_s = every_s
        self._account = _Account()
        self._samples: list[tuple[float, float]] = []
        self._peak_by_name: dict[tuple[int, int], tuple[str, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> CpuSampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            processes = tree(self._root)
            if processes:
                self._samples.append((time.time(), self._account.take(processes)))
                for p in processes:
                    self._peak_by_name[p.pid, p.started_ticks] = (p.name, p.own_s)
            self._stop.wait(self._every_s)

    def seconds(self, start: float, end: float) -> float:
        """CPU seconds used between two wall clock times, interpolated between readings.

        ValueError when nothing was read in that time.
        """
        if not self._samples or self._samples[0][0] > end or self._samples[-1][0] < start:
            raise ValueError("no reading of the processes in the time asked for")
        return self._at(end) - self._at(start)

    def by_name(self) -> dict[str, float]:
        """CPU seconds since the start of each process, by its name: who spends it."""
        totals: dict[str, float] = {}
        for name, own_s in self._peak_by_name.values():
            totals[name] = totals.get(name, 0.0) + own_s
        return dict(sorted(totals.items(), key=lambda item: -item[1]))

    def _at(self, when: float) -> float:
        before = self._samples[0]
        for sample in self._samples:
            if sample[0] >= when:
                gap = sample[0] - before[0]
                share = (when - before[0]) / gap if gap > 0 else 0.0
                return before[1] + (sample[1] - before[1]) * max(0.0, share)
            before = sample
        return before[1]


def pss_by_name(root: int) -> dict[str, int]:
    """Proportional set size of a tree in bytes, by process name: shared pages are counted once over all that
    share them."""
    found: dict[str, int] = {}
    for process in tree(root):
        try:
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        size = sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
        found[process.name] = found.get(process.name, 0) + size
    return found
