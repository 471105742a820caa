"""Runs processors in Penstock's runner over shards of a real store, each batch under a new owner."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from conformance.case import CASE, Case, Group, Told, told
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.routing import Router
from penstock.dataflow.schema import Schema
from penstock.store.ownership import OwnedShard
from penstock.store.port import Answer
from penstock_worker.stages.keyed_stage import key_getter
from penstock_worker.stages.steps import routing_keys
from penstock_worker.state.cache import StateCache
from penstock_worker.user_code.running import ProcessorRunner
from penstock_worker.values.rows import OutputShape, RowReader
from scenes.store_scenario import Scene

SHARDS = ("mid/0", "mid/1")


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
    ) -> None:
        self._scene = scene
        columns = [given.names.index(name) for name in key]
        types = [given.columns[column].type for column in columns]
        self._given = OutputShape(given)
        self._key_of = key_getter(columns, [column.type for column in given.columns])
        self._route = Router(types, len(SHARDS)).route
        self._routing_keys = routing_keys(columns, types)
        self._runner = ProcessorRunner(processor, given, columns, output, "probe", form)
        self._cache = StateCache(self._runner.variables, self._runner.key_types, scene.store.call)
        self._reader = RowReader(output)

    def batch(self, rows: list[Any]) -> list[Row]:
        """What comes out, as Rows."""
        return list(self._reader.rows(self.wire_batch(rows)))

    def wire_batch(self, rows: list[Any]) -> list[tuple[Any, ...]]:
        """What comes out, as wire rows."""
        by_shard: dict[str, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
        wire_rows = self._given.wire_rows(rows)
        for row, key in zip(wire_rows, self._routing_keys(wire_rows), strict=True):
            by_shard[SHARDS[self._route(key)]][self._key_of(row)].append(row)
        out: list[tuple[Any, ...]] = []
        for shard, groups in by_shard.items():
            state = self._cache.shard(OwnedShard(shard, self._scene.claim(shard)))
            load = state.missing(groups)
            if load is not None:
                answer = self._scene.store.call(load)
                assert not isinstance(answer, Answer)
                state.loaded(load, answer)
            for key, group in groups.items():
                out.extend(self._runner.run(state, key, group, -1))
            self._scene.commit(shard, state=state.take_writes())
            state.committed()
        return out


def in_penstock(scene: Scene, group: Group, case: Case) -> Told:
    """What came out of each batch of one case."""
    given, output = parse_schema(f"{CASE} string, {group.input}"), parse_schema(case.output)
    penstock = InPenstock(scene, case.processor, given, group.key, output, group.form)
    writer = JsonRows(output)
    found = []
    for batch in case.batches:
        lines = writer.lines(penstock.wire_batch([(case.name, *row) for row in batch]))
        found.append(told(map(json.loads, lines.splitlines()), output.names))
    return found
