"""The state of one key as the processor itself would read it: by PySpark's own state objects, from the store.

A handle is made as the processor's was, and asked; so nothing here knows how state lies. Neighbour:
`topology_test` says for which key.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import Processor
from penstock.dataflow.routing import Router
from penstock.dataflow.schema import Schema
from penstock.dataflow.wire_keys import routing_keys
from penstock.manifest.faults import joined
from penstock.store.ownership import OwnedShard
from penstock.store.port import Claimed, NodeStore
from penstock_worker.stages.keyed_part import key_getter
from penstock_worker.state import encoding
from penstock_worker.state.cache import StateCache, Variable
from penstock_worker.state.handle import TaskHandle
from penstock_worker.testing.topologies.failures import Misuse
from penstock_worker.testing.topologies.shown_rows import ShownRows
from penstock_worker.testing.topologies.virtual_clock import instant
from penstock_worker.values.rows import OutputShape, RowMismatch


class KeyOf:
    """A key as a test writes it -> its shard, and the key as it is kept."""

    def __init__(self, operator: str, head: Processor) -> None:
        columns = [head.input.columns[place] for place in head.key_columns]
        self._operator = operator
        self._schema = Schema(tuple(columns))
        self.types = [column.type for column in columns]
        self._route = Router(self.types, head.shards).route
        self._routed = routing_keys(range(len(columns)), self.types)
        self._kept = key_getter(range(len(columns)), self.types)

    def find(self, key: object) -> tuple[str, tuple[Any, ...]]:
        """Raises Misuse for what is no key of the operator's."""
        is_named = isinstance(key, dict) and set(key) == set(self._schema.names)
        try:
            (wire,) = OutputShape(self._schema).wire_rows(
                [key if is_named or isinstance(key, tuple) else (key,)]
            )
        except RowMismatch as error:
            raise Misuse(
                f"operator {self._operator} has the key ({joined(self._schema.names)}): {error}"
            ) from None
        (routed,) = self._routed([wire])
        return f"{self._operator}/{self._route(routed)}", self._kept(wire)


def plain_key(head: Processor, key: Sequence[Any]) -> Any:
    """A key's wire values as a test writes the key: a value, of several columns a tuple."""
    columns = Schema(tuple(head.input.columns[place] for place in head.key_columns))
    (shown,) = ShownRows(columns).rows([tuple(key)])
    return _as_key(tuple(shown.values()))


class KeptState:
    """What an operator's processor keeps of one key; `now_ms` is what times to live go by."""

    def __init__(
        self,
        head: Processor,
        variables: Sequence[Variable],
        store: NodeStore,
        shard: tuple[str, int, int],
        key: tuple[Any, ...],
        now_ms: int,
    ) -> None:
        """`shard` is its name, the store's generation, and its epoch."""
        name, generation, epoch = shard
        self._handle = TaskHandle(head.time_mode)
        self._variables = [variable for variable in variables if variable.name]
        self._states = [_declared(self._handle, variable) for variable in self._variables]
        types = [head.input.columns[place].type for place in head.key_columns]
        cache = StateCache(self._handle.variables, types, store.call)
        owned = OwnedShard(name, Claimed(epoch, generation, 0, 0, b"", 0, {}, finished=False))
        state = cache.shard(owned)
        state.now_ms = now_ms
        if (load := state.missing([key])) is not None:
            state.loaded(load, store.call(load))
        self._handle.cursor.at(state, state.begin(key))

    def values(self) -> dict[str, Any]:
        """By variable: a value, a list, or a dict of a map. Of one column its value, of several a dict; None
        for a value that is not there."""
        return {
            variable.name: _read(variable, state)
            for variable, state in zip(self._variables, self._states, strict=True)
        }

    def timers(self) -> list[datetime.datetime]:
        """When they expire, in order."""
        timers = self._handle.timers
        return [] if timers is None else [instant(expiry_ms * 1000) for expiry_ms in timers.listed()]


def _declared(handle: TaskHandle, variable: Variable) -> Any:
    """The state object of a variable, as the processor declared it."""
    if variable.kind in (encoding.MAP, encoding.EXPIRING_MAP):
        keys, values = variable.schemas
        return handle.getMapState(variable.name, keys, values, variable.ttl_ms)
    (schema,) = variable.schemas
    if variable.kind in (encoding.LIST, encoding.EXPIRING_LIST):
        return handle.getListState(variable.name, schema, variable.ttl_ms)
    return handle.getValueState(variable.name, schema, variable.ttl_ms)


def _read(variable: Variable, state: Any) -> Any:
    value = parse_schema(variable.schemas[-1], of_state=True).names
    if variable.kind in (encoding.MAP, encoding.EXPIRING_MAP):
        return {_as_key(row): _shown(value, found) for row, found in state.iterator()}
    if variable.kind in (encoding.LIST, encoding.EXPIRING_LIST):
        return [_shown(value, row) for row in state.get()]
    found = state.get()
    return None if found is None else _shown(value, found)


def _shown(names: Sequence[str], row: tuple[Any, ...]) -> Any:
    return row[0] if len(names) == 1 else dict(zip(names, row, strict=True))


def _as_key(row: tuple[Any, ...]) -> Any:
    """A map's key: its value, of several columns a tuple."""
    return row[0] if len(row) == 1 else tuple(row)
