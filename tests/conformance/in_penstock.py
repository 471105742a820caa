"""Runs processors in Penstock's runner over shards of a real store, each batch under a new owner."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from conformance.case import CASE, Case, Group, Told, told
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.plan import NO_TIME
from penstock.dataflow.routing import Router
from penstock.dataflow.schema import Schema
from penstock.dataflow.wire_keys import routing_keys
from penstock.store.ownership import OwnedShard
from penstock.store.port import Answer
from penstock_worker.stages.due import due_of
from penstock_worker.stages.keyed_part import key_getter
from penstock_worker.state.cache import ShardState, StateCache
from penstock_worker.state.expiring import sweep
from penstock_worker.user_code.running import ProcessorRunner
from penstock_worker.values.rows import OutputShape, RowReader
from scenes.store_scenario import Scene

SHARDS = ("mid/0", "mid/1")
AHEAD_MS = 777
"""So far the steady clock is ahead of the wall clock."""
TIMERS_MAX = 40_000
"""More than a batch has."""


class InPenstock:
    """The runner on two shards; batch by batch, with a new owner for each."""

    def __init__(
        self,
        scene: Scene,
        processor: type[StatefulProcessor],
        given: Schema,
        key: Sequence[str],
        output: Schema,
        form: str = "",
        time_mode: str = NO_TIME,
    ) -> None:
        self._scene = scene
        columns = [given.names.index(name) for name in key]
        types = [given.columns[column].type for column in columns]
        self._given = OutputShape(given)
        self._key_of = key_getter(columns, [column.type for column in given.columns])
        self._route = Router(types, len(SHARDS)).route
        self._routing_keys = routing_keys(columns, types)
        self._runner = ProcessorRunner(processor, given, columns, output, "probe", form, time_mode=time_mode)
        self._cache = StateCache(self._runner.variables, self._runner.key_types, scene.store.call)
        self._reader = RowReader(output)

    def batch(self, rows: list[Any]) -> list[Row]:
        """What comes out, as Rows."""
        return list(self._reader.rows(self.wire_batch(rows)))

    def wire_batch(self, rows: list[Any]) -> list[tuple[Any, ...]]:
        """What comes out, as wire rows."""
        return self._worked(rows, None)

    def timed_batch(self, rows: list[Any], now_ms: int) -> list[tuple[Any, ...]]:
        """What comes out at a time, as wire rows: first what rows make, then the timers that are due."""
        return self._worked(rows, now_ms) + self._fired(now_ms)

    def _worked(self, rows: list[Any], now_ms: int | None) -> list[tuple[Any, ...]]:
        by_shard: dict[str, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
        wire_rows = self._given.wire_rows(rows)
        for row, key in zip(wire_rows, self._routing_keys(wire_rows), strict=True):
            by_shard[SHARDS[self._route(key)]][self._key_of(row)].append(row)
        out: list[tuple[Any, ...]] = []
        for shard, groups in by_shard.items():
            state = self._begun(shard, groups, now_ms)
            for key, group in groups.items():
                out.extend(self._runner.run(state, key, group, -1 if now_ms is None else now_ms))
            self._commit(shard, state)
        return out

    def _fired(self, now_ms: int) -> list[tuple[Any, ...]]:
        """The timers that are due, and what expired is swept, by another owner again."""
        for shard in SHARDS:
            self._scene.claim(shard)
        ready = self._scene.owner(SHARDS[0]).ready
        fetched = self._scene.fetch(ready, now_ms=now_ms + AHEAD_MS, timers_max=TIMERS_MAX)
        out: list[tuple[Any, ...]] = []
        for one in fetched.shards:
            due = due_of(one.timers, self._runner.variables)
            state = self._begun(one.shard, dict.fromkeys(due.keys), now_ms)
            for name in due.done:
                state.set_timer(name, None)
            for key, found in due.swept:
                sweep(state, state.begin(key), found, self._runner.variables[found.slot])
            for key, expiry_ms, _ in due.fired:
                out.extend(self._runner.expire(state, key, expiry_ms, now_ms))
            self._commit(one.shard, state)
        return out

    def _begun(self, shard: str, keys: Iterable[Any], now_ms: int | None) -> ShardState:
        """The state of a shard under a new owner, with that of `keys` loaded."""
        state = self._cache.shard(OwnedShard(shard, self._scene.claim(shard)))
        if now_ms is not None:
            state.now_ms, state.ahead_ms = now_ms + AHEAD_MS, AHEAD_MS
        load = state.missing(keys)
        if load is not None:
            answer = self._scene.store.call(load)
            assert not isinstance(answer, Answer)
            state.loaded(load, answer)
        return state

    def _commit(self, shard: str, state: ShardState) -> None:
        self._scene.commit(shard, state=state.take_writes(), timers=state.take_timers())
        state.committed()


def in_penstock(scene: Scene, group: Group, case: Case) -> Told:
    """What came out of each batch of one case."""
    given, output = parse_schema(f"{CASE} string, {group.input}"), parse_schema(case.output)
    penstock = InPenstock(scene, case.processor, given, group.key, output, group.form, group.time_mode)
    writer = JsonRows(output)
    found = []
    for number, batch in enumerate(case.batches):
        rows = [(case.name, *row) for row in batch]
        wire_rows = (
            penstock.timed_batch(rows, group.times_ms[number])
            if group.times_ms
            else penstock.wire_batch(rows)
        )
        lines = writer.lines(wire_rows)
        found.append(told(map(json.loads, lines.splitlines()), output.names))
    return found
