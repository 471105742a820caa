"""The routing tables that a task knows: what its node's store has of the operators that it is about.

Which versions there are is looked at now and then; contents are read once, as they never change. Neighbours:
`switching` routes by them, `receiving` reads what moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.dataflow.routing_table import RoutingTable, decode_table
from penstock.store.port import NodeStore, ReadTable, TableVersions
from penstock_worker.process.clock import Clock

LOOK_US = 100_000
"""Versions are looked at this often: so long a new one waits for a task that has work."""


class TableShelf:
    """One per task. What is asked of the store raises what the store does."""

    def __init__(self, operators: Iterable[str], store: NodeStore, clock: Clock) -> None:
        self._operators = tuple(operators)
        self._store = store
        self._clock = clock
        self._due_us = 0
        self._versions: dict[str, tuple[int, ...]] = {}
        self._newest: dict[str, int] = dict.fromkeys(self._operators, 0)
        self._tables: dict[tuple[str, int], RoutingTable] = {}

    def look_anew(self) -> None:
        """What comes next is to know of all versions that there are now: a shard that is new begins with the
        newest, and nobody waits for its mark."""
        self._due_us = 0

    def look(self) -> bool:
        """Ask which versions there are, where that is due; whether it was."""
        now_us = self._clock.monotonic_us()
        if now_us < self._due_us:
            return False
        self._due_us = now_us + LOOK_US
        answers: list[Any] = self._store.pipeline([TableVersions(one) for one in self._operators])
        self._versions = dict(zip(self._operators, answers, strict=True))
        self._newest = {name: max(versions, default=0) for name, versions in self._versions.items()}
        return True

    def newest(self, operator: str) -> int:
        """The newest version that there is, as far as was looked; 0 for none."""
        return self._newest[operator]

    def after(self, operator: str, version: int) -> RoutingTable | None:
        """The table that follows a version; None where there is none yet, as far as was looked."""
        if version >= self._newest[operator]:
            return None
        following = min((one for one in self._versions.get(operator, ()) if one > version), default=None)
        return None if following is None else self.table(operator, following)

    def table(self, operator: str, version: int) -> RoutingTable | None:
        """A version's table; None where it is not in the store."""
        kept = self._tables.get((operator, version))
        if kept is None:
            content = self._store.call(ReadTable(operator, version))
            if content is None:
                return None
            kept = self._tables[operator, version] = decode_table(content)
            for key in [key for key in self._tables if key[0] == operator and key[1] < version - 1]:
                del self._tables[key]
        return kept
