"""Keys of a processor that are tried again: what waits of them, until when, and calls that hold it back.

Rows on which a call raised lie in their shard's state, in a collection like that of dead letters; so the
commit goes past them, other keys go on, and whoever takes the shard up goes on with what waits. What comes
for such a key meanwhile, rows and timers, waits behind it, so that the key keeps its order. How much waits
is among the shard's counts, which a claim answers: who claims a shard without any reads nothing. A key that a
routing table takes to another shard takes along what waits of it, with its tries and its time.

Neighbours: `keyed_stage` calls this instead of the runner where its operator's `onError` is Retry,
`penstock.store.letters` says how what waits lies there, `spared_calls` is what is left when all attempts are
spent and the rows become dead letters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import structs

from penstock.dataflow.on_error import OnError, held_rows_of
from penstock.store import letters as lying
from penstock.store.letters import INITIAL, ROWS, TIMER, Letter, LetterId
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import Load, Scan, StateWrite
from penstock_worker.stages.due import hashable
from penstock_worker.stages.spared_calls import RefusingCalls, SparedCalls
from penstock_worker.stages.work import WorkFailed
from penstock_worker.state.cache import Key, ShardState
from penstock_worker.user_code.running import ProcessorRunner, UserCodeError
from penstock_worker.values.held import ONE_ROW, Held

HELD_BYTES_MAX = 16 << 20
"""Of one shard: as much may wait."""
_SCAN_FIELDS = 512

Waiting = tuple[tuple[LetterId, Letter], ...]
"""What waits of a key, in its order. Only the first one has a time, and has been tried."""


class HoldingCalls:
    """Has `begin`, `run` and `expire` as `runner` has, for the shard that `turn_to` names, which raise a
    UserCodeError only where no attempt is left and the operator fails then.

    `spared` keeps what becomes dead letters; `load` reads the store. All times are of the steady clock.

    By event time a call is told the watermark of when its rows came; and as long as its shard holds anything
    it tells the stages behind nothing newer (`holds_any`): what comes of a row is in time there, however
    often it was tried.
    """

    def __init__(
        self,
        operator: str,
        runner: ProcessorRunner,
        on_error: OnError,
        spared: SparedCalls | None,
        load: Callable[[Load | Scan], object],
    ) -> None:
        self._operator = operator
        self._runner = runner
        self._on_error = on_error
        self._spared = spared
        self._load = load
        self._waiting: dict[str, dict[Key, Waiting]] = {}
        self._holding: set[str] = set()
        """The shards of which something waits: mostly none, and asked for at every turn."""
        self._shard: dict[Key, Waiting] = {}
        self._news: dict[Key, Waiting] = {}
        """What waits of the keys that the batch at hand has changed;"""
        self._unsettled: dict[str, dict[Key, Waiting]] = {}
        """and those of each shard's last batch: others are worked before its commit is settled."""
        self._made = 0
        self._commit = 0
        self._now_us = 0
        self.stamp_us: Callable[[Key], int] = lambda _: 0

    # --- shards

    def adopt(self, owned: OwnedShard) -> None:
        """Raises OwnershipLost and StoreUnreachable."""
        found: dict[Key, Waiting] = {}
        if owned.counted(held_rows_of(self._operator)) > 0:
            for of, letter in lying.letters_in(self._scanned(owned)).items():
                key = hashable(letter.key)
                found[key] = (*found.get(key, ()), (of, letter))
        self._waiting[owned.shard] = found
        if found:
            self._holding.add(owned.shard)

    def release(self, shard: str) -> None:
        self._waiting.pop(shard, None)
        self._unsettled.pop(shard, None)
        self._holding.discard(shard)

    def waits(self, shard: str) -> bool:
        """Whether some key of the shard is held back."""
        return shard in self._holding

    def holds_any(self) -> bool:
        """Whether something waits of the shard at hand with the batch's commit."""
        if any(self._news.values()):
            return True
        return any(key not in self._news for key in self._shard)

    def holds(self, shard: str, key: Key) -> bool:
        """Whether this key of the shard is held back."""
        return shard in self._holding and key in self._waiting[shard]

    def next_us(self) -> int | None:
        """When a key of some shard is to be tried again; None where none waits."""
        if not self._holding:
            return None
        return min(
            waiting[0][1].due_us for shard in self._holding for waiting in self._waiting[shard].values()
        )

    def due_shards(self, now_us: int) -> list[str]:
        return [shard for shard in self._holding if self._due(self._waiting[shard], now_us)]

    def due_keys(self, shard: str, now_us: int) -> list[Key]:
        """The keys that are to be tried again now."""
        return self._due(self._waiting[shard], now_us)

    def _due(self, held: Mapping[Key, Waiting], now_us: int) -> list[Key]:
        return [key for key, waiting in held.items() if waiting[0][1].due_us <= now_us]

    # --- a batch

    def turn_to(self, owned: OwnedShard, now_us: int, stamp_us: Callable[[Key], int]) -> None:
        """A batch of this shard begins, perhaps anew. `stamp_us` says how old a key's rows are."""
        self._shard = self._waiting[owned.shard]
        self._news = self._unsettled[owned.shard] = {}
        self._made = 0
        self._commit = owned.number + 1
        self._now_us = now_us
        self.stamp_us = stamp_us

    def undone(self, shard: str) -> None:
        """What the batch that was worked last came to is given up."""
        self._unsettled.pop(shard, None)

    def settled(self, shard: str) -> None:
        """The commit of the batch that was worked last is applied."""
        news = self._unsettled.pop(shard, None)
        held = self._waiting.get(shard)
        if not news or held is None:
            return
        for key, waiting in news.items():
            if waiting:
                held[key] = waiting
            else:
                held.pop(key, None)
        if held:
            self._holding.add(shard)
        else:
            self._holding.discard(shard)

    # --- keys that change their shard

    def give_away(self, key: Key) -> list[Letter]:
        """What waits of a key that leaves the shard of the batch at hand; it waits here no more."""
        found = [letter for _, letter in self._of(key)]
        if found:
            self._news[key] = ()
        return found

    def take_in(self, key: Key, waiting: Iterable[Letter]) -> None:
        """What waited of a key elsewhere waits in the shard of the batch at hand, as it did there."""
        for letter in waiting:
            self._append(key, letter)

    # --- what is committed

    def writes(self, counts: dict[str, int], *, bounded: bool = True) -> list[StateWrite]:
        """What the batch's commit writes of it. Raises WorkFailed where too much waits and it is `bounded`:
        what a key brings along has been let in elsewhere."""
        writes: list[StateWrite] = []
        rows = 0
        for key, after in self._news.items():
            before, now = dict(self._shard.get(key, ())), dict(after)
            for of, letter in before.items():
                if of not in now:
                    body = lying.packed(letter)
                    written = lying.written(self._name, of, body)
                    writes += [StateWrite(write.collection, write.field, None) for write in written]
                    rows -= _weight(letter)
            for of, letter in now.items():
                if before.get(of) != letter:
                    writes += lying.written(self._name, of, lying.packed(letter))
                    rows += 0 if of in before else _weight(letter)
        if rows:
            counts[held_rows_of(self._operator)] = rows
        if bounded:
            self._check_room(writes)
        return writes

    @property
    def _name(self) -> str:
        return held_rows_of(self._operator)

    def _check_room(self, writes: Sequence[StateWrite]) -> None:
        new_bytes = sum(len(write.value or b"") for write in writes)
        if not new_bytes:
            return
        held_bytes = sum(
            len(lying.packed(letter)) for waiting in self._shard.values() for _, letter in waiting
        )
        if held_bytes + new_bytes > HELD_BYTES_MAX:
            raise WorkFailed(
                f"operator {self._operator}: more than {HELD_BYTES_MAX} bytes of rows wait to be tried "
                "again; give onError fewer attempts or a shorter backoff, or mend what the code fails on"
            )

    # --- calls

    def begin(self, state: ShardState, key: Key, rows: Sequence[Any], now_ms: int) -> None:
        if self._queued(key):
            self._queue(INITIAL, key, rows)
            return
        saved = state.savepoint(key)
        try:
            self._runner.begin(state, key, rows, now_ms)
        except UserCodeError as error:
            state.undo(saved)
            self._hold(INITIAL, key, rows, error)

    def run(
        self,
        state: ShardState,
        key: Key,
        rows: Sequence[Any],
        now_ms: int,
        held: Held = ONE_ROW,
        given: Iterable[Any] | None = None,
    ) -> list[tuple[Any, ...]]:
        if self._queued(key):
            self._queue(ROWS, key, rows)
            return []
        saved = state.savepoint(key)
        try:
            return self._runner.run(state, key, rows, now_ms, held, given)
        except UserCodeError as error:
            state.undo(saved)
            self._hold(ROWS, key, rows, error)
            return []

    def expire(
        self, state: ShardState, key: Key, expiry_ms: int, now_ms: int, held: Held = ONE_ROW
    ) -> list[tuple[Any, ...]]:
        if self._queued(key):
            self._queue(TIMER, key, (), expiry_ms)
            return []
        saved = state.savepoint(key)
        try:
            return self._runner.expire(state, key, expiry_ms, now_ms, held)
        except UserCodeError as error:
            state.undo(saved)
            self._hold(TIMER, key, (), error, expiry_ms)
            return []

    def again(self, state: ShardState, key: Key, now_ms: int, held: Held) -> list[tuple[int, list[Any]]]:
        """Try a key again: what comes out of each of those that waited, with how old it is.

        As far as the code takes them; the first one that it fails on again waits for longer, and all others
        behind it. Raises UserCodeError where that was the last attempt, and the operator fails then.
        """
        waiting = self._of(key)
        made: list[tuple[int, list[Any]]] = []
        while waiting:
            (of, letter), *rest = waiting
            saved = state.savepoint(key)
            try:
                with self._as_it_came(letter):
                    rows = self._call(state, key, letter, now_ms, held)
            except UserCodeError as error:
                state.undo(saved)
                attempts = letter.attempts + 1
                wait_ms = self._on_error.wait_ms(attempts)
                if wait_ms is not None:
                    due_us = self._now_us + wait_ms * 1000
                    kept = structs.replace(letter, attempts=attempts, due_us=due_us, error=str(error))
                    waiting = ((of, kept), *rest)
                    break
                if self._spared is None:
                    raise
                with self._as_it_came(letter):
                    rows = self._give_up(self._spared, state, key, letter, now_ms, held)
            made.append((min(letter.stamps_us, default=self._now_us), rows))
            waiting = tuple(rest)
        self._news[key] = waiting
        return made

    def refuse(self, state: ShardState, key: Key, refusing: RefusingCalls) -> None:
        """What waits of a key first is refused: nothing may call code for it."""
        (_, letter), *rest = self._of(key)
        if letter.kind == INITIAL:
            refusing.begin(state, key, letter.rows, 0)
        elif letter.kind == TIMER:
            refusing.expire(state, key, letter.expiry_ms or 0, 0)
        else:
            refusing.run(state, key, letter.rows, 0)
        self._news[key] = tuple(rest)

    def _call(
        self, state: ShardState, key: Key, letter: Letter, now_ms: int, held: Held
    ) -> list[tuple[Any, ...]]:
        if letter.kind == INITIAL:
            self._runner.begin(state, key, letter.rows, now_ms)
            return []
        if letter.kind == TIMER:
            return self._runner.expire(state, key, letter.expiry_ms or 0, now_ms, held)
        return self._runner.run(state, key, letter.rows, now_ms, held)

    @contextmanager
    def _as_it_came(self, letter: Letter) -> Iterator[None]:
        """The processor is told the watermark of when the rows came."""
        told_ms = self._runner.watermark_ms
        if letter.watermark_ms is not None:
            self._runner.watermark_ms = letter.watermark_ms
        try:
            yield
        finally:
            self._runner.watermark_ms = told_ms

    def _give_up(
        self, spared: SparedCalls, state: ShardState, key: Key, letter: Letter, now_ms: int, held: Held
    ) -> list[tuple[Any, ...]]:
        """All attempts are spent: what the code takes of it is worked, the rest becomes letters."""
        before = len(spared.refused)
        made: list[tuple[Any, ...]] = []
        if letter.kind == INITIAL:
            spared.begin(state, key, letter.rows, now_ms)
        elif letter.kind == TIMER:
            made = spared.expire(state, key, letter.expiry_ms or 0, now_ms, held)
        else:
            made = spared.run(state, key, letter.rows, now_ms, held)
        calls = letter.attempts + 1
        spared.refused[before:] = [one._replace(calls=calls) for one in spared.refused[before:]]
        return made

    def _of(self, key: Key) -> Waiting:
        news = self._news.get(key)
        return self._shard.get(key, ()) if news is None else news

    def _queued(self, key: Key) -> bool:
        return bool((self._shard or self._news) and self._of(key))

    def _hold(
        self, kind: str, key: Key, rows: Sequence[Any], error: UserCodeError, expiry_ms: int | None = None
    ) -> None:
        due_us = self._now_us + (self._on_error.wait_ms(1) or 0) * 1000
        self._put(key, kind, rows, expiry_ms, str(error), 1, due_us)

    def _queue(self, kind: str, key: Key, rows: Sequence[Any], expiry_ms: int | None = None) -> None:
        self._put(key, kind, rows, expiry_ms, "", 0, 0)

    def _put(
        self,
        key: Key,
        kind: str,
        rows: Sequence[Any],
        expiry_ms: int | None,
        error: str,
        attempts: int,
        due_us: int,
    ) -> None:
        stamps_us = [self.stamp_us(key)] * len(rows)
        told_ms = self._runner.watermark_ms
        letter = Letter(
            kind,
            list(key),
            list(rows),
            stamps_us,
            error,
            0,
            "",
            attempts,
            expiry_ms,
            due_us,
            None if told_ms < 0 else told_ms,
        )
        self._append(key, letter)

    def _append(self, key: Key, letter: Letter) -> None:
        self._news[key] = (*self._of(key), (LetterId(self._commit, self._made), letter))
        self._made += 1

    def _scanned(self, owned: OwnedShard) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        cursor = "0"
        while True:
            collection = lying.collection_of(self._name)
            answer: Any = self._load(
                Scan(owned.shard, owned.generation, owned.epoch, collection, cursor, _SCAN_FIELDS)
            )
            if not isinstance(answer, tuple):
                raise OwnershipLost(owned.shard, answer)
            cursor, fields = answer
            found.update(fields)
            if cursor == "0":
                return found


def _weight(letter: Letter) -> int:
    """How much it is among what waits: its rows, and one for a timer."""
    return max(1, len(letter.rows))
