"""A keyed shard's side of a new routing table: what comes into its inbox that is no rows, and rows of keys
whose state has not come.

A shard that has the marks of all producers sends the state of each key that it loses to the key's new shard;
by then it has worked off all rows that were routed to it before, and what they came to has left its outbox,
so nothing of the key overtakes anything. A shard that gains keys hears of it by the first mark, or the first
state: no row of such a key can come before. It holds these rows back in its own state until the key's state
has come, and works on all others. The entry that a step is about stays at the head of the inbox until the
last of the step's commits, so a new owner goes on where the one before was. What waits of a key to be tried
again is of its state. Neighbours: `arriving_version` has the notes, `control_entries` the entries,
`moved_letters` what becomes of dead letters, `routed_stage` carries out what is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.dataflow.plan import Processor
from penstock.dataflow.routing_table import KeyMove, begun_count, moved_count
from penstock.store.codec import decode_batch, encode_batch
from penstock.store.fragments import decode_fragment, fragments_of, is_fragment
from penstock.store.letters import TIMER, is_order
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import (
    Bounds,
    Entry,
    FetchedShard,
    Load,
    Measure,
    NodeStore,
    Output,
    Scan,
    StateWrite,
)
from penstock_worker.process.clock import Clock
from penstock_worker.stages.arriving_version import HELD_ROWS, VERSION_NOTES, ArrivingVersion, Key
from penstock_worker.stages.control_entries import (
    NO_ROWS,
    KeyState,
    Mark,
    before_control,
    decode,
    encode,
    is_control,
)
from penstock_worker.stages.fragmented_rows import gathered, last_fragment
from penstock_worker.stages.held_back import HoldingCalls
from penstock_worker.stages.keyed_part import key_getter, keys_getter
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.stages.moved_letters import MovedLetters
from penstock_worker.stages.part_size import fill_of
from penstock_worker.stages.table_shelf import LOOK_US, TableShelf
from penstock_worker.stages.work import Rest, Work, WorkFailed
from penstock_worker.state import encoding
from penstock_worker.state.cache import ShardState, Variable
from penstock_worker.state.encoding import chunk_field
from penstock_worker.state.key_state import UnknownVariable, put_in, take_out

OUTBOX_LOOK_US = 5_000
"""While a shard waits for its outbox it looks so often."""
SENT_KEYS_MAX = 64
SENT_BYTES_MAX = 256 << 10
"""So many keys, or about so many bytes, go with one commit."""
_SCAN_FIELDS = 512
_DECODER = msgspec.msgpack.Decoder(tuple)


@dataclass(frozen=True, slots=True)
class Given:
    """What the stage works on in the place of what was fetched.

    Where that stands in the place of entry `head` (0: nowhere), the commit that is through with it uses up
    `consumed_bytes`, and leaves the entry there where that is 0; it writes and counts also what `through`
    answers, which is asked once."""

    fetched: FetchedShard
    head: int = 0
    consumed_bytes: int = 0
    through: Callable[[], tuple[Sequence[StateWrite], dict[str, int]]] | None = None


class Receiving:
    """Of one task's keyed stage."""

    arriving = ArrivingVersion

    def __init__(
        self,
        operator: str,
        head: Processor,
        stage: KeyedStage,
        variables: Sequence[Variable],
        shelf: TableShelf,
        store: NodeStore,
        bounds: Bounds,
        clock: Clock,
    ) -> None:
        types = [column.type for column in head.input.columns]
        self._operator = operator
        self._begun, self._moved = begun_count(operator), moved_count(operator)
        self._keys_of = keys_getter(head.key_columns, types)
        key_types = [types[column] for column in head.key_columns]
        self._key_getter = key_getter(range(len(key_types)), key_types)
        self._stage = stage
        self._variables = variables
        self._shelf = shelf
        self._store = store
        self._bounds = bounds
        self._clock = clock
        self._letters = MovedLetters(operator, head, stage.failing, shelf, store, bounds)
        self._versions: dict[str, ArrivingVersion] = {}
        self._left: dict[str, list[tuple[bytes, bytes]]] = {}
        """Shards of which an earlier owner has left notes, and whose table is not here yet."""

    def adopt(self, owned: OwnedShard) -> None:
        """Read what an earlier owner has left. Raises OwnershipLost, StoreUnreachable."""
        self.release(owned.shard)
        if owned.counted_so_far(self._begun) > owned.counted_so_far(self._moved):
            self._left[owned.shard] = list(self._scan(owned))

    def release(self, shard: str) -> None:
        self._versions.pop(shard, None)
        self._left.pop(shard, None)

    def next_step(self, owned: OwnedShard, fetched: FetchedShard) -> Given | Work | Rest:
        """What to do with a shard that was handed out: the stage works on what is given; or a commit; or
        nothing yet. Raises WorkFailed, OwnershipLost, StoreUnreachable."""
        if owned.shard in self._left and not self._take_up(owned):
            return self._until_table()
        entries = fetched.entries
        version = self._versions.get(owned.shard)
        if not entries:
            # What a key that is tried again puts out might come behind its state.
            is_sending = version is not None and version.is_sending
            return self._until_sent() if is_sending else Given(fetched)
        first = entries[0]
        if first.payload[0] in NO_ROWS:
            if is_control(first.payload):
                return self._control(owned, first, decode(first.payload), ())
            if is_fragment(first.payload):
                return self._fragment(owned, fetched)
            return self._order(owned, fetched, first.payload)
        rows = before_control(entries)
        if version is not None and version.awaited:
            return self._holding(owned, version, fetched, rows)
        return Given(fetched if rows is entries else fetched._replace(entries=tuple(rows)))

    # --- rows of awaited keys

    def _holding(
        self, owned: OwnedShard, version: ArrivingVersion, fetched: FetchedShard, rows: Sequence[Entry]
    ) -> Given | Work:
        """Rows of a shard that waits for keys: those up to the first of such a key, or else that entry's."""
        taken = 0
        for entry in rows:
            if is_fragment(entry.payload) or is_order(entry.payload):
                break
            if self._has_awaited(version, entry.payload):
                break
            taken += 1
        if taken or not rows:
            return Given(fetched._replace(entries=tuple(rows[:taken])))
        entry = rows[0]
        held, left = self._split(version, entry.payload)
        if version.held_entry == entry.number:
            others = fetched._replace(entries=(entry._replace(payload=left),))
            return Given(others, entry.number, len(entry.payload), lambda: (list(version.hold_entry(0)), {}))
        writes = [write for packed, payload in held for write in version.hold(packed, payload)]
        writes += version.hold_entry(entry.number if left else 0)
        return self._committed(owned, writes, done=() if left else (entry,))

    def _has_awaited(self, version: ArrivingVersion, payload: bytes) -> bool:
        awaited = version.awaited
        return any(key in awaited for key in self._keys_of(decode_batch(payload).rows))

    def _split(self, version: ArrivingVersion, payload: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """The rows of awaited keys, by packed key, and the others; each as a payload, b"" for none."""
        batch = decode_batch(payload)
        awaited = version.awaited
        of_key: dict[bytes, tuple[list[int], list[Any]]] = {}
        others: tuple[list[int], list[Any]] = ([], [])
        for key, delta_us, row in zip(self._keys_of(batch.rows), batch.deltas_us, batch.rows, strict=True):
            packed = awaited.get(key)
            stamps, rows = others if packed is None else of_key.setdefault(packed, ([], []))
            stamps.append(batch.base_us + delta_us)
            rows.append(row)
        held = [(packed, encode_batch(*found)) for packed, found in of_key.items()]
        return held, encode_batch(*others) if others[1] else b""

    def _fragment(self, owned: OwnedShard, fetched: FetchedShard) -> Given | Work | Rest:
        """Pieces of something large are at the head. The stage keeps them, and has the rows of it."""
        first = fetched.entries[0]
        is_own = decode_fragment(first.payload).producer.split("/", 1)[0] == self._operator
        version = self._versions.get(owned.shard)
        is_awaiting = version is not None and bool(version.awaited)
        if gathered(fetched.entries).entries or not (is_own or is_awaiting):
            return Given(fetched._replace(entries=tuple(before_control(fetched.entries))))
        if version is not None and is_own and version.put:
            return self._work_off(owned, version, first)
        last = last_fragment(owned, first, self._store.call)
        if is_own and is_order(last.payload):
            return self._order(owned, fetched, last.payload, (last.forget,))
        if is_own:
            return self._control(owned, first, decode(last.payload), (last.forget,))
        if version is not None and self._has_awaited(version, last.payload):
            held, _ = self._split(version, last.payload)
            writes = [write for packed, payload in held for write in version.hold(packed, payload)]
            return self._committed(owned, [*writes, last.forget], done=(first,))
        return Given(fetched._replace(entries=(first,)))

    # --- orders about dead letters

    def _order(
        self, owned: OwnedShard, fetched: FetchedShard, payload: bytes, forget: tuple[StateWrite, ...] = ()
    ) -> Given | Work:
        """What somebody wants to be done with a letter; with what was written of it, where it came in
        fragments."""
        entry = fetched.entries[0]
        elsewhere = self._letters.elsewhere(owned, payload, self._versions.get(owned.shard))
        if elsewhere is not None:
            writes, outputs = elsewhere
            return self._committed(owned, [*writes, *forget], done=(entry,), outputs=outputs)
        if not forget:
            return Given(fetched._replace(entries=(entry,)))
        whole = fetched._replace(entries=(entry._replace(payload=payload),), timers=())
        return Given(whole, entry.number, len(entry.payload), lambda: (forget, {}))

    # --- marks, and state of keys

    def _control(
        self, owned: OwnedShard, entry: Entry, said: Mark | KeyState, forget: tuple[StateWrite, ...]
    ) -> Given | Work | Rest:
        version = self._versions.get(owned.shard)
        if said.version <= owned.counted_so_far(self._moved):
            return self._committed(owned, forget, done=(entry,))
        if version is None:
            version = self._begin(owned, said.version)
            if version is None:
                return self._until_table()
        if said.version != version.version:
            raise WorkFailed(
                f"operator {self._operator}: {owned.shard} hears of version {said.version} of its routing "
                f"table while version {version.version} is being carried out"
            )
        if isinstance(said, Mark):
            return self._marked(owned, version, entry, said)
        if version.put:
            return self._work_off(owned, version, entry)
        return self._come(owned, version, entry, said, forget)

    def _marked(self, owned: OwnedShard, version: ArrivingVersion, entry: Entry, mark: Mark) -> Work | Rest:
        if version.sent < len(version.lost) and version.is_last_mark(mark.producer):
            return self._send(owned, version, entry)
        return self._committed(owned, version.hear(mark.producer), done=(entry,), version=version)

    def _send(self, owned: OwnedShard, version: ArrivingVersion, entry: Entry) -> Work | Rest:
        """Send the state of some keys, once all that was put out of them is in inboxes and sinks."""
        if not self._is_outbox_free(owned, version):
            return self._until_sent()
        state = self._stage.state_of(owned.shard)
        self._set_time(state)
        outputs: list[Output] = []
        sent = sent_bytes = 0
        keys_max = min(SENT_KEYS_MAX, max(1, self._bounds.outputs_per_commit_max // 2))
        moves = version.lost[version.sent : version.sent + keys_max]
        self._load(owned, state, [self._key(move.key) for move in moves])
        holding = self._stage.failing.moving(owned)
        for move in moves:
            entries = self._state_of(owned, state, holding, version.sent + sent, move, version.version)
            outputs += entries
            sent += 1
            sent_bytes += sum(len(output.payload) for output in entries)
            if sent_bytes >= min(SENT_BYTES_MAX, self._bounds.commit_bytes_max // 2):
                break
        counted: dict[str, int] = {}
        writes = [*state.take_writes(), *holding.writes(counted, bounded=False), *version.send(sent)]
        is_last = version.sent == len(version.lost)
        return self._committed(
            owned,
            writes,
            done=(entry,) if is_last else (),
            version=version,
            outputs=outputs,
            state=state,
            counted=counted,
        )

    def _is_outbox_free(self, owned: OwnedShard, version: ArrivingVersion) -> bool:
        (counters,) = self._store.call(Measure((owned.shard,)))
        if counters is None or counters.epoch != owned.epoch:
            raise OwnershipLost(owned.shard, "another epoch")
        if version.sent:
            # What is behind the first state is more state; a few commits of it may be on their way.
            bounds = self._bounds
            return (
                counters.outbox_entries <= bounds.outbox_entries_max // 2
                and counters.outbox_bytes <= bounds.outbox_bytes_max // 2
            )
        return counters.outbox_entries == 0

    def _state_of(
        self,
        owned: OwnedShard,
        state: ShardState,
        holding: HoldingCalls,
        number: int,
        move: KeyMove,
        version: int,
    ) -> list[Output]:
        """All that a key has here, as entries for its new shard."""
        key = self._key(move.key)
        parts = take_out(state, state.begin(key), self._variables)
        waiting = holding.give_away(key)
        payload = encode(KeyState(version, move.key, owned.shard, number, parts, waiting))
        pieces = [payload]
        if len(payload) > self._bounds.entry_bytes_max:
            pieces = fragments_of(owned.shard, payload, self._bounds.entry_bytes_max)
        return [Output(f"{self._operator}/{move.target}", piece, 0) for piece in pieces]

    def _come(
        self,
        owned: OwnedShard,
        version: ArrivingVersion,
        entry: Entry,
        said: KeyState,
        forget: tuple[StateWrite, ...],
    ) -> Work:
        """A key's state is here: put it in. Rows that were held back are worked off behind it."""
        if not version.awaits(said.key):
            return self._committed(owned, forget, done=(entry,), version=version)
        state = self._stage.state_of(owned.shard)
        self._set_time(state)
        key = self._key(said.key)
        self._load(owned, state, [key])
        fired = {one.expiry_ms for one in said.waiting if one.kind == TIMER and one.expiry_ms is not None}
        try:
            put_in(state, state.begin(key), self._variables, said.parts, fired)
        except UnknownVariable as unknown:
            state.rollback()
            raise WorkFailed(f"operator {self._operator}: {unknown}") from unknown
        holding = self._stage.failing.moving(owned)
        holding.take_in(key, said.waiting)
        is_held = version.first_held(said.key) is not None
        notes = version.put_in(said.key) if is_held else version.come(said.key)
        counted: dict[str, int] = {}
        writes = [*state.take_writes(), *holding.writes(counted, bounded=False), *forget, *notes]
        done = () if is_held else (entry,)
        return self._committed(owned, writes, done=done, version=version, state=state, counted=counted)

    def _work_off(self, owned: OwnedShard, version: ArrivingVersion, entry: Entry) -> Given:
        """The first rows that are held of the key whose state is here go to the stage."""
        packed = version.put
        first = version.first_held(packed)
        if first is None:
            raise RuntimeError(f"{owned.shard} waits for rows of a key that it does not hold")
        name, field = HELD_ROWS + packed, chunk_field(first)
        (raw,) = self._read(owned, name, [field])
        parts = encoding.part_count(raw)
        pieces = self._read(owned, name, encoding.part_fields(field, parts)) if parts else [raw]
        rows = entry._replace(payload=b"".join(pieces))
        is_last = version.is_last_held(packed)

        def through() -> tuple[Sequence[StateWrite], dict[str, int]]:
            writes = list(version.come(packed) if is_last else version.worked(packed, parts))
            return self._over(owned, writes) if version.is_over else (writes, {})

        given = FetchedShard(owned.shard, owned.epoch, owned.offset, (rows,))
        return Given(given, entry.number, len(entry.payload) if is_last else 0, through)

    # --- within

    def _begin(self, owned: OwnedShard, number: int) -> ArrivingVersion | None:
        """The notes of a version that is new here; None where its table is not in the store yet."""
        table = self._shelf.table(self._operator, number)
        if table is None:
            return None
        part = int(owned.shard.rpartition("/")[2])
        version = self.arriving(table, part, self._key, self._left.pop(owned.shard, ()))
        self._versions[owned.shard] = version
        return version

    def _take_up(self, owned: OwnedShard) -> bool:
        return self._begin(owned, owned.counted_so_far(self._begun)) is not None

    def _over(
        self, owned: OwnedShard, writes: Iterable[StateWrite]
    ) -> tuple[list[StateWrite], dict[str, int]]:
        """The version is carried out here: `writes` without its notes, which go, and what is counted."""
        version = self._versions.pop(owned.shard)
        kept = [write for write in writes if write.collection != VERSION_NOTES]
        kept.append(StateWrite(VERSION_NOTES, None, None))
        return kept, self._counting(owned, self._moved, version)

    def _counting(self, owned: OwnedShard, name: str, version: ArrivingVersion) -> dict[str, int]:
        return {name: version.version - owned.counted_so_far(name)}

    def _committed(
        self,
        owned: OwnedShard,
        writes: Iterable[StateWrite],
        *,
        done: tuple[Entry, ...],
        version: ArrivingVersion | None = None,
        outputs: Sequence[Output] = (),
        state: ShardState | None = None,
        counted: dict[str, int] | None = None,
    ) -> Work:
        """A commit that works on no row: behind it the entries `done` are."""
        kept = list(writes)
        counted = counted or {}
        if version is not None:
            if owned.counted_so_far(self._begun) < version.version:
                counted |= self._counting(owned, self._begun, version)
            if done and version.is_over:
                kept, moved = self._over(owned, kept)
                counted |= moved
        timers = state.take_timers() if state is not None else ()
        commit = owned.commit(
            self._clock.now_us(),
            entries=done,
            counted=counted or None,
            in_hand=True,
            state=tuple(kept),
            timers=timers,
            outputs=tuple(outputs),
        )
        size_bytes = sum(len(write.value or b"") for write in kept) + sum(len(o.payload) for o in outputs)
        fill = fill_of(self._bounds, len(outputs), size_bytes, len(kept) + len(timers))
        return Work(commit, (), {}, 0, 0, large=fill > 1)

    def _key(self, packed: bytes) -> Key:
        key: Key = self._key_getter(_DECODER.decode(packed))
        return key

    def _set_time(self, state: ShardState) -> None:
        state.at(self._clock.now_us(), self._clock.wall_us())

    def _load(self, owned: OwnedShard, state: ShardState, keys: Sequence[Key]) -> None:
        """Have the state of keys at hand. Raises WorkFailed where the code may not work on it."""
        state.alone = True
        load = state.missing(keys)
        if load is not None:
            state.loaded(load, self._store.call(load))
        if state.refusal:
            raise WorkFailed(f"operator {self._operator}: {state.refusal}")

    def _read(self, owned: OwnedShard, collection: bytes, fields: Sequence[bytes]) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < len(fields):
            wanted = tuple(fields[len(found) :])
            answer = self._store.call(Load(owned.shard, owned.generation, owned.epoch, collection, wanted))
            if not isinstance(answer, list):
                raise OwnershipLost(owned.shard, answer)
            for value in answer:
                if value is None:
                    raise RuntimeError(f"{owned.shard} lacks rows that it holds back")
                found.append(value)
        return found

    def _scan(self, owned: OwnedShard) -> Iterable[tuple[bytes, bytes]]:
        found: dict[bytes, bytes] = {}
        cursor = "0"
        while True:
            call = Scan(owned.shard, owned.generation, owned.epoch, VERSION_NOTES, cursor, _SCAN_FIELDS)
            answer = self._store.call(call)
            if not isinstance(answer, tuple):
                raise OwnershipLost(owned.shard, answer)
            cursor, fields = answer
            found.update(fields)
            if cursor == "0":
                return found.items()

    def _until_table(self) -> Rest:
        """A table is not in the store yet. When it is, the task is told."""
        return Rest(self._clock.now_us() + LOOK_US, for_news=True)

    def _until_sent(self) -> Rest:
        """What the shard put out is in its outbox still."""
        return Rest(self._clock.now_us() + OUTBOX_LOOK_US, for_outbox=True)
