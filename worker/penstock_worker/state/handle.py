"""The handle that a StatefulProcessor gets from Penstock instead of from Spark.

`TaskHandle` answers `getValueState` and its sisters with PySpark's own state objects over clients of
ours (`clients`). What Penstock does not carry yet (time to live, timers) is refused by name. Neighbours:
`user_code.running` calls the processor's `init` with it, `inspect_code` likewise before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import DataType, StructType

from penstock.dataflow.ddl import InvalidSchema, parse_schema
from penstock.errors import PermanentError
from penstock_worker.state import encoding
from penstock_worker.state.cache import Variable
from penstock_worker.state.clients import Cursor, ListClient, MapClient, ValueClient
from penstock_worker.state.shapes import StateMisuse, StateShape
from penstock_worker.values.spark_types import UnknownType, schema_of

_VALUE_EXAMPLE = "value"
_KEY_EXAMPLE = "key"


class NotCarriedYet(PermanentError):
    """User code asks for something of Spark's that Penstock does not have yet; the message names it."""


def not_yet(call: str, what: str) -> str:
    """The sentence that refuses `call`, which asks for `what`."""
    return f"{call} ({what}): not in Penstock yet"


class TaskHandle(StatefulProcessorHandle):  # type: ignore[misc]  # pyspark carries no types here
    """`variables` are the state variables declared so far, in the order of their places in records; `deleted`
    the names of those that are to go.

    `cursor` says which shard and key the state objects work on.
    """

    def __init__(self) -> None:
        self.cursor = Cursor()
        self.variables: list[Variable] = []
        self.deleted: list[str] = []
        self._sealed = False

    def seal(self) -> None:
        """`init` is over: no variable may be declared any more."""
        self._sealed = True
        self.cursor.doing = ""

    def getValueState(self, stateName: str, schema: object, ttlDurationMs: int | None = None) -> ValueState:
        shape = _shape(stateName, schema, _VALUE_EXAMPLE)
        slot = self._declare(encoding.VALUE, stateName, ttlDurationMs, shape)
        client = ValueClient(self.cursor, slot, stateName, shape)
        return ValueState(client, stateName)

    def getListState(self, stateName: str, schema: object, ttlDurationMs: int | None = None) -> ListState:
        shape = _shape(stateName, schema, _VALUE_EXAMPLE)
        slot = self._declare(encoding.LIST, stateName, ttlDurationMs, shape)
        client = ListClient(self.cursor, slot, stateName, shape)
        return ListState(client, stateName)

    def getMapState(
        self, stateName: str, userKeySchema: object, valueSchema: object, ttlDurationMs: int | None = None
    ) -> MapState:
        keys = _shape(stateName, userKeySchema, _KEY_EXAMPLE)
        values = _shape(stateName, valueSchema, _VALUE_EXAMPLE)
        slot = self._declare(encoding.MAP, stateName, ttlDurationMs, keys, values)
        return MapState(MapClient(self.cursor, slot, stateName, keys, values), stateName)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self.refuse(f"registerTimer({expiryTimestampMs})", "timers")

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self.refuse(f"deleteTimer({expiryTimestampMs})", "timers")

    def listTimers(self) -> Iterator[int]:
        self.refuse("listTimers()", "timers")
        return iter(())

    def deleteIfExists(self, stateName: str) -> None:
        """The state of a variable that earlier code had goes, in each shard before it is worked on."""
        if self._sealed:
            raise StateMisuse(
                f"deleteIfExists({stateName!r}) outside of init(); state is deleted in init() only"
            )
        self._refuse_both(stateName, any(variable.name == stateName for variable in self.variables))
        self.deleted.append(stateName)

    def _refuse_both(self, name: str, is_other: bool) -> None:
        if is_other:
            raise StateMisuse(
                f"state {name!r} is declared and deleted: Spark deletes it in each micro-batch anew; give "
                "what comes after it another name"
            )

    def refuse(self, call: str, what: str) -> None:
        """Answer a call that asks for something that is not there yet."""
        raise NotCarriedYet(not_yet(call, what))

    def _declare(self, kind: bytes, name: str, ttl_ms: int | None, *shapes: StateShape) -> int:
        if self._sealed:
            raise StateMisuse(
                f"state {name!r} is declared outside of init(); state is declared in init() only"
            )
        if not isinstance(name, str) or not name:
            raise StateMisuse(f"{name!r} is no name for a state variable; give it a text that is not empty")
        if any(variable.name == name for variable in self.variables):
            raise StateMisuse(f"state {name!r} is declared twice; give each variable a name of its own")
        self._refuse_both(name, name in self.deleted)
        if ttl_ms is not None:
            self.refuse(f"ttlDurationMs={ttl_ms} of state {name!r}", "time to live")
        schemas = tuple(shape.ddl for shape in shapes)
        self.variables.append(Variable(name, kind, encoding.field_prefix(kind, name), schemas))
        return len(self.variables) - 1


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
