"""Tells people that the private store is at its memory limit, what fills it, and when that is over.

The store itself holds the sources back meanwhile (`docs/decisions/0021-memory-under-pressure.md`); this only
words it. No I/O. Neighbour: `local_run` looks, and tells what is answered here.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.store.port import ShardCounters, StoreMemory

_FULL_SHARE = 0.98
"""A store whose sources wait for memory goes up and down a little below its limit."""
_ROOM_SHARE = 0.9
_MIB = 1 << 20


class MemoryWatch:
    """One per run."""

    def __init__(self) -> None:
        self.is_full = False

    def look(self, memory: StoreMemory, counters: Iterable[ShardCounters | None]) -> str:
        """A sentence when the store has become full, or has room again; "" else."""
        limit_bytes = memory.limit_bytes
        if self.is_full:
            self.is_full = bool(limit_bytes) and memory.used_bytes > _ROOM_SHARE * limit_bytes
            return "" if self.is_full else "the store has memory again: the sources go on"
        self.is_full = bool(limit_bytes) and memory.used_bytes >= _FULL_SHARE * limit_bytes
        if not self.is_full:
            return ""
        waiting_bytes = sum(known.inbox_bytes + known.outbox_bytes for known in counters if known is not None)
        kept_bytes = max(0, memory.used_bytes - waiting_bytes)
        return (
            f"the store is at its memory limit of {_mib(limit_bytes)}: the sources wait while"
            f" {_mib(waiting_bytes)} of entries are worked off; state and what belongs to it take"
            f" {_mib(kept_bytes)}. A run with a larger --store-memory goes on from here"
        )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.0f} MiB" if size_bytes >= 10 * _MIB else f"{size_bytes / _MIB:.1f} MiB"
