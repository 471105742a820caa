"""Looks at the run's store, and knows whether it is away or lost.

One look is one pipeline; how often depends on how many shards there are, since looking must not keep the
store busy. Neighbours: `local_run` looks by it and tells it what its own calls met, `memory_watch` words what
the store holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.dataflow.on_error import rows_held
from penstock.dataflow.plan import Plan
from penstock.figures.watermarks import are_through
from penstock.metrics.heard_rows import HeardRows
from penstock.metrics.rows import TaskRow, WorkerRow
from penstock.store.codec import decode_counts
from penstock.store.port import (
    ClearFailure,
    Failures,
    Measure,
    NodeStore,
    ReadMemory,
    ReadMetrics,
    ShardCounters,
    StoreFull,
    StoreMemory,
    StoreUnreachable,
    told_here,
)
from penstock_operator.local.run_ports import StoreKeeper, Tell, Ticks
from penstock_operator.local.run_state import Backlog
from penstock_operator.local.showing.progress import task_and_worker_rows
from penstock_operator.local.store.memory_watch import MemoryWatch

_SHARDS_LOOKED_AT_PER_S = 4000
"""The store answers for about a hundred shards a millisecond; looking must not keep it busy."""
_NOBODY = "-"
"""No operator's name: clearing its failure changes nothing, but a store that takes no writes refuses it."""


@dataclass(frozen=True, slots=True)
class StoreLook:
    """What the store said in one go. `packed` are all metric rows as they are there, `told` those of tasks
    and workers of this run."""

    at_us: int
    shards: Mapping[str, tuple[ShardCounters | None, ...]]
    packed: Mapping[str, bytes]
    memory: StoreMemory
    told: Mapping[str, TaskRow | WorkerRow]
    failures: Mapping[str, str]

    def backlog(self, plan: Plan) -> Backlog | None:
        """None when the store does not know a shard: nothing can be said of all."""
        known = [counters for shards in self.shards.values() for counters in shards if counters is not None]
        if len(known) != sum(len(shards) for shards in self.shards.values()):
            return None
        return Backlog(
            generation=max(counters.generation for counters in known),
            commits=sum(counters.commit for counters in known),
            inbox_entries=sum(
                counters.inbox_entries + rows_held(decode_counts(counters.counts)) for counters in known
            ),
            outbox_entries=sum(counters.outbox_entries for counters in known),
            sources_finished=all(
                counters is not None and counters.finished
                for stage in plan.stages
                if stage.is_source
                for counters in self.shards[stage.operator]
            ),
            watermarks_through=are_through(plan, self.shards),
        )


class StoreWatch:
    """`is_away` and `fault` (a sentence when it cannot come back) are as last seen. `shards` are all, by
    stage; rows that were written before the watch began are of earlier runs."""

    def __init__(
        self,
        store: NodeStore,
        keeper: StoreKeeper,
        shards: Mapping[str, Sequence[str]],
        ticks: Ticks,
        tell: Tell,
    ) -> None:
        self.is_away = False
        self.fault = ""
        self._store = store
        self._keeper = keeper
        self._shards = shards
        self._ticks = ticks
        self._tell = tell
        self._since_us = ticks.now_us()
        self._heard = HeardRows()
        self._memory = MemoryWatch()
        self._look_due_s = 0.0

    @property
    def is_due(self) -> bool:
        return self._ticks.now_s() >= self._look_due_s

    def keep(self) -> None:
        """See that it runs."""
        self.fault = self._keeper.keep() or self.fault
        for text in self._keeper.news():
            self._tell(text, is_trouble=True)

    def look(self) -> StoreLook | None:
        """None while the store is away. One that does not answer is not asked: that would take its time."""
        if not self._keeper.answers:
            self._note_away(away=True)
            return None
        names = [name for shards in self._shards.values() for name in shards]
        self._look_due_s = self._ticks.now_s() + len(names) / _SHARDS_LOOKED_AT_PER_S
        # Rows before counters: what tasks have told is never ahead of what the store has counted.
        calls = [
            ClearFailure(_NOBODY),
            ReadMemory(),
            ReadMetrics(),
            Failures(),
            Measure(tuple(names)),
        ]
        at_us = self._ticks.now_us()
        try:
            _, memory, rows, failures, measured = self._store.pipeline(calls)
        except (StoreUnreachable, StoreFull) as error:
            self.note_trouble(error)
            return None
        self._note_away(away=False)
        counters = iter(told_here(measured))
        shards = {stage: tuple(next(counters) for _ in names) for stage, names in self._shards.items()}
        told = task_and_worker_rows(rows, self._heard, self._ticks.now_us(), self._since_us)
        return StoreLook(at_us, shards, rows, memory, told, failures)

    def tell_of_memory(self, look: StoreLook) -> None:
        sentence = self._memory.look(look.memory, (one for shards in look.shards.values() for one in shards))
        if sentence:
            self._tell(sentence, is_trouble=self._memory.is_full)

    def note_trouble(self, error: StoreUnreachable | StoreFull) -> None:
        """Somebody's call met this."""
        if isinstance(error, StoreFull):
            self.fault = str(error)
        else:
            self._note_away(away=True)

    def _note_away(self, *, away: bool) -> None:
        if away and not self.is_away:
            self._tell("the store is away", is_trouble=True)
        elif self.is_away and not away:
            self._tell("the store is back")
        self.is_away = away
