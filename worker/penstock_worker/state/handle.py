"""The handle that a StatefulProcessor gets from Penstock instead of from Spark.

`TaskHandle` answers `getValueState` and its sisters with PySpark's own state objects over clients of
ours (`clients`, and `expiring` for those with a time to live). Neighbours:
`user_code.running` calls the processor's `init` with it, `inspect_code` likewise before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import DataType, StructType

from penstock.dataflow.ddl import InvalidSchema, parse_schema
from penstock.dataflow.plan import EVENT_TIME, NO_TIME
from penstock_worker.state import encoding
from penstock_worker.state.cache import Variable
from penstock_worker.state.clients import (
    Cursor,
    ListClient,
    MapClient,
    PackedClient,
    StateClient,
    TimerClient,
    ValueClient,
)
from penstock_worker.state.expiring import ExpiringListClient, ExpiringMapClient, ExpiringValueClient
from penstock_worker.state.shapes import StateMisuse, StateShape
from penstock_worker.values.spark_types import UnknownType, schema_of

_VALUE_EXAMPLE = "value"
_KEY_EXAMPLE = "key"

ClientT = TypeVar("ClientT", bound=StateClient)


def needs_time(call: str) -> str:
    """The sentence that refuses `call` where the operator has no time mode."""
    mode = "ProcessingTime" if call.startswith("ttl") else "ProcessingTime or timeMode: EventTime"
    return f"{call}, which needs a time mode; give the operator timeMode: {mode}"


class TaskHandle(StatefulProcessorHandle):  # type: ignore[misc]  # pyspark carries no types here
    """`variables` are the state variables declared so far, in the order of their places in records; `deleted`
    the names of those that are to go.

    `cursor` says which shard and key the state objects work on, `time_mode` is the operator's. `timers` is
    None where that is without time. A variable that was declared and then deleted keeps its place, nameless.
    """

    def __init__(self, time_mode: str = NO_TIME) -> None:
        self.cursor = Cursor()
        self.variables: list[Variable] = []
        self.timers: TimerClient | None = None
        self.deleted: list[str] = []
        self._clients: dict[int, StateClient] = {}
        self._sealed = False
        if time_mode != NO_TIME:
            self.variables.append(Variable("", encoding.TIMERS, encoding.TIMERS, ()))
            self.timers = TimerClient(self.cursor, 0)
        self._by_event_time = time_mode == EVENT_TIME

    def seal(self) -> None:
        """`init` is over: no variable may be declared any more."""
        self._sealed = True
        self.cursor.doing = ""

    def getValueState(self, stateName: str, schema: object, ttlDurationMs: int | None = None) -> ValueState:
        shape = _shape(stateName, schema, _VALUE_EXAMPLE)
        if ttlDurationMs is None:
            slot, _ = self._declare(encoding.VALUE, stateName, None, shape)
            client = ValueClient(self.cursor, slot, stateName, shape)
        else:
            slot, prefix = self._declare(encoding.EXPIRING_VALUE, stateName, ttlDurationMs, shape)
            client = ExpiringValueClient(self.cursor, slot, stateName, shape, prefix, ttlDurationMs)
        return ValueState(self._kept(slot, client), stateName)

    def getPackedValue(self, stateName: str) -> PackedClient:
        """A value state of the schema "packed binary", of bytes that nobody looks at: for windows."""
        shape = _shape(stateName, "packed binary", _VALUE_EXAMPLE)
        slot, _ = self._declare(encoding.VALUE, stateName, None, shape)
        return self._kept(slot, PackedClient(self.cursor, slot, stateName, shape))

    def getListState(self, stateName: str, schema: object, ttlDurationMs: int | None = None) -> ListState:
        shape = _shape(stateName, schema, _VALUE_EXAMPLE)
        if ttlDurationMs is None:
            slot, _ = self._declare(encoding.LIST, stateName, None, shape)
            client = ListClient(self.cursor, slot, stateName, shape)
        else:
            slot, prefix = self._declare(encoding.EXPIRING_LIST, stateName, ttlDurationMs, shape)
            client = ExpiringListClient(self.cursor, slot, stateName, shape, prefix, ttlDurationMs)
        return ListState(self._kept(slot, client), stateName)

    def getMapState(
        self, stateName: str, userKeySchema: object, valueSchema: object, ttlDurationMs: int | None = None
    ) -> MapState:
        keys = _shape(stateName, userKeySchema, _KEY_EXAMPLE)
        values = _shape(stateName, valueSchema, _VALUE_EXAMPLE)
        if ttlDurationMs is None:
            slot, _ = self._declare(encoding.MAP, stateName, None, keys, values)
            client = MapClient(self.cursor, slot, stateName, keys, values)
        else:
            slot, prefix = self._declare(encoding.EXPIRING_MAP, stateName, ttlDurationMs, keys, values)
            client = ExpiringMapClient(self.cursor, slot, stateName, keys, values, prefix, ttlDurationMs)
        return MapState(self._kept(slot, client), stateName)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._timed("registerTimer").register(expiryTimestampMs)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._timed("deleteTimer").delete(expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:
        return iter(self._timed("listTimers").listed())

    def deleteIfExists(self, stateName: str) -> None:
        """The state of a variable goes, in each shard before it is worked on: of one that earlier code had,
        or of one declared before this, which is then not to be used, as in Spark."""
        if self._sealed:
            raise StateMisuse(
                f"deleteIfExists({stateName!r}) outside of init(); state is deleted in init() only"
            )
        self.deleted.append(stateName)
        for slot, variable in enumerate(self.variables):
            if variable.name == stateName:
                self.variables[slot] = replace(variable, name="", schemas=(), ttl_ms=None)
                self._clients[slot].forbid()

    def refuse_without_time(self, call: str) -> None:
        """Answer a call that needs a time mode, which the operator has not."""
        raise StateMisuse(needs_time(call))

    def _kept(self, slot: int, client: ClientT) -> ClientT:
        self._clients[slot] = client
        return client

    def _timed(self, call: str) -> TimerClient:
        if self.timers is None:
            raise StateMisuse(needs_time(call))
        return self.timers

    def _declare(self, kind: bytes, name: str, ttl_ms: int | None, *shapes: StateShape) -> tuple[int, bytes]:
        """Its place in records, and what its fields begin with."""
        if self._sealed:
            raise StateMisuse(
                f"state {name!r} is declared outside of init(); state is declared in init() only"
            )
        if not isinstance(name, str) or not name:
            raise StateMisuse(f"{name!r} is no name for a state variable; give it a text that is not empty")
        if any(variable.name == name for variable in self.variables):
            raise StateMisuse(f"state {name!r} is declared twice; give each variable a name of its own")
        if name in self.deleted:
            raise StateMisuse(
                f"state {name!r} is declared after it was deleted: Spark empties it in each micro-batch; "
                "give what comes after it another name"
            )
        if ttl_ms is not None:
            self._check_ttl(name, ttl_ms)
        prefix = encoding.field_prefix(kind, name)
        self.variables.append(Variable(name, kind, prefix, tuple(shape.ddl for shape in shapes), ttl_ms))
        return len(self.variables) - 1, prefix

    def _check_ttl(self, name: str, ttl_ms: int) -> None:
        call = f"ttlDurationMs={ttl_ms} of state {name!r}"
        if not isinstance(ttl_ms, int) or ttl_ms <= 0:
            raise StateMisuse(f"{call}: give a whole number of milliseconds above 0, or leave it out")
        if self._by_event_time:
            raise StateMisuse(
                f"{call}: a time to live goes by processing time, as in Spark, and the operator has "
                "timeMode: EventTime; delete what is too old with a timer, or leave ttlDurationMs out"
            )
        if self.timers is None:
            self.refuse_without_time(call)


def _shape(name: str, schema: object, example: str) -> StateShape:
    what = f"state {name!r}"
    try:
        return StateShape(what, schema_of(schema))
    except (InvalidSchema, UnknownType) as error:
        raise StateMisuse(f"{what}: {error}{_hint(schema, example)}") from None


def _hint(schema: object, example: str) -> str:
    """A type without a column, which Spark refuses too, is what one forgets first."""
    if isinstance(schema, DataType) and not isinstance(schema, StructType):
        schema = schema.simpleString()
    if not isinstance(schema, str):
        return ""
    try:
        parse_schema(f"{example} {schema}")
    except InvalidSchema:
        return ""
    return f'. A column needs a name and a type: write "{example} {schema}"'
