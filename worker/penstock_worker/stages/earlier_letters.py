"""Dead letters that were written where a routing table of earlier times had their key, in a stage that goes
by none any more: worked on again they are where the key is by its hash. Neighbours: `moved_letters` says
where, `keyed_stage` asks before an order is carried out.
"""

from __future__ import annotations

from penstock.dataflow.plan import Processor
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Entry, NodeStore, StateWrite, TableVersions
from penstock_worker.process.clock import Clock
from penstock_worker.stages.failing_code import FailingCode
from penstock_worker.stages.moved_letters import MovedLetters
from penstock_worker.stages.part_size import fill_of
from penstock_worker.stages.table_shelf import TableShelf
from penstock_worker.stages.work import Work


class EarlierLetters:
    """Of one task's keyed stage. Its store is asked for tables with each order: these are few."""

    def __init__(
        self,
        operator: str,
        head: Processor,
        failing: FailingCode,
        store: NodeStore,
        bounds: Bounds,
        clock: Clock,
    ) -> None:
        self._operator = operator
        self._head = head
        self._failing = failing
        self._store = store
        self._bounds = bounds
        self._clock = clock

    def work(
        self, owned: OwnedShard, entry: Entry, payload: bytes, forget: tuple[StateWrite, ...]
    ) -> Work | None:
        """The commit that is through with an order whose letter's key is elsewhere, and that writes `forget`
        too; None: the order is carried out here. Raises OwnershipLost, StoreUnreachable."""
        if not self._store.call(TableVersions(self._operator)):
            return None
        shelf = TableShelf([self._operator], self._store, self._clock)
        moved = MovedLetters(self._operator, self._head, self._failing, shelf, self._store, self._bounds)
        elsewhere = moved.elsewhere(owned, payload, None)
        if elsewhere is None:
            return None
        writes, outputs = (*elsewhere[0], *forget), tuple(elsewhere[1])
        commit = owned.commit(
            self._clock.now_us(), entries=(entry,), in_hand=True, state=writes, outputs=outputs
        )
        size_bytes = sum(len(write.value or b"") for write in writes) + sum(len(o.payload) for o in outputs)
        return Work(
            commit, (), {}, 0, 0, large=fill_of(self._bounds, len(outputs), size_bytes, len(writes)) > 1
        )
