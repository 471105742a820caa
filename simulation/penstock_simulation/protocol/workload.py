"""What the simulated topology computes: rows, two keyed stages in a row, an outside sink, and the truth.

`src` reads partitions of (key, partition, number) rows, numbered by key and partition. `mid` counts the rows
of a key and sends (class of the key, key, number of the row) on. `end` does so by class and writes them to a
sink. Neighbours: `user_code` has the processors, `stages` the plan that the product's stages are made from.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import msgspec

from penstock.dataflow.routing import Router
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

    def all(self) -> tuple[str, ...]:
        return self.src + self.mid + self.end


SHARDS = Shards(
    src=("src/0", "src/1"), mid=("mid/0", "mid/1", "mid/2", "mid/3", "mid/4"), end=("end/0", "end/1")
)


def make_partitions(rng: random.Random, rows_max: int) -> dict[str, list[Row]]:
    """Source shard -> its rows: a few keys, some much more frequent than others."""
    partitions = {}
    for source, shard in enumerate(SHARDS.src):
        numbers: Counter[int] = Counter()
        rows = []
        for _ in range(1 + int(rng.random() * rows_max)):
            key = KEYS[int(len(KEYS) * rng.random() * rng.random())]
            numbers[key] += 1
            rows.append((key, source, numbers[key]))
        partitions[shard] = rows
    return partitions


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


def expected_state(partitions: Mapping[str, Sequence[Row]]) -> dict[str, Counts]:
    """What a run without faults ends with, by keyed shard."""
    mid, end = Router(["int"], len(SHARDS.mid)), Router(["int"], len(SHARDS.end))
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


def row_of_timer(expiry_ms: int) -> int:
    """Which row of its key set a timer; 0 for none."""
    return expiry_ms % TIMER_STEP_MS


Fields = Mapping[bytes, Mapping[bytes, bytes]]
"""A shard's state: collection -> field -> value; b"" is the value hash."""

_LAST = encoding.field_prefix(encoding.VALUE, "last")
_TOTAL = encoding.field_prefix(encoding.VALUE, "total")
_ODD = encoding.field_prefix(encoding.VALUE, "odd")
_THREES = encoding.field_prefix(encoding.MAP, "threes")
_FIRED = encoding.field_prefix(encoding.VALUE, "fired")
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


def wrong_marks(shard: str, state: Fields, timers: Mapping[bytes, int]) -> str:
    """What of a shard's state and timers does not go with its last numbers, "" for nothing."""
    values = state.get(b"", {})
    totals: Counter[int] = Counter()
    listed = set()
    for (key, _), number in counts_of(shard, state).items():
        totals[key] += number
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
        if sorted([*fired, *to_fire]) != list(range(1, total + 1)):
            return f"of key {key} at {total} timers {fired} have fired, and {to_fire} are set"
    if listed != timers.keys():
        return f"timers are {timers.keys()}, and keys list {listed}"
    return ""


def is_half_done(state: Fields) -> bool:
    """Whether a commit in several parts is being written down or carried out."""
    return bool(state.get(encoding.LARGE_COMMIT))


def _value(values: Mapping[bytes, bytes], field: bytes) -> int:
    return _ints(values[field])[0] if field in values else 0


class Workload:
    """What a run computes, and how that is looked for in what it leaves."""

    def __init__(self, partitions: Partitions) -> None:
        self.partitions = partitions

    def truth(self) -> Mapping[str, Counts]:
        """What a run without faults ends with, by keyed shard."""
        return expected_state(cast("Mapping[str, Sequence[Row]]", self.partitions))

    def counts_of(self, shard: str, state: Fields) -> Counts:
        """The last numbers in a shard's state."""
        return counts_of(shard, state)

    def wrong_marks(self, shard: str, state: Fields, timers: Mapping[bytes, int]) -> str:
        """What of a shard's state and timers does not go with its last numbers, "" for nothing."""
        return wrong_marks(shard, state, timers)

    def fired(self, shard: str, state: Fields) -> int:
        """How many timers of a shard have put something out."""
        return 0

    def is_to_fire(self, due_ms: int) -> bool:
        """Whether a timer fires when everything is worked off."""
        return True
