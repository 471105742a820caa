"""What the simulated topology computes: rows, two keyed stages in a row, an outside sink, and the truth.

`src` reads partitions of (key, partition, number) rows, numbered by key and partition. `mid` counts the rows
of a key and sends (class of the key, key, number of the row) on. `end` does so by class and writes them to a
sink. In some runs `mid` begins with initial rows of the same form, from partitions of their own. Neighbours:
`user_code` has the processors, `topologies` the plan that the product's stages are made from.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import msgspec

from penstock.dataflow.on_error import rows_held
from penstock.dataflow.routing import Router
from penstock.store.letters import TIMER, Letter, letters_in, operator_of
from penstock_simulation.protocol.layout import IN_A_ROW, WITH_INITIAL
from penstock_worker.state import encoding
from penstock_worker.state.timers import timer_name

SINK = "files"
KEYS = (1, 2, 0, 8, 4, 6)
CLASSES = (0, 2)
"""Chosen so that each shard has some."""
Row = tuple[int, int, int]
Partitions = Mapping[str, Sequence[tuple[int, ...]]]
"""Source shard -> its rows."""


class OutOfOrder(Exception):
    """User code met a row that cannot be the next one."""


@dataclass(frozen=True, slots=True)
class Shards:
    """Names of all shards of a simulated topology, by operator."""

    src: tuple[str, ...]
    mid: tuple[str, ...]
    end: tuple[str, ...]
    initial: tuple[str, ...]
    side: tuple[str, ...]


SHARDS = Shards(
    src=("src/0", "src/1"),
    mid=("mid/0", "mid/1", "mid/2", "mid/3", "mid/4"),
    end=("end/0", "end/1"),
    initial=("mid-initial/0", "mid-initial/1"),
    side=("side/0",),
)
BEGUN = 20
"""In the place of a part of a key, with a partition of initial rows added: what `mid` began with."""
INITIAL_ROWS_MAX = 8
"""Of a partition."""


def make_partitions(
    rng: random.Random, rows_max: int, shards: Sequence[str] = SHARDS.src
) -> dict[str, list[Row]]:
    """Source shard -> its rows: a few keys, some much more frequent than others."""
    partitions = {}
    for source, shard in enumerate(shards):
        numbers: Counter[int] = Counter()
        rows = []
        for _ in range(1 + int(rng.random() * rows_max)):
            key = KEYS[int(len(KEYS) * rng.random() * rng.random())]
            numbers[key] += 1
            rows.append((key, source, numbers[key]))
        partitions[shard] = rows
    return partitions


def make_initial(rng: random.Random) -> dict[str, list[Row]]:
    """Source shard -> the rows of it that `mid` begins with."""
    return make_partitions(rng, INITIAL_ROWS_MAX, SHARDS.initial)


@dataclass(slots=True)
class Sink:
    """A file of an outside sink: bytes at positions, written by whoever owns, or owned, the shard."""

    content: bytearray = field(default_factory=bytearray)

    def write(self, position: int, payload: bytes) -> str:
        """Put bytes at a position; answers what is wrong with that, "" for nothing."""
        there = bytes(self.content[position : position + len(payload)])
        if position > len(self.content):
            return f"a hole before byte {position} of a file of {len(self.content)} bytes"
        if there != payload[: len(there)]:
            return f"other bytes at byte {position} than were written there before"
        self.content[position : position + len(payload)] = payload
        return ""


Counts = Counter[tuple[int, int]]
"""The last number by (key, part of it)."""


def expected_state(
    partitions: Mapping[str, Sequence[Row]], mid: Router | None = None, end: Router | None = None
) -> dict[str, Counts]:
    """What a run without faults ends with, by keyed shard; rows go by hash, or as is given."""
    mid, end = mid or Router(["int"], len(SHARDS.mid)), end or Router(["int"], len(SHARDS.end))
    truth: dict[str, Counts] = defaultdict(Counter)
    for rows in partitions.values():
        for key, source, _ in rows:
            truth[SHARDS.mid[mid.route((key,))]][key, source] += 1
            class_ = CLASSES[KEYS.index(key) % len(CLASSES)]
            truth[SHARDS.end[end.route((class_,))]][class_, key] += 1
    return truth


def counts_in(content: bytes) -> Counts:
    """The rows in a sink's file, as `expected_state` counts them. Raises OutOfOrder."""
    counts: Counts = Counter()
    for start in range(0, len(content), 3):
        class_, key, number = content[start : start + 3]
        counts[class_, key] += 1
        if counts[class_, key] != number:
            raise OutOfOrder(f"sink: row {number} of {(class_, key)} in place {counts[class_, key]}")
    return counts


# --- what the processors left in a shard's state ------------------------------------------------------

TIMER_STEP_MS = 128
"""A timer's expiry is a multiple of this, and the number of the row that set it; 0 for one that a row takes
away again, mostly."""
TIMERS_MAX = 12
"""Of one key at a time; what lists them is to fit a small commit."""
INITIAL_TIMER = 101
"""Above all numbers of rows."""
INITIAL_TIMERS_MAX = 4


def row_of_timer(expiry_ms: int) -> int:
    """Which row of its key set a timer; 0 for none."""
    return expiry_ms % TIMER_STEP_MS


def initial_timers(begun: int) -> range:
    """The same of the timers that so many initial rows of a key set: the first of them do."""
    return range(INITIAL_TIMER, INITIAL_TIMER + min(begun, INITIAL_TIMERS_MAX))


Fields = Mapping[bytes, Mapping[bytes, bytes]]
"""A shard's state: collection -> field -> value; b"" is the value hash."""

_LAST = encoding.field_prefix(encoding.VALUE, "last")
_TOTAL = encoding.field_prefix(encoding.VALUE, "total")
_ODD = encoding.field_prefix(encoding.VALUE, "odd")
_THREES = encoding.field_prefix(encoding.MAP, "threes")
_FIRED = encoding.field_prefix(encoding.VALUE, "fired")
_BEGUN = encoding.field_prefix(encoding.VALUE, "begun")
_PACKED = {number: encoding.pack((number,)) for number in range(256)}
_int = msgspec.msgpack.Decoder(int).decode
_ints = msgspec.msgpack.Decoder(tuple[int]).decode
_listed = msgspec.msgpack.Decoder(list[int]).decode
_numbers = msgspec.msgpack.Decoder(tuple[list[int]]).decode


def counts_of(shard: str, state: Fields) -> Counts:
    """The last numbers in a shard's state."""
    parts = (0, 1) if shard in SHARDS.mid else KEYS
    counts: Counts = Counter()
    for key in KEYS if shard in SHARDS.mid else CLASSES:
        if packed := state.get(b"", {}).get(_LAST + _PACKED[key]):
            for part, number in zip(parts, _numbers(packed)[0], strict=True):
                if number:
                    counts[key, part] = number
    return counts


def begun_of(shard: str, state: Fields) -> Counts:
    """The last numbers of the initial rows in a shard's state."""
    counts: Counts = Counter()
    for key in KEYS if shard in SHARDS.mid else ():
        if packed := state.get(b"", {}).get(_BEGUN + _PACKED[key]):
            for partition in range(len(SHARDS.initial)):
                if number := _numbers(packed)[0][partition]:
                    counts[key, BEGUN + partition] = number
    return counts


def expected_begun(initial: Partitions) -> dict[str, Counts]:
    """What `begun_of` ends with, by keyed shard."""
    mid = Router(["int"], len(SHARDS.mid))
    truth: dict[str, Counts] = defaultdict(Counter)
    for rows in initial.values():
        for key, partition, *_ in rows:
            truth[SHARDS.mid[mid.route((key,))]][key, BEGUN + partition] += 1
    return truth


def wrong_marks(shard: str, state: Fields, timers: Mapping[bytes, int]) -> str:
    """What of a shard's state and timers does not go with its last numbers, "" for nothing."""
    values = state.get(b"", {})
    totals: Counter[int] = Counter()
    listed = set()
    for (key, _), number in counts_of(shard, state).items():
        totals[key] += number
    begun: Counter[int] = Counter()
    for (key, _), number in begun_of(shard, state).items():
        begun[key] += number
    for key in KEYS if shard in SHARDS.mid else CLASSES:
        total, packed = totals[key], _PACKED[key]
        if (found := _value(values, _TOTAL + packed)) != total:
            return f"{found} rows of key {key} are counted, not {total}"
        if (found := _value(values, _ODD + packed)) != (total if total % 2 else 0):
            return f"{found} is marked as odd of key {key} at {total}"
        kept = {_ints(n)[0] for n in state.get(_THREES + packed, {})}
        if kept != set(range(total - total % 3 + 1, total + 1)):
            return f"key {key} has kept {kept} at {total}"
        if len(kept) != (_int(values[_THREES + packed]) if _THREES + packed in values else 0):
            return f"key {key} has kept {kept}, and another number of them noted"
        field = encoding.TIMERS + packed
        expiries = _listed(values[field]) if field in values else []
        listed |= {timer_name(field, expiry_ms) for expiry_ms in expiries}
        fired = _numbers(values[_FIRED + packed])[0] if _FIRED + packed in values else []
        to_fire = [row for row in map(row_of_timer, expiries) if row]
        if sorted([*fired, *to_fire]) != [*range(1, total + 1), *initial_timers(begun[key])]:
            return f"of key {key} at {total} timers {fired} have fired, and {to_fire} are set"
    waiting = held_timers(state)
    # A key's rows may have deleted one that waits behind them.
    if not timers.keys() <= listed <= timers.keys() | waiting:
        return f"timers are {timers.keys()}, {waiting} wait to be tried again, and keys list {listed}"
    return ""


def held_back(state: Fields) -> list[Letter]:
    """What waits to be tried again."""
    return [
        letter
        for collection, fields in state.items()
        if rows_held({operator_of(collection) or "": 1})
        for letter in letters_in(fields).values()
    ]


def held_timers(state: Fields) -> set[bytes]:
    """The names of timers that fired and wait behind their key: it lists them, and no store has them."""
    return {
        timer_name(encoding.TIMERS + encoding.pack(letter.key), letter.expiry_ms or 0)
        for letter in held_back(state)
        if letter.kind == TIMER
    }


def is_half_done(state: Fields) -> bool:
    """Whether a commit in several parts is being written down or carried out."""
    return bool(state.get(encoding.LARGE_COMMIT))


def _value(values: Mapping[bytes, bytes], field: bytes) -> int:
    return _ints(values[field])[0] if field in values else 0


class Workload:
    """What a run computes, and how that is looked for in what it leaves. `partitions` are rows of sources,
    `initial` those that `mid` begins with."""

    sink_shards: tuple[str, ...] = SHARDS.end

    def __init__(self, partitions: Partitions, initial: Partitions | None = None) -> None:
        self.partitions = partitions
        self.initial = initial or {}
        self.layout = WITH_INITIAL if initial else IN_A_ROW

    def rests_until(self, shard: str, position: int, now_us: int) -> int:
        """Until when a partition gives no rows from this position on; 0 for not at all."""
        return 0

    def read_upto(self, shard: str, position: int) -> int:
        """How far its rows may be read at once from there."""
        return len(self.rows(shard))

    def rows(self, shard: str) -> Sequence[tuple[int, ...]]:
        """Of a partition, whatever it is read for."""
        return self.initial[shard] if shard in self.initial else self.partitions[shard]

    def truth(self) -> Mapping[str, Counts]:
        """What a run without faults ends with, by keyed shard: in its state, and of `sink_shards` outside."""
        truth = expected_state(cast("Mapping[str, Sequence[Row]]", self.partitions))
        for shard, counts in expected_begun(self.initial).items():
            truth[shard].update(counts)
        return truth

    def counts_of(self, shard: str, state: Fields) -> Counts | None:
        """The last numbers in a shard's state; None where it is to have none in the end."""
        return counts_of(shard, state) + begun_of(shard, state)

    def counts_outside(self, content: bytes) -> Counts:
        """The same of a sink. Raises OutOfOrder."""
        return counts_in(content)

    def wrong_outside(self, sinks: Mapping[str, bytes]) -> str:
        """What of the sinks' files is not the truth, "" for nothing. Raises OutOfOrder."""
        truth = self.truth()
        for shard, content in sinks.items():
            if (counts := self.counts_outside(content)) != truth[shard]:
                return f"sink of {shard} has {dict(counts)}, not {dict(truth[shard])}"
        return ""

    def wrong_marks(self, shard: str, state: Fields, timers: Mapping[bytes, int]) -> str:
        """What of a shard's state and timers does not go with its last numbers, "" for nothing."""
        return wrong_marks(shard, state, timers)

    def put_out(self, shard: str, rows: int, state: Fields, outside: bytes) -> int:
        """How many rows a keyed shard has put out when so many are behind it; `outside` is its sink."""
        waiting = sum(len(letter.rows) for letter in held_back(state))
        return rows - begun_of(shard, state).total() - waiting

    def counted_with(self, shard: str) -> str:
        """Shards of the same name put out together what they have had together."""
        return shard

    def is_to_fire(self, due_ms: int) -> bool:
        """Whether a timer fires when everything is worked off."""
        return True
