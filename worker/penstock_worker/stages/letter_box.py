"""The dead letters of one task's shards: what the commits of a stage write of them, and what is ordered.

Those for the topology's sink of dead letters become outputs (`send`), all others are kept (`writes`).

How many letters an operator has in a shard is read when the first one comes, and known from then on, as far
as commits are settled. Neighbours: `penstock.store.letters` says how they lie, `keyed_stage` and
`source_stage` bring them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from penstock.dataflow.letter_columns import LETTER_SCHEMA
from penstock.dataflow.on_error import FAILS
from penstock.dataflow.partitions import shard_name
from penstock.dataflow.plan import Stage
from penstock.dataflow.sink import Sink
from penstock.store import letters as lying
from penstock.store.dead_letters import Place
from penstock.store.letters import Kept, Letter, LetterId
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import Load, Scan, StateWrite
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.stages.work import WorkFailed
from penstock_worker.values.letter_rows import InputRecord, LetterRows
from penstock_worker.values.rows import WireRow

_LOG = logging.getLogger(__name__)

LETTER_BYTES_MAX = 64 << 20
"""Of one operator in one shard."""
ERROR_CHARACTERS_MAX = 4000


class Ordered(NamedTuple):
    """What somebody wants to be done with a letter (`lying.REPLAY`, `lying.DROP`), and the letter; None where
    it is not there, or not any more. Without a `head` it came with the order, and lies nowhere yet."""

    doing: str
    operator: str
    of: LetterId
    head: bytes
    letter: Letter | None

    @property
    def replayed(self) -> Letter | None:
        return self.letter if self.doing == lying.REPLAY else None


class LetterBox:
    """`load` reads the store."""

    def __init__(self, stage: Stage, load: Callable[[Load | Scan], object]) -> None:
        self.policies = stage.policies
        self._load = load
        self._sink = stage.dead_letters
        self._rows = LetterRows(stage)
        self._kept: dict[tuple[str, str], Kept] = {}
        self._news: dict[str, dict[str, Kept]] = {}
        """Shard -> operator -> how many there are with the commit that was made last."""

    def release(self, shard: str) -> None:
        self._news.pop(shard, None)
        for operator in self.policies:
            self._kept.pop((shard, operator), None)

    def undone(self, shard: str) -> None:
        """The commit that was made last is none."""
        self._news.pop(shard, None)

    def settled(self, shard: str) -> None:
        """The commit that was made last is applied."""
        for operator, kept in self._news.pop(shard, {}).items():
            before = self._kept.get((shard, operator), Kept())
            self._kept[shard, operator] = kept
            if len(str(kept.letters)) > len(str(before.letters)) or before.letters == 0 < kept.letters:
                # At the first one, at ten, at a hundred: a log is no place for each.
                told = "operator %s has %d dead letters in %s: see 'penstock dead-letters list'"
                _LOG.warning(told, operator, kept.letters, shard)

    def send(
        self,
        owned: OwnedShard,
        letters: Sequence[tuple[str, Letter]],
        now_us: int,
        at_ms: int,
        place: str,
        into: OutputBatch,
        counts: dict[str, int],
        input_record: InputRecord | None = None,
    ) -> list[tuple[str, Letter]]:
        """Have those letters of operators that are for the sink go out with the next commit of a shard;
        answers the others, which that commit writes (`writes`). `input_record` says what input is that was no
        row."""
        staying: list[tuple[str, Letter]] = []
        going: list[tuple[str, Letter]] = []
        for operator, letter in letters:
            is_going = self.policies.get(operator, FAILS).to_sink
            (going if is_going else staying).append((operator, _whole(letter, at_ms, place)))
        if self._sink is None or not going:
            return staying
        number = owned.number + 1
        too_large: list[tuple[str, Letter]] = []
        # Behind those that stay: no two letters of a commit are called the same.
        first = len(letters)
        for place_in_commit, (operator, letter) in enumerate(going, first):
            called = Place(operator, owned.shard, LetterId(number, place_in_commit))
            rows = self._rows.of(called, letter, input_record)
            if rows is None:
                too_large.append((operator, letter))
            else:
                _put(self._sink, rows, now_us, into, counts)
        return staying + too_large

    def writes(
        self,
        owned: OwnedShard,
        letters: Sequence[tuple[str, Letter]],
        at_ms: int,
        place: str,
        done: Ordered | None = None,
    ) -> list[StateWrite]:
        """What the next commit of a shard writes: new letters of operators, and that `done` is no more.

        Raises WorkFailed where there is no room for one, OwnershipLost and StoreUnreachable.
        """
        news: dict[str, Kept] = {}
        writes: list[StateWrite] = []
        if done is not None and done.letter is not None and done.head:
            kept = self._counted(owned, done.operator)
            news[done.operator] = _changed(kept, -1, done.letter, -_size_of(done))
            writes += lying.removed(done.operator, done.of, done.head)
        for place_in_commit, (operator, letter) in enumerate(letters):
            kept = news.get(operator) or self._counted(owned, operator)
            whole = _whole(letter, at_ms, place)
            body = lying.packed(whole)
            self._check_room(owned.shard, operator, kept, len(body), whole)
            news[operator] = _changed(kept, 1, whole, len(body))
            writes += lying.written(operator, LetterId(owned.number + 1, place_in_commit), body)
        writes += [lying.counted(operator, kept) for operator, kept in news.items()]
        self._news[owned.shard] = news
        return writes

    def kept_again(self, owned: OwnedShard, order: Ordered, error: str, at_ms: int) -> list[StateWrite]:
        """What the next commit writes of a letter on which the code has raised once more."""
        letter = order.letter
        if letter is None:
            raise RuntimeError(f"no letter {order.of} of {order.operator}")
        again = structs.replace(
            _whole(letter, at_ms, letter.place),
            error=bounded(error),
            at_ms=at_ms,
            attempts=letter.attempts + 1,
        )
        body = lying.packed(again)
        kept = self._counted(owned, order.operator)
        if not order.head:
            # Nobody else has it any more: it is kept, also above the bound.
            self._news[owned.shard] = {order.operator: _changed(kept, 1, again, len(body))}
            return [
                *lying.written(order.operator, order.of, body),
                lying.counted(order.operator, self._news[owned.shard][order.operator]),
            ]
        news = kept._replace(size_bytes=kept.size_bytes + len(body) - _size_of(order))
        self._news[owned.shard] = {order.operator: news}
        written = lying.written(order.operator, order.of, body)
        fields = {write.field for write in written}
        before = lying.removed(order.operator, order.of, order.head)
        return [
            *written,
            *(write for write in before if write.field not in fields),
            lying.counted(order.operator, news),
        ]

    def ordered(self, owned: OwnedShard, payload: bytes) -> Ordered:
        """What an order in the shard's inbox is about. Raises OwnershipLost and StoreUnreachable."""
        carried = lying.carried_by(payload)
        if carried is not None:
            return Ordered(lying.REPLAY, carried.operator, LetterId(owned.number + 1, 0), b"", carried.letter)
        doing, order = lying.decode_order(payload)
        operator, of = order.operator, order.letter
        if operator not in self.policies:
            return Ordered(doing, operator, of, b"", None)
        (head,) = self._read(owned, operator, [lying.head_field(of)])
        if head is None:
            return Ordered(doing, operator, of, b"", None)
        pieces = self._read(owned, operator, lying.part_fields(of, head))
        body = lying.body_of(head, (piece or b"" for piece in pieces))
        return Ordered(doing, operator, of, head, lying.decode_letter(body))

    def _counted(self, owned: OwnedShard, operator: str) -> Kept:
        known = self._kept.get((owned.shard, operator))
        if known is None:
            (raw,) = self._read(owned, operator, [lying.COUNTED])
            known = self._kept[owned.shard, operator] = lying.decode_kept(raw)
        return known

    def _read(self, owned: OwnedShard, operator: str, fields: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = []
        collection = lying.collection_of(operator)
        while len(found) < len(fields):
            wanted = tuple(fields[len(found) :])
            answer: Any = self._load(Load(owned.shard, owned.generation, owned.epoch, collection, wanted))
            if not isinstance(answer, list):
                raise OwnershipLost(owned.shard, answer)
            found += answer
        return found

    def _check_room(self, shard: str, operator: str, kept: Kept, size_bytes: int, letter: Letter) -> None:
        keep = self.policies.get(operator, FAILS).keep
        if kept.letters < keep and kept.size_bytes + size_bytes <= LETTER_BYTES_MAX:
            return
        held = f"{kept.letters} dead letters with {kept.size_bytes} bytes"
        raise WorkFailed(
            f"{letter.error}\nThere is no room for it as a dead letter: shard {shard} keeps {held} of "
            f"operator {operator}, and may keep {keep} (onError.keep) with {LETTER_BYTES_MAX} bytes. See "
            "'penstock dead-letters list', mend the cause, and replay or drop them; or raise onError.keep"
        )


def _put(sink: Sink, rows: Sequence[WireRow], now_us: int, into: OutputBatch, counts: dict[str, int]) -> None:
    """Have rows go to the sink of dead letters. They are as old as the failure: how long a row was tried
    before is not the sink's latency."""
    if sink.is_stage:
        stamps_us, gathered = into.target(shard_name(sink.name, "0"), LETTER_SCHEMA.names)
    else:
        counts[sink.name] = counts.get(sink.name, 0) + len(rows)
        stamps_us, gathered = into.external(sink.name, LETTER_SCHEMA.names)
    stamps_us.extend([now_us] * len(rows))
    gathered.extend(rows)


def bounded(text: str) -> str:
    """A text for people, cut in the middle where it is very long."""
    if len(text) <= ERROR_CHARACTERS_MAX:
        return text
    half = ERROR_CHARACTERS_MAX // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters ...\n{text[-half:]}"


def _whole(letter: Letter, at_ms: int, place: str) -> Letter:
    """With when and where, and an error that people can read and stores can hold."""
    return structs.replace(
        letter, at_ms=letter.at_ms or at_ms, place=letter.place or place, error=bounded(letter.error)
    )


def _changed(kept: Kept, letters: int, letter: Letter, size_bytes: int) -> Kept:
    return Kept(
        max(0, kept.letters + letters),
        max(0, kept.rows + letters * len(letter.rows)),
        max(0, kept.size_bytes + size_bytes),
    )


def _size_of(order: Ordered) -> int:
    return len(lying.packed(order.letter)) if order.letter is not None else 0
