"""The task's cache of state: what it holds of each owned shard, what to load for a batch, what to commit.

One `ShardState` for each owned shard, one `StateCache` for the task. A batch goes: `missing` says what to
load for its keys in one call, `loaded` takes the answer, user code works on `begin`'s records,
`take_writes` says what changed, and `committed` ends it. What is dropped with the shard is
everything: the next owner starts from the store. Neighbours: `cells` (lists and maps), `clients`
(who works on records), `keyed_stage` (who drives this).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import Answer, Load, Scan, StateWrite, StoreUnreachable, TimerWrite
from penstock_worker.state import declared, encoding
from penstock_worker.state.cells import ListCell, MapCell, copied
from penstock_worker.state.evolution import Stored
from penstock_worker.state.forgetting import forgetting
from penstock_worker.state.timers import TimerCell
from penstock_worker.values.held import READ_BYTES_MAX, TooMuch

Key = tuple[Any, ...]
LoadState = Callable[[Load | Scan], object]
"""Carries out a call on the node store and answers what the store does."""

CACHE_BYTES_MAX = 64 << 20
LOAD_FIELDS_MAX = 2048
"""Fields in one Load: about a millisecond of the store's time."""
SCAN_FIELDS = 512
_RECORD_BYTES = 400
"""What a grouping key costs in the cache beside its key and values."""
_SLACK = 64
"""The cache is trimmed by this part of its bound at once, so that it is not trimmed at every commit."""


class _Unloaded:
    """Stands for a value that nobody has asked the store for yet."""

    def __repr__(self) -> str:
        return "unloaded"


UNLOADED = _Unloaded()
_CELLS = {
    encoding.LIST: ListCell,
    encoding.EXPIRING_LIST: ListCell,
    encoding.MAP: MapCell,
    encoding.EXPIRING_MAP: MapCell,
    encoding.TIMERS: TimerCell,
}
_CELL_KINDS = frozenset(_CELLS.values())


@dataclass(frozen=True, slots=True)
class SplitValue:
    """Stands for a value in parts of which only the header was read."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class Variable:
    """A state variable: its kind (`encoding.VALUE`, `LIST`, `MAP`), what its fields begin with, and its
    schemas as DDL, of a map those of keys and values; and how long what is written lives, where that ends. A
    processor's timers are one more, without a name."""

    name: str
    kind: bytes
    prefix: bytes
    schemas: tuple[str, ...]
    ttl_ms: int | None = None


class Record:
    """The state of one grouping key: `values` by variable, `dirty` a bit for each one that changed.

    A value is packed bytes, None, UNLOADED, a SplitValue, or the cell of a list or map.
    """

    __slots__ = ("bytes", "dirty", "key", "packed", "parts", "values")

    def __init__(self, key: Key, packed: bytes, variables: int) -> None:
        self.key = key
        self.packed = packed
        self.values: list[Any] = [UNLOADED] * variables
        self.parts: dict[int, int] | None = None
        self.dirty = 0
        self.bytes = 0

    def measured(self) -> int:
        """About how many bytes the record takes."""
        total = _RECORD_BYTES + len(self.packed)
        for value in self.values:
            kind = type(value)
            if kind is bytes:
                total += len(value)
            elif kind in _CELL_KINDS:
                total += value.bytes
        return total


class Savepoint:
    """What a key's state was at some time of a batch; without values it is as the store has it. Made for each
    call of user code that may fail, so it is no dataclass."""

    __slots__ = ("dirty", "key", "parts", "timers", "values")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.timers: list[tuple[bytes, Any]] = []
        """What timers were set to before, since then."""
        self.values: list[Any] | None = None
        self.dirty = 0
        self.parts: dict[int, int] | None = None


class ShardState:
    """The cached state of one owned shard. It is useless once the shard's ownership went."""

    def __init__(self, cache: StateCache, owned: OwnedShard) -> None:
        self.bytes = 0
        self.busy = False
        """Between `missing` and `committed`: nothing of it may leave the cache."""
        self.failure: OwnershipLost | StoreUnreachable | TooMuch | None = None
        """Why a load from within user code failed: the batch is void, whatever user code made of that."""
        self.refusal = ""
        """Why the code may not work on this state at all: it was declared as something else (`declared`)."""
        self._is_declared = False
        self._to_note: bytes | None = None
        self._is_noting = False
        self._stored: Sequence[Stored | None] = (None,) * len(cache.variables)
        """Of each variable how its values lie in this shard, where its schema has changed."""
        self._forgetting: tuple[StateWrite, ...] = ()
        """What is left to take away of variables that the code deletes."""
        self.alone = False
        """The batch is a single row: it may read as much as it likes."""
        self.taken_bytes = 0
        """What the writes came to that were taken last."""
        self.now_ms = 0
        """When the batch began, by the steady clock;"""
        self.ahead_ms = 0
        """and how far that is ahead of the wall clock, which user code goes by."""
        self._timers: dict[bytes, int | None] = {}
        self._undo_timers: list[tuple[bytes, Any]] | None = None
        """Those of the savepoint that counts now."""
        self._read_bytes = 0
        self._cache = cache
        self._variables = cache.variables
        self._shard = owned.shard
        self._generation = owned.generation
        self._epoch = owned.epoch
        self._records: OrderedDict[Key, Record] = OrderedDict()
        self._loading: Sequence[Record] = ()
        self._awaiting: list[Record] = []
        self._dirty: list[Record] = []
        self._grown: list[Record] = []

    # --- a batch ----------------------------------------------------------------------------

    def missing(self, keys: Iterable[Key]) -> Load | None:
        """Begin a batch on `keys` (wire values): what to load first, or None when all is here.

        Of very many keys the first ones; the others are loaded together when the first of them is touched.
        """
        self.busy = True
        self.failure = None
        self._read_bytes = 0
        if not self._variables:
            return None
        records = self._records
        absent: list[Record] = []
        for key in keys:
            record = records.get(key)
            if record is None:
                absent.append(self._added(key))
            elif record.bytes:
                records.move_to_end(key)
            else:
                absent.append(record)
        if not absent:
            return None
        most = max(1, LOAD_FIELDS_MAX // len(self._variables))
        self._loading, self._awaiting = absent[:most], absent[most:]
        load = self._load_of(self._loading)
        return load if self._is_declared else replace(load, fields=(declared.FIELD, *load.fields))

    def loaded(self, load: Load, answer: object) -> None:
        """Take the answer to `missing`'s load. Raises OwnershipLost when it is no list of values."""
        if not isinstance(answer, list):
            raise OwnershipLost(load.shard, answer)
        if not self._is_declared:
            self._is_declared = True
            self._compare(answer[0])
            answer = answer[1:]
        rest = self._fill(self._loading, answer)
        if rest:
            self._awaiting = [*rest, *self._awaiting]
        self._loading = ()

    def at(self, now_us: int, wall_us: int) -> None:
        """When the batch begins, by the steady clock and by the wall clock."""
        self.now_ms, self.ahead_ms = now_us // 1000, -((wall_us - now_us) // 1000)

    def begin(self, key: Key) -> Record:
        """The record of `key`, for user code to work on."""
        record = self._records.get(key)
        if record is None:
            self.busy = True
            record = self._added(key)
        return record

    def changed(self, record: Record, bit: int) -> None:
        """User code changed the variable of `bit`; called after the record holds the new value."""
        if not record.dirty:
            self._dirty.append(record)
        record.dirty |= bit

    def take_writes(self) -> tuple[StateWrite, ...]:
        """What this batch changed, one write for each field, the last value only."""
        writes = list(self._forgetting)
        prefixes, stored_as = self._cache.prefixes, self._stored
        add = writes.append
        for record in self._dirty:
            dirty, values, is_whole = record.dirty, record.values, record.parts is None
            while dirty:
                slot = (dirty & -dirty).bit_length() - 1
                dirty &= dirty - 1
                value = values[slot]
                if type(value) is bytes and (stored := stored_as[slot]) is not None:
                    value = stored.write(value)
                if is_whole and (
                    value is None or (type(value) is bytes and len(value) <= encoding.PART_BYTES)
                ):
                    add(StateWrite(b"", prefixes[slot] + record.packed, value))
                elif value is None or type(value) is bytes:
                    writes.extend(self._value_writes(record, slot, value))
                    is_whole = record.parts is None
                else:
                    writes.extend(value.writes())
            record.dirty = 0
        if writes and self._to_note is not None:
            writes.append(StateWrite(b"", declared.FIELD, self._to_note))
            self._is_noting = True
        self.taken_bytes = sum([len(write.value) for write in writes if write.value is not None])
        return tuple(writes)

    def set_timer(self, name: bytes, due_ms: int | None) -> None:
        """Set or take away a timer of the shard with the batch's commit."""
        if self._undo_timers is not None:
            self._undo_timers.append((name, self._timers.get(name, UNLOADED)))
        self._timers[name] = due_ms

    def savepoint(self, key: Key) -> Savepoint:
        """The state of a key as it is now, before user code works on it: for `undo`. Timers that are set from
        here on are its key's, until the next one, or until another one counts (`resume`)."""
        saved = Savepoint(key)
        self._undo_timers = saved.timers
        record = self._records.get(key)
        if record is not None and record.dirty:
            saved.values = [copied(value) if type(value) in _CELL_KINDS else value for value in record.values]
            saved.dirty = record.dirty
            saved.parts = dict(record.parts) if record.parts else record.parts
        return saved

    def resume(self, saved: Savepoint) -> None:
        """Work on this savepoint's key goes on, where others were worked on meanwhile."""
        self._undo_timers = saved.timers

    def undo(self, saved: Savepoint) -> None:
        """Forget what user code did to the key since; what it did to others of the batch stays."""
        for name, before in reversed(saved.timers):
            if before is UNLOADED:
                del self._timers[name]
            else:
                self._timers[name] = before
        saved.timers.clear()
        self._undo_timers = None
        record = self._records.get(saved.key)
        if record is None:
            return
        if saved.values is not None:
            record.values, record.dirty, record.parts = saved.values, saved.dirty, saved.parts
            return
        if record.dirty:
            # It stands at the end, but for keys that were worked on at the same time.
            del self._dirty[next(n for n in reversed(range(len(self._dirty))) if self._dirty[n] is record)]
        self._account(-record.bytes)
        self._awaiting.append(self._added(saved.key))
        self._grown = [grown for grown in self._grown if grown is not record]

    def take_timers(self) -> tuple[TimerWrite, ...]:
        """The timers that this batch set and took away, of each the last word; behind `take_writes`."""
        if not self._timers:
            return ()
        taken = tuple(TimerWrite(name, due_ms) for name, due_ms in self._timers.items())
        self.taken_bytes += sum(map(len, self._timers))
        self._timers.clear()
        self._undo_timers = None
        return taken

    def changed_bytes(self) -> int:
        """About what this batch changed so far, by the last of its keys."""
        return self._dirty[-1].measured() * len(self._dirty) if self._dirty else 0

    def committed(self) -> None:
        """The store has what `take_writes` said; the cache may let it go again."""
        self._forgetting = ()
        if self._is_noting:
            self._to_note, self._is_noting = None, False
        self._measure(self._dirty)
        if self._grown:
            self._measure(self._grown)
        self._end_batch()
        self._cache.trim()

    def rollback(self) -> None:
        """Forget what was changed since the last commit; the batch may be worked on anew, or given up."""
        self._is_noting = False
        self._timers.clear()
        self._undo_timers = None
        dirty, self._dirty = self._dirty, []
        for record in dirty:
            self._account(-record.bytes)
            self._awaiting.append(self._added(record.key))
        self._grown = [record for record in self._grown if self._records.get(record.key) is record]
        self.failure = None
        self._read_bytes = 0

    def evict(self, share: float) -> None:
        """Let go of this share of the shard's bytes, longest unused keys first."""
        until = self.bytes * (1 - share)
        while self._records and self.bytes > until:
            _, record = self._records.popitem(last=False)
            self._account(-record.bytes)

    # --- for clients and cells --------------------------------------------------------------

    def load_value(self, record: Record, slot: int) -> Any:
        """What the record holds for a variable, read from the store if need be.

        Bytes or None for a value state, a cell for a list or map. Raises OwnershipLost or StoreUnreachable.
        """
        if record.values[slot] is UNLOADED:
            self._load_with(record)
        value = record.values[slot]
        variable = self._variables[slot]
        if isinstance(value, SplitValue):
            value = self._as_read(slot, self._joined(b"", variable.prefix + record.packed, value.raw))
        elif (cell := _CELLS.get(variable.kind)) is not None and type(value) is not cell:
            value = cell(variable.prefix + record.packed, value, self, self._stored[slot])
        record.values[slot] = value
        self._grown.append(record)
        return value

    def fields(self, collection: bytes, fields: list[bytes]) -> list[bytes | None]:
        """What fields hold, values in parts joined. Raises OwnershipLost or StoreUnreachable."""
        return [
            raw if raw is None or not encoding.is_split(raw) else self._joined(collection, field, raw)
            for field, raw in zip(fields, self._read(collection, fields), strict=True)
        ]

    def collection(self, collection: bytes) -> dict[bytes, bytes]:
        """All fields of a collection as they lie there. Raises OwnershipLost or StoreUnreachable."""
        found: dict[bytes, bytes] = {}
        cursor = "0"
        while True:
            call = Scan(self._shard, self._generation, self._epoch, collection, cursor, SCAN_FIELDS)
            cursor, fields = self._call(call)
            found.update(fields)
            if cursor == "0":
                return found

    # --- within -----------------------------------------------------------------------------

    def _compare(self, noted: bytes | None) -> None:
        """Look at what this shard's state was declared as, before anything of it is used."""
        standing = self._cache.declaration.standing(noted)
        self.refusal = standing.refusal
        self._to_note = standing.to_note
        if not self.refusal:
            # One for each variable but the timers, which have no name.
            stored = iter(standing.stored)
            self._stored = [next(stored) if variable.name else None for variable in self._variables]
            scan = Scan(self._shard, self._generation, self._epoch, b"", "0", SCAN_FIELDS)
            self._forgetting = forgetting(standing.deleted, scan, self._cache.load)

    def _as_read(self, slot: int, raw: bytes) -> Any:
        """What the store holds for a value or as a list's or map's marker, as it is kept here."""
        stored = self._stored[slot]
        is_value = self._variables[slot].kind in {encoding.VALUE, encoding.EXPIRING_VALUE}
        return raw if stored is None or not is_value else stored.read(raw)

    def _added(self, key: Key) -> Record:
        record = self._records[key] = Record(key, self._cache.pack_key(key), len(self._variables))
        return record

    def _load_of(self, records: Sequence[Record]) -> Load:
        return self._load(b"", self._fields_of(records))

    def _fields_of(self, records: Sequence[Record]) -> list[bytes]:
        prefixes = self._cache.prefixes
        return [prefix + record.packed for record in records for prefix in prefixes]

    def _read(self, collection: bytes, fields: list[bytes]) -> list[bytes | None]:
        """What fields hold as it lies there, in as many loads as that takes."""
        found: list[bytes | None] = []
        while len(found) < len(fields):
            wanted = fields[len(found) : len(found) + LOAD_FIELDS_MAX]
            found += self._call(self._load(collection, wanted))
        return found

    def _load(self, collection: bytes, fields: list[bytes]) -> Load:
        return Load(self._shard, self._generation, self._epoch, collection, tuple(fields))

    def _load_with(self, record: Record) -> None:
        """Load a record, and others of the batch along with it."""
        most = max(1, LOAD_FIELDS_MAX // len(self._variables))
        others = [waiting for waiting in self._awaiting if waiting is not record and not waiting.bytes]
        records = [record, *others[: most - 1]]
        rest = list(self._fill(records, self._call(self._load_of(records))))
        if rest and rest[0] is record:
            self._fill(rest[:1], self._read(b"", self._fields_of(rest[:1])))
            del rest[0]
        self._awaiting = rest + others[most - 1 :]

    def _fill(self, records: Sequence[Record], raws: Sequence[bytes | None]) -> Sequence[Record]:
        """Take what a load answered; the records for which it was not enough."""
        width = len(self._variables)
        records, rest = records[: len(raws) // width], records[len(raws) // width :]
        for number, record in enumerate(records):
            for slot, raw in enumerate(raws[number * width : (number + 1) * width]):
                if record.values[slot] is not UNLOADED:
                    continue
                if raw is not None and encoding.is_split(raw):
                    record.parts = {**(record.parts or {}), slot: encoding.part_count(raw)}
                    record.values[slot] = SplitValue(raw)
                else:
                    record.values[slot] = raw if raw is None else self._as_read(slot, raw)
        self._measure(records)
        return rest

    def _value_writes(self, record: Record, slot: int, value: bytes | None) -> list[StateWrite]:
        """The writes of a value state that is gone, or that is or was in parts."""
        field = self._variables[slot].prefix + record.packed
        parts_before = (record.parts or {}).pop(slot, 0)
        if value is None:
            return list(encoding.remove(b"", field, parts_before))
        if len(value) > encoding.PART_BYTES:
            record.parts = {**(record.parts or {}), slot: -(-len(value) // encoding.PART_BYTES)}
        return list(encoding.put(b"", field, value, parts_before))

    def _joined(self, collection: bytes, field: bytes, raw: bytes) -> bytes:
        return b"".join(
            cast("list[bytes]", self._read(collection, encoding.part_fields(field, encoding.part_count(raw))))
        )

    def _call(self, call: Load | Scan) -> Any:
        try:
            answer = self._cache.load(call)
        except StoreUnreachable as error:
            self.failure = error
            raise
        if isinstance(answer, Answer):
            self.failure = OwnershipLost(self._shard, answer)
            raise self.failure
        found: Any = answer
        values = found if isinstance(call, Load) else [value for _, value in found[1]]
        self._read_bytes += sum(len(value) for value in values if value is not None)
        if self._read_bytes > READ_BYTES_MAX and not self.alone:
            self.failure = TooMuch(f"reads {self._read_bytes} bytes of state")
            raise self.failure
        return found

    def _measure(self, records: Iterable[Record]) -> None:
        grown = 0
        for record in records:
            size = record.measured()
            grown += size - record.bytes
            record.bytes = size
        self._account(grown)

    def _account(self, size_bytes: int) -> None:
        self.bytes += size_bytes
        self._cache.bytes += size_bytes

    def _end_batch(self) -> None:
        self._dirty.clear()
        self._grown.clear()
        self._awaiting = []
        self._loading = ()
        self.busy = False


class StateCache:
    """What one task keeps of all its shards, bounded in bytes.

    `variables`, `key_types` and `deleted` (names of variables that are to go) are the processor's; `load`
    goes to the node store. The bound is exceeded only by what the batches at hand touch.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        key_types: Sequence[str],
        load: LoadState,
        bytes_max: int = CACHE_BYTES_MAX,
        deleted: Sequence[str] = (),
    ) -> None:
        self.variables = tuple(variables)
        self.prefixes = [variable.prefix for variable in self.variables]
        self.declaration = declared.Declaration(
            ((v.name, v.kind, v.schemas) for v in self.variables if v.name), deleted
        )
        self.pack_key = encoding.key_packer(key_types)
        self.load = load
        self.bytes = 0
        self._bytes_max = bytes_max
        self._shards: dict[str, ShardState] = {}

    def shard(self, owned: OwnedShard) -> ShardState:
        """The state of a shard that was just claimed: empty, whatever was cached before."""
        self.drop(owned.shard)
        state = self._shards[owned.shard] = ShardState(self, owned)
        return state

    def drop(self, shard: str) -> None:
        """Ownership went, and everything cached with it."""
        state = self._shards.pop(shard, None)
        if state is not None:
            self.bytes -= state.bytes

    def trim(self) -> None:
        """Let go of the longest unused keys of shards that no batch works on, when over the bound."""
        if self.bytes <= self._bytes_max:
            return
        idle = [state for state in self._shards.values() if not state.busy]
        surplus = self.bytes - self._bytes_max + self._bytes_max // _SLACK
        share = min(1.0, surplus / max(1, sum(state.bytes for state in idle)))
        for state in idle:
            state.evict(share)
