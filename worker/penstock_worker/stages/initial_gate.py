"""Whether initial state is in the inboxes of the operators that begin with it.

A source that reads initial state tells one watermark, END_MS, with the commit that finishes a partition. The
store passes it on when all that came out before it is in inboxes (`store.port.watermarks`), so any answer
means that all partitions are. Once open a gate stays so (`docs/decisions/0035-initial-state.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.store.port import ReadWatermark
from penstock_worker.process.clock import Clock

END_MS = 1 << 51
"""A watermark that is no event time: it fits a double, also doubled."""
LOOK_US = 20_000
"""A closed gate is looked at this often."""


class InitialGate:
    """Of the initial state that the operators `sources` read; `call` asks the task's node store."""

    def __init__(self, sources: Sequence[str], call: Callable[[ReadWatermark], Any], clock: Clock) -> None:
        self._left = list(sources)
        self._call = call
        self._clock = clock
        self._due_us = 0

    def is_open(self) -> bool:
        """Asks where it is not known, at most every LOOK_US. Raises what the store does."""
        now_us = self._clock.monotonic_us()
        if self._left and now_us >= self._due_us:
            self._due_us = now_us + LOOK_US
            while self._left and self._call(ReadWatermark((self._left[0],))).ms is not None:
                del self._left[0]
        return not self._left
