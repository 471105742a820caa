"""The clock of a node's processes: monotonic, and counted from one moment of the wall clock for all of them.

Rows carry the time of their source from process to process, and their age decides of latencies, paces and
SLAs. A wall clock that is set takes an hour off an age or adds one. So nobody reads it twice: what a node's
first process found (wall clock - monotonic clock, its *anchor*) stands in the node's store, and the others
take it from there. Linux's monotonic clock is one for all processes of a node, in containers too, from boot
to boot. Between nodes ages are as good as their clocks were when their anchors were laid.

An anchor is laid anew by who starts when the wall clock has been set since and no worker of the topology has
spoken at this node for `KEPT_US`: so a node whose clock was wrong at first is right again after a rest.
Neighbours: `penstock run`, workers and tasks tell time by it; `metrics.rows` has the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.metrics.rows import ClockRow, MetricRow, WorkerRow, clock_row_name, pack, unpack
from penstock.store.port import NodeStore, PutMetrics, ReadMetrics

KEPT_US = 60_000_000
SET_US = 1_000_000
"""A wall clock that is farther from its anchor was set."""
_BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """The wall clock was `offset_us` ahead of the monotonic one of the boot called `boot`."""

    boot: str
    offset_us: int


def boot_id() -> str:
    """The name of this boot of this machine; "" where there is none."""
    try:
        return _BOOT_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class SteadyClock:
    """Microseconds since 1970, as the wall clock was at `anchor`: steps of the wall clock change nothing.

    An anchor of another boot is of another machine, and is not taken; without one, it is laid now.
    """

    def __init__(
        self,
        anchor: ClockAnchor | None = None,
        *,
        boot: str | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        boot = boot_id() if boot is None else boot
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        if anchor is None or anchor.boot != boot:
            anchor = ClockAnchor(boot, (wall_ns() - monotonic_ns()) // 1000)
        self._anchor = anchor

    @property
    def anchor(self) -> ClockAnchor:
        return self._anchor

    def now_us(self) -> int:
        return self._monotonic_ns() // 1000 + self._anchor.offset_us

    def monotonic_us(self) -> int:
        return self._monotonic_ns() // 1000

    def wall_us(self) -> int:
        """What people and user code are shown; it may go back."""
        return self._wall_ns() // 1000

    def hear(self, store: NodeStore) -> None:
        """Go by the anchor that this node's processes go by, if there is one; lay none.

        Raises what the store's calls raise.
        """
        self._anchor = self._laid(store.call(ReadMetrics())) or self._anchor

    def share(self, store: NodeStore) -> None:
        """Go by the anchor that this node's other processes go by, or lay one for them.

        Raises what the store's calls raise.
        """
        rows = store.call(ReadMetrics())
        laid = self._laid(rows)
        if laid is not None:
            now_us = self._monotonic_ns() // 1000 + laid.offset_us
            was_set = abs(self.wall_us() - now_us) > SET_US
            if not was_set or any(now_us - row.at_us < KEPT_US for row in _workers(rows)):
                self._anchor = laid
                return
        name = clock_row_name(self._anchor.boot)
        store.call(PutMetrics(((name, pack(ClockRow(self._anchor.offset_us))),)))

    def _laid(self, rows: dict[str, bytes]) -> ClockAnchor | None:
        row = _row(clock_row_name(self._anchor.boot), rows)
        return ClockAnchor(self._anchor.boot, row.offset_us) if isinstance(row, ClockRow) else None


class HeardClock:
    """A topology's clock at one node, for who has no part in it: it goes by the anchor that lies in the
    node's store, looked for now and then, and lays none. The agent tells ages of rows by it."""

    def __init__(self, clock: SteadyClock | None = None, *, look_every_us: int = 10_000_000) -> None:
        self._clock = clock or SteadyClock()
        self._look_every_us = look_every_us
        self._look_due_us: int | None = None

    def now_us(self, store: NodeStore) -> int:
        """Raises what the store's calls raise."""
        monotonic_us = self._clock.monotonic_us()
        if self._look_due_us is None or monotonic_us >= self._look_due_us:
            self._clock.hear(store)
            self._look_due_us = monotonic_us + self._look_every_us
        return self._clock.now_us()


def _workers(rows: dict[str, bytes]) -> list[WorkerRow]:
    found = (_row(name, rows) for name in rows if name.startswith("worker:"))
    return [row for row in found if isinstance(row, WorkerRow)]


def _row(name: str, rows: dict[str, bytes]) -> MetricRow | None:
    """None also for one that is none: user code may have written it."""
    try:
        return unpack(name, rows[name]) if name in rows else None
    except ValueError:
        return None
