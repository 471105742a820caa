"""The LatencySLAs of a run: what each look shows them, and what they decide carried into the run.

Neighbours: `penstock.sla.loop` keeps one SLA, `local_run` turns, `run_decisions` adopts what they write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from penstock.figures.lag import lags_of
from penstock.metrics.rows import ShardRow, TaskRow, shard_row_name, tells_of_now, unpack
from penstock.sla.look import Leeway, Places, Samples, SlaLook
from penstock.sla.loop import SlaLoop
from penstock_operator.local.run_decisions import (
    adopt,
    held_back,
    room_for_tasks,
    tasks_in_all,
    want_worker,
    warm_workers,
)
from penstock_operator.local.run_ports import Tell, Ticks
from penstock_operator.local.run_state import Decision, Phase, RunState
from penstock_operator.local.store_watch import StoreLook


class RunSlas:
    """`shards` are all of the run, by stage. `state` answers the run's as it is, `accept` has a decision
    carried out."""

    def __init__(
        self,
        slas: Sequence[SlaLoop],
        shards: Mapping[str, Sequence[str]],
        ticks: Ticks,
        state: Callable[[], RunState],
        accept: Callable[[Decision], None],
        tell: Tell,
    ) -> None:
        self._slas = tuple(slas)
        self._shards = shards
        self._ticks = ticks
        self._state = state
        self._accept = accept
        self._tell = tell

    @property
    def await_tasks(self) -> bool:
        """Shards wait for tasks that start."""
        return any(sla.awaits_tasks for sla in self._slas)

    def keep(self, look: StoreLook | None, *, is_store_away: bool) -> None:
        """Once a task works: what happens before is no latency of this topology."""
        state = self._state()
        if state.working_since_s is None or state.phase in (Phase.STOPPING, Phase.ENDED):
            return
        now_us = self._ticks.now_us()
        due = [sla for sla in self._slas if sla.due(now_us)]
        following = [sla for sla in self._slas if sla not in due and sla.awaits_tasks]
        if not (due or following):
            return
        if look is None:
            if is_store_away:
                for sla in due:
                    sla.away(now_us, "the store is away")
            return
        seen = self._sla_look(look)
        for sla in (*following, *due):
            turn = sla.examine(seen) if sla in due else sla.follow(seen)
            for event in turn.events:
                self._tell(event.text, is_trouble=event.is_trouble)
            if turn.schedules:
                self._accept(adopt(self._state(), turn.schedules))
                seen = replace(seen, places=self._places())
            if turn.lacks_room:
                self._accept(want_worker(self._state(), self._ticks.now_s()))

    def _sla_look(self, look: StoreLook) -> SlaLook:
        counters = {
            stage: dict(zip(self._shards[stage], found, strict=True)) for stage, found in look.shards.items()
        }
        rows: dict[str, ShardRow] = {}
        for operator in {operator for sla in self._slas for operator in sla.promise.scope.targets}:
            for shard in self._shards[operator]:
                packed = look.packed.get(name := shard_row_name(shard))
                row = unpack(name, packed) if packed is not None else None
                if isinstance(row, ShardRow):
                    rows[shard] = row
        tasks: dict[str, list[int]] = {}
        told = [row for row in look.told.values() if isinstance(row, TaskRow)]
        for row in told:
            tasks.setdefault(row.executor, []).append(row.at_us)
        now = (row for row in told if tells_of_now(row, look.at_us))
        lags = lags_of(now, {operator: len(names) for operator, names in self._shards.items()})
        return SlaLook(
            look.at_us,
            Samples(counters, rows, tasks, lags),
            self._places(),
            Leeway(held=held_back(self._state())),
        )

    def _places(self) -> Places:
        """The part of an SLA's look that its own schedules change."""
        state = self._state()
        return Places(
            schedules=state.schedules,
            nodes={state.node: tasks_in_all(state)},
            room=room_for_tasks(state),
            warm=warm_workers(state),
        )
