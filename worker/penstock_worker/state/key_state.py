"""All state and timers of one key as a value, on the way from one shard to another.

What a key has is taken out of its shard's cache and put into another one's, as user code would do it: by the
same cells, so that schemas that came one after the other in each shard are theirs to know, and a commit
carries the changes. A timer that moves is due by what the wall clock says where it comes. Neighbours: `cache`
and `cells` read and write, `stages.key_moves` sends and receives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

import msgspec

from penstock.errors import PermanentError
from penstock_worker.state import encoding
from penstock_worker.state.cache import Record, ShardState, Variable
from penstock_worker.state.cells import ListCell, MapCell
from penstock_worker.state.evolution import StampedStored, Stored
from penstock_worker.state.expiring import Sweep, sweep
from penstock_worker.state.timers import TimerCell, timer_name


class UnknownVariable(PermanentError):
    """A key brings state that the code here does not declare."""


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a key has of one variable: `prefix` and `schemas` are the variable's; `content` is a value packed,
    a list's rows, a map's entries, or when timers expire."""

    prefix: bytes
    schemas: tuple[str, ...]
    content: Any


def take_out(state: ShardState, record: Record, variables: Sequence[Variable]) -> list[Part]:
    """What a loaded key has; it has nothing any more. Raises OwnershipLost, StoreUnreachable."""
    parts = []
    for slot, variable in enumerate(variables):
        held = state.load_value(record, slot)
        content = _emptied(state, record, slot, held)
        if content:
            parts.append(Part(variable.prefix, variable.schemas, content))
            state.changed(record, 1 << slot)
    return parts


def put_in(
    state: ShardState,
    record: Record,
    variables: Sequence[Variable],
    parts: Iterable[Part],
    fired: Collection[int] = (),
) -> None:
    """A loaded key gets what it had elsewhere. Timers that expire at `fired` have fired already, and wait to
    be tried again. Raises UnknownVariable, OwnershipLost, StoreUnreachable."""
    slots = {variable.prefix: slot for slot, variable in enumerate(variables)}
    for part in parts:
        slot = slots.get(part.prefix)
        if slot is None:
            raise UnknownVariable(
                f"a key comes with state {part.prefix[1:]!r}, which the code here does not declare: bring "
                "the code back that its earlier shard ran, until all keys of the table have come"
            )
        _fill(state, record, slot, variables[slot], part, fired)
        state.changed(record, 1 << slot)


def _emptied(state: ShardState, record: Record, slot: int, held: Any) -> Any:
    """What a variable holds, in a form that travels; nothing is left. None or empty for nothing."""
    if isinstance(held, ListCell):
        rows = [bytes(memoryview(row)) for row in held.items()]
        held.replace([])
        return rows
    if isinstance(held, MapCell):
        entries = held.items()
        held.clear()
        return entries
    if isinstance(held, TimerCell):
        expiries = held.expiries()
        for expiry_ms in expiries:
            held.remove(expiry_ms)
            state.set_timer(timer_name(held.field, expiry_ms), None)
        return expiries
    # An empty value is bytes too.
    record.values[slot] = None
    return None if held is None else [held]


def _fill(
    state: ShardState, record: Record, slot: int, variable: Variable, part: Part, fired: Collection[int]
) -> None:
    held = state.load_value(record, slot)
    if isinstance(held, TimerCell):
        for expiry_ms in part.content:
            if held.add(expiry_ms) and expiry_ms not in fired:
                due_ms = max(expiry_ms + state.ahead_ms, state.now_ms)
                state.set_timer(timer_name(held.field, expiry_ms), due_ms)
        return
    read = _reader(variable, part)
    entries: list[bytes] = [b""]
    if isinstance(held, ListCell):
        held.replace([read(row) for row in part.content])
    elif isinstance(held, MapCell):
        held.clear()
        for key, value in part.content:
            held.put(key, read(value))
        entries = [key for key, _ in part.content]
    else:
        record.values[slot] = read(cast("bytes", part.content[0]))
    if variable.ttl_ms is not None:
        # Each looks, and comes again for what has not expired.
        for entry in entries:
            sweep(state, record, Sweep(record.packed, slot, entry), variable)


def _reader(variable: Variable, part: Part) -> Any:
    """What makes values of the schema here of values as they come."""
    theirs, ours = part.schemas[-1:], variable.schemas[-1:]
    if theirs == ours or not theirs:
        return bytes
    kind = StampedStored if variable.kind in encoding.EXPIRING else Stored
    return kind((theirs[0], ours[0]), 1).read
