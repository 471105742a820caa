"""Reads what the stores know of a topology: one round trip to each store and turn, in threads.

A store that does not answer in time has no reading (None) in this turn and is left alone for a while, so
that one that hangs holds up no other. That this process is busy is nothing against a store; nor is what one
topology has there, which its own workers write: where others are answered, who is not is left alone itself,
and waits for the store beside them. Nothing is written: the operator's Redis user cannot. Neighbours:
`observe` puts the readings into the picture, `penstock.store` speaks with Redis.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from penstock.errors import PenstockError
from penstock.metrics.heard_rows import HeardRows
from penstock.metrics.rows import (
    HeldRow,
    PartitionsRow,
    ShardRow,
    TaskRow,
    WorkerRow,
    shard_row_name,
    unpack,
)
from penstock.store.port import (
    Call,
    Failures,
    Measure,
    NodeStore,
    ReadGeneration,
    ReadMetrics,
    UnreadableState,
    told_here,
)
from penstock_operator.cluster.observing.asked_store import pass_over
from penstock_operator.cluster.observing.observed import StoreReading

_LOG = logging.getLogger(__name__)

_PAUSE_S_MIN = 0.5
_PAUSE_S_MAX = 5.0
"""How long a store is left alone after it did not answer, growing with each time."""
_LOOKS_MAX = 2
"""Threads that may wait for one store."""
_UNREADABLE_S = 30.0
"""How long a topology is left alone at a store that has something of it which cannot be read."""
_DOUBTED_LOOKS = 20
"""So many looks in a row have to be answered until a topology that was not waits among the others again."""
_SHARD_ROWS = "shard:"
_ROWS_BYTES_MAX = 4 << 20
"""Of the rows that are unpacked in one look; in memory they take ten times as much."""

OpenStoreClient = Callable[[str, str], NodeStore]
"""(address, topology uid) -> a client; it connects at its first call."""


@dataclass(slots=True)
class _Pause:
    """For how long somebody is left alone, growing with each time."""

    last_s: float = 0.0
    not_before_s: float = 0.0

    def begin(self, now_s: float) -> None:
        self.last_s = min(max(2 * self.last_s, _PAUSE_S_MIN), _PAUSE_S_MAX)
        self.not_before_s = now_s + self.last_s


@dataclass(slots=True)
class _Line:
    """One client: a topology's way to one store."""

    store: NodeStore
    heard: HeardRows = field(default_factory=HeardRows)
    reading: asyncio.Future[StoreReading] | None = None
    is_answered: bool = False
    """Whether the store has answered what was asked last, or refused to: told by the thread that asked."""
    asked: tuple[str, ...] = ()
    pause: _Pause = field(default_factory=_Pause)
    doubts: int = 0
    """Looks that have to be answered until it waits among the others again."""
    unreadable: str = ""
    """Why what the store has of the topology cannot be read; "" where it can."""


@dataclass(slots=True)
class _Manners:
    """How a store is treated, whatever topology asks."""

    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LOOKS_MAX))
    gate_of_doubted: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    pause: _Pause = field(default_factory=_Pause)
    unanswered: set[str] = field(default_factory=set)
    """Topologies that were not answered since anybody was."""


@dataclass
class StoreReader:
    """Belongs to one event loop. `clock_s` and `now_us` are never set; rows in readings are stamped with when
    they were heard, by the latter."""

    open_client: OpenStoreClient
    threads: Executor
    clock_s: Callable[[], float]
    now_us: Callable[[], int]
    wait_s: float = 1.5
    """How long a turn waits for a store."""
    with_shard_rows: bool = False
    """Read what tasks tell of the shards that are asked for, too."""
    _lines: dict[tuple[str, str], _Line] = field(default_factory=dict)
    _manners: dict[str, _Manners] = field(default_factory=dict)

    async def read(
        self, topology_uid: str, addresses: Mapping[str, str], shards: Mapping[str, Collection[str]]
    ) -> dict[str, StoreReading | None]:
        """Store id -> reading, of every store in `addresses` (id -> host:port). `shards`: whose home is which
        store."""
        ids = list(addresses)
        readings = await asyncio.gather(
            *(self._read(topology_uid, addresses[id_], tuple(shards.get(id_, ()))) for id_ in ids)
        )
        return dict(zip(ids, readings, strict=True))

    def keep_only(self, addresses: Collection[str], topology_uids: Collection[str]) -> None:
        """Close the lines to stores and topologies that are no more."""
        for key in [key for key in self._lines if key[0] not in addresses or key[1] not in topology_uids]:
            line = self._lines[key]
            if line.reading is None or line.reading.done():
                del self._lines[key]
                line.store.close()

    def unreadable(self, topology_uid: str, addresses: Mapping[str, str]) -> dict[str, str]:
        """Store id -> why what it has of the topology cannot be read, where that is so."""
        found = {}
        for id_, address in addresses.items():
            line = self._lines.get((address, topology_uid))
            if line is not None and line.unreadable:
                found[id_] = line.unreadable
        return found

    async def _read(self, uid: str, address: str, shards: tuple[str, ...]) -> StoreReading | None:
        line = self._lines.get((address, uid))
        if line is None:
            line = self._lines[address, uid] = _Line(self.open_client(address, uid))
        manners = self._manners.setdefault(address, _Manners())
        if line.reading is None or line.reading.done():
            if self.clock_s() < max(manners.pause.not_before_s, line.pause.not_before_s):
                return None
            line.asked, line.is_answered = shards, False
            gate = manners.gate_of_doubted if line.doubts else manners.gate
            line.reading = asyncio.ensure_future(self._look(line, shards, gate))
            line.reading.add_done_callback(pass_over)
        try:
            reading = await self._in_time(line, line.reading)
        except UnreadableState as error:
            self._cannot_read(line, error)
            return None
        except (PenstockError, TimeoutError) as error:
            self._not_answered(uid, address, line, manners)
            _LOG.debug("store %s gives no reading: %s", address, error or "it takes too long")
            return None
        manners.unanswered.clear()
        manners.pause.last_s = line.pause.last_s = 0.0
        line.doubts, line.unreadable = max(0, line.doubts - 1), ""
        # One that was begun in an earlier turn may have looked at other shards.
        return reading if line.asked == shards else None

    def _cannot_read(self, line: _Line, error: UnreadableState) -> None:
        if line.unreadable != str(error):
            _LOG.warning("%s", error)
        line.unreadable, line.doubts = str(error), _DOUBTED_LOOKS
        line.pause.not_before_s = self.clock_s() + _UNREADABLE_S

    def _not_answered(self, uid: str, address: str, line: _Line, manners: _Manners) -> None:
        """One of several that ask a store says nothing about it; the second in a row does, and the only one.
        Who was not answered lately says nothing while there are others."""
        others = [one for (of, whose), one in self._lines.items() if of == address and whose != uid]
        is_witness = not line.doubts or sum(not one.doubts for one in others) < _LOOKS_MAX
        line.doubts = _DOUBTED_LOOKS
        if is_witness:
            manners.unanswered.add(uid)
        if is_witness and len(manners.unanswered) >= min(2, 1 + len(others)):
            manners.pause.begin(self.clock_s())
        else:
            line.pause.begin(self.clock_s())

    async def _in_time(self, line: _Line, asked: asyncio.Future[StoreReading]) -> StoreReading:
        """The time is the store's: an answer that is there is taken, however late this loop comes to it."""
        try:
            async with asyncio.timeout(self.wait_s):
                return await asyncio.shield(asked)
        except TimeoutError:
            if not line.is_answered:
                raise
        return await asyncio.shield(asked)

    async def _look(self, line: _Line, shards: tuple[str, ...], gate: asyncio.Semaphore) -> StoreReading:
        async with gate:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self.threads, _look, line, shards, self.now_us, self.with_shard_rows
            )


def _look(
    line: _Line,
    shards: tuple[str, ...],
    now_us: Callable[[], int],
    with_shard_rows: bool,
) -> StoreReading:
    # Rows before counters: what tasks have told is never ahead of what the store has counted.
    calls: tuple[Call, ...] = (ReadGeneration(), ReadMetrics(), Failures(), Measure(shards))
    generation: int
    try:
        generation, rows, failures, counters = line.store.pipeline(calls)
    finally:
        line.is_answered = True
    figures = zip(shards, told_here(counters), strict=True)
    reading = reading_of(generation, now_us(), rows, failures, figures, line.heard)
    return replace(reading, shard_rows=shard_rows(rows, shards)) if with_shard_rows else reading


def shard_rows(rows: Mapping[str, bytes], shards: Iterable[str]) -> dict[str, ShardRow]:
    """Shard -> what its task tells, of those that have told."""
    found = {}
    for shard in shards:
        packed = rows.get(name := shard_row_name(shard))
        try:
            row = unpack(name, packed) if packed is not None else None
        except ValueError as error:
            _LOG.debug("metric row %s is left out: %s", name, error)
            continue
        if isinstance(row, ShardRow):
            found[shard] = row
    return found


def reading_of(
    generation: int,
    now_us: int,
    rows: Mapping[str, bytes],
    failures: Mapping[str, str],
    counters: Iterable[tuple[str, Any]],
    heard: HeardRows,
) -> StoreReading:
    """A reading from a store's answers. Shards' own rows are left out: see `shard_rows`. Raises
    UnreadableState where there is more than anybody unpacks."""
    size_bytes = sum(len(data) for name, data in rows.items() if not name.startswith(_SHARD_ROWS))
    if size_bytes > _ROWS_BYTES_MAX:
        raise UnreadableState(f"metric rows of {size_bytes} bytes; at most {_ROWS_BYTES_MAX} are read")
    workers: dict[str, WorkerRow] = {}
    tasks: dict[str, TaskRow] = {}
    partitions: dict[str, tuple[str, ...]] = {}
    partition_faults: dict[str, str] = {}
    held: HeldRow | None = None
    for name, data in rows.items():
        if name.startswith(_SHARD_ROWS):
            continue
        try:
            row = unpack(name, data)
        except ValueError as error:
            _LOG.debug("metric row %s is left out: %s", name, error)
            continue
        if isinstance(row, WorkerRow):
            at_us = heard.at_us(name, data, row.at_us, now_us)
            workers[row.worker] = structs.replace(row, at_us=at_us)
        elif isinstance(row, TaskRow):
            tasks[name] = structs.replace(row, at_us=heard.at_us(name, data, row.at_us, now_us))
        elif isinstance(row, HeldRow) and row.generation == generation:
            held = structs.replace(row, at_us=heard.at_us(name, data, row.at_us, now_us))
        elif isinstance(row, PartitionsRow) and row.generation == generation:
            if row.shards:
                partitions[row.operator] = row.shards
            elif row.message:
                partition_faults[row.operator] = row.message
    heard.looked(rows)
    return StoreReading(
        generation=generation,
        now_us=now_us,
        workers=workers,
        tasks=tasks,
        shards=dict(counters),
        failures=dict(failures),
        partitions=partitions,
        partition_faults=partition_faults,
        held=held,
    )
