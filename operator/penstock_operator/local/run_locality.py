"""The routing tables of a run: what each look shows the loop that decides on them, and its tables carried
into the run's schedules.

A run has one node, so its keys meet there whatever tables say: it counts, decides and explains, and carries
out what a table of earlier times needs. Neighbours: `penstock.locality.loop` decides, `local_run` turns,
`run_decisions` adopts the schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from penstock.dataflow.routing_table import RoutingTable, decode_table
from penstock.locality.carrying import table_place, with_tables, without_tasks
from penstock.locality.loop import LocalityLoop
from penstock.locality.seen import LocalitySeen
from penstock.store.codec import decode_counts
from penstock.store.port import (
    DropPairs,
    NodeStore,
    ReadPairs,
    ReadTable,
    TableVersions,
    Weigh,
)
from penstock_operator.local.run_decisions import adopt, held_back, tasks_in_all
from penstock_operator.local.run_ports import Tell, Ticks
from penstock_operator.local.run_state import Decision, Phase, RunState
from penstock_operator.local.store_watch import StoreLook

WEIGHED = 8
"""Shards of an operator that are weighed at a look: the others are taken for as large."""


def tables_in(store: NodeStore, operators: Sequence[str]) -> dict[str, RoutingTable]:
    """Operator -> the newest table that the store has. Raises what the store does."""
    versions = store.pipeline([TableVersions(name) for name in operators])
    newest = {name: max(there) for name, there in zip(operators, versions, strict=True) if there}
    contents = store.pipeline([ReadTable(name, version) for name, version in newest.items()])
    return {
        name: decode_table(content)
        for name, content in zip(newest, contents, strict=True)
        if content is not None
    }


class RunLocality:
    """`loop` is None where nothing asks for tables and none are there. `shards` are all of the run, by
    stage. `state` answers the run's as it is, `accept` has a decision carried out."""

    def __init__(
        self,
        loop: LocalityLoop | None,
        store: NodeStore,
        shards: Mapping[str, Sequence[str]],
        ticks: Ticks,
        state: Callable[[], RunState],
        accept: Callable[[Decision], None],
        tell: Tell,
    ) -> None:
        self._loop = loop
        self._store = store
        self._shards = shards
        self._ticks = ticks
        self._state = state
        self._accept = accept
        self._tell = tell

    def keep(self, look: StoreLook | None) -> None:
        """Once a task works. Raises what the store does."""
        loop, state = self._loop, self._state()
        if loop is None or look is None or state.working_since_s is None:
            return
        if state.phase in (Phase.STOPPING, Phase.ENDED) or not loop.due(self._ticks.now_us()):
            return
        behind = with_tables({name: table_place(one) for name, one in loop.tables().items()}, state.schedules)
        if behind:
            self._accept(adopt(state, behind))
            state = self._state()
        turn = loop.turn(self._seen(loop, look, state))
        for event in turn.events:
            self._tell(event)
        if turn.gone:
            self._store.call(DropPairs(turn.gone))
        if (next_one := turn.table) is None:
            return
        schedule = state.schedules[next_one.operator]
        changed = replace(schedule, table=table_place(next_one.table))
        self._accept(adopt(self._state(), [changed]))
        if self._state().schedules[next_one.operator].table == changed.table:
            loop.recorded(next_one.operator, next_one.table)

    def _seen(self, loop: LocalityLoop, look: StoreLook, state: RunState) -> LocalitySeen:
        weighed = {name: self._shards[name][:WEIGHED] for name in loop.operators}
        rows, *weights = self._store.pipeline(
            [ReadPairs(), *(Weigh(tuple(shards)) for shards in weighed.values())]
        )
        counts = {
            shard: decode_counts(seen.counts)
            for stage in loop.producers
            for shard, seen in zip(self._shards[stage], look.shards[stage], strict=True)
            if seen is not None
        }
        return LocalitySeen(
            at_us=look.at_us,
            rows=rows,
            tasks={
                name: {place.name: place.tasks for place in state.schedules[name].executors}
                for name in loop.counting
            },
            homes={name: dict.fromkeys(self._shards[name], state.node) for name in loop.producers},
            counts=counts,
            capacity={state.node: float(tasks_in_all(state))},
            state_bytes={
                name: _in_all([one for one in found if one is not None], len(self._shards[name]))
                for name, found in zip(weighed, weights, strict=True)
            },
            held=held_back(state) or without_tasks(loop.producers, state.schedules),
        )


def _in_all(weights: Sequence[int], shards: int) -> float:
    """What all shards weigh, by some of them."""
    return sum(weights) / len(weights) * shards if weights else 0.0
