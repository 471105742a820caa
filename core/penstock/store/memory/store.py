"""The node store's twin in memory: the protocol's rules over a `MemoryNode`, call by call.

It answers as `redis.store` does (`tests/contract` runs one suite on both) and never blocks: WaitReady and
WaitControl answer at once what is there. The simulation runs on it, and so do tests that need
a store but no redis-server. Its bases are the roles of calls, one module each, named as in `port`; what a
node holds is in `memory.node`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from penstock.store.limits import check_limits
from penstock.store.memory.administration import MemoryAdministration
from penstock.store.memory.claims import MemoryClaims
from penstock.store.memory.commits import MemoryCommits
from penstock.store.memory.deliveries import MemoryDeliveries
from penstock.store.memory.failures import MemoryFailures
from penstock.store.memory.measures import MemoryMeasures
from penstock.store.memory.moves import MemoryMoves
from penstock.store.memory.moves_export import MemoryMovesExport
from penstock.store.memory.moves_install import MemoryMovesInstall
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.ready_lists import MemoryReadyLists
from penstock.store.memory.schedules import MemorySchedules
from penstock.store.memory.state import MemoryState
from penstock.store.memory.tables import MemoryTables
from penstock.store.memory.topology import MemoryTopology
from penstock.store.memory.watermarks import MemoryWatermarks
from penstock.store.memory.workers import MemoryWorkers
from penstock.store.port import (
    Answer,
    Append,
    Bounds,
    Commit,
    Fetch,
    Fetched,
    PutPairs,
    PutTable,
    Request,
    StoreFull,
)
from penstock.store.port.moves import Install

A = TypeVar("A")


class MemoryStore(
    MemoryAdministration,
    MemoryWorkers,
    MemorySchedules,
    MemoryClaims,
    MemoryReadyLists,
    MemoryState,
    MemoryCommits,
    MemoryFailures,
    MemoryDeliveries,
    MemoryWatermarks,
    MemoryMeasures,
    MemoryTables,
    MemoryMoves,
    MemoryMovesExport,
    MemoryMovesInstall,
):
    """One topology's view of a `MemoryNode`. Every call is atomic, as only one runs at a time."""

    def __init__(self, node: MemoryNode, topology_uid: str, bounds: Bounds) -> None:
        super().__init__(node, topology_uid, bounds)
        self._usual_bounds = bounds
        self._pressed_bounds = bounds.pressed()
        bases = cast("tuple[type[MemoryTopology], ...]", MemoryStore.__bases__)
        roles = [role.handlers(self) for role in bases]
        self._writes = frozenset(call for role in roles for call in role.writes)
        self._handlers = {call: handler for role in roles for of in role for call, handler in of.items()}

    def call(self, call: Request[A]) -> A:
        """Carry out one call. Raises ProtocolMismatch for another store's id, ValueError for a
        call beyond the caps of `Bounds`."""
        check_limits(call, self._usual_bounds)
        if isinstance(call, _NEEDS_ROOM) and not _is_pressed(call) and self._node.is_full:
            return cast("A", _refused_when_full(call))
        answer = self._carry_out(call)
        if self._node.log is not None and type(call) in self._writes:
            self._node.log.append((self._carry_out, call))
        return cast("A", answer)

    def _carry_out(self, call: Request[Any]) -> Any:
        self._bounds = self._pressed_bounds if _is_pressed(call) else self._usual_bounds
        return self._handlers[type(call)](call)

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        """Carry out calls in order."""
        return [self.call(call) for call in calls]

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        """Carry out calls at once; the callable only hands over their answers."""
        answers = self.pipeline(calls)
        return lambda: answers

    def close(self) -> None:
        """Nothing to close."""


_NEEDS_ROOM = Fetch | Append | Install | PutTable | PutPairs
"""What a node at its memory limit refuses; all else makes room, or takes next to none."""


def _is_pressed(call: Request[Any]) -> bool:
    return isinstance(call, Commit | Fetch | Append) and call.pressed


def _refused_when_full(call: Request[Any]) -> Fetched | Answer:
    """What a node at its memory limit answers. Raises StoreFull where that is no answer."""
    if isinstance(call, Fetch):
        return Fetched((), control=False, full=True)
    if isinstance(call, Append):
        return Answer.FULL
    raise StoreFull("the node store is at its memory limit")
