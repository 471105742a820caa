"""A shard in parts, as a move copies it to another twin.

A chunk holds parts in the order of their keys (kind, name, name or number), and is resumed behind the last
one's key: what comes and goes meanwhile shifts nothing. A part without values is one that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.store.memory.node import MoveNote, PartKey, ShardRecord

HEAD, TAKEN, STATE, TIMER, ENTRY, WAITING = range(6)
"""Kinds of parts, in the order in which they are copied. Number 0 of the entries is
how far the inbox is worked off, of what waits the pair itself."""

Part = tuple[PartKey, tuple[Any, ...]]
"""Key, and values."""


@dataclass(slots=True)
class Resume:
    """Where a copy goes on: behind the part `after` of `round`, at its end without one; and how far inbox and
    outbox were copied, by number."""

    round: int = 0
    after: PartKey | None = None
    inbox: int = 0
    lanes: dict[str, int] = field(default_factory=dict)


def resumed(resume: bytes) -> Resume:
    """Where a copy goes on; from the start without one."""
    if not resume:
        return Resume()
    at = msgspec.msgpack.decode(resume, type=Resume)
    if at.after is not None:
        at.after = tuple(at.after)
    return at


def round_parts(record: ShardRecord, note: MoveNote, at: Resume, *, final: bool) -> Iterator[Part]:
    """What the present round copies, behind what was copied of inbox and outbox before."""
    if note.round == 1:
        for collection, fields in record.state.items():
            for name, value in fields.items():
                yield (STATE, collection, name), (value,)
        for name, due_ms in record.timers.items():
            yield (TIMER, name), (due_ms,)
        if not final:
            return
    for key in note.changes:
        kind, *path = key
        kept: Any = record.timers if kind == TIMER else record.state.get(path[0], {})
        yield key, (kept[path[-1]],) if path[-1] in kept else ()
    yield (ENTRY, 0), (record.offset,)
    for number, placed_us, payload in record.inbox:
        if number > at.inbox:
            yield (ENTRY, number), (record.offset, placed_us, payload)
    for target, lane in record.lanes.items():
        first = lane.waiting[0].number if lane.waiting else 0
        yield (
            (WAITING, target, 0),
            (
                lane.external,
                lane.issued,
                lane.acknowledged,
                lane.position,
                lane.intent,
                first,
            ),
        )
        for entry in lane.waiting:
            if entry.number > at.lanes.get(target, 0):
                yield (WAITING, target, entry.number), entry[1:]
    if final:
        yield from _record_parts(record)


def _record_parts(record: ShardRecord) -> Iterator[Part]:
    yield (
        (HEAD,),
        (
            record.epoch, record.source, record.position, record.within, record.counts,
            record.table_version, record.commit, record.offset, record.finished, record.placed,
            record.inbox_bytes, record.arrived_rows, record.completed_rows,
            record.watermark_ms, record.reached, record.told, record.told_version,
        ),
    )  # fmt: skip
    for producer, number in record.taken_from.items():
        yield (TAKEN, producer), (number,)


def forgotten(record: ShardRecord, after: PartKey) -> Iterator[Part]:
    """Says of the pair that was being copied that it has nothing left: all of it was delivered since."""
    if after and after[0] == WAITING and not record.lanes[after[1]].waiting:
        yield after, ()
