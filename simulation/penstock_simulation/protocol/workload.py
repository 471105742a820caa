"""What the simulated topology computes: rows, two keyed stages in a row, an outside sink, and the truth.

`src` reads partitions of (key, source, number) rows, numbered per key and source. `mid` counts them
and sends (class of key, mid part, number) on, numbered per class and part. `end` counts those
and writes them to a sink. Every stage knows which number must come next, so that a lost, doubled
or reordered row shows at once; user code "raises" then, like a processor that checks its input.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from penstock.store.port import Output, StateWrite, TimerWrite

COUNTED = "worked"
"""By this name rows are counted with the commits."""
SINK = "files"
ROW_BYTES = 3
_CLASSES = 2


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


SHARDS = Shards(src=("src/0", "src/1"), mid=("mid/0", "mid/1", "mid/2"), end=("end/0", "end/1"))


def rows_of(payload: bytes) -> list[bytes]:
    """The rows of an entry, three bytes each."""
    return [payload[i : i + ROW_BYTES] for i in range(0, len(payload), ROW_BYTES)]


def make_partitions(rng: random.Random, rows_max: int) -> dict[str, list[bytes]]:
    """Source shard -> its rows: a few keys, some much more frequent than others."""
    partitions = {}
    for source, shard in enumerate(SHARDS.src):
        numbers: Counter[int] = Counter()
        rows = []
        for _ in range(1 + int(rng.random() * rows_max)):
            key = int(5 * rng.random() * rng.random())
            numbers[key] += 1
            rows.append(bytes((key, source, numbers[key])))
        partitions[shard] = rows
    return partitions


def source_outputs(rows: list[bytes]) -> tuple[Output, ...]:
    """Outputs of a source batch: one entry per target shard, rows in order."""
    by_target: dict[str, bytes] = {}
    for row in rows:
        target = SHARDS.mid[row[0] % len(SHARDS.mid)]
        by_target[target] = by_target.get(target, b"") + row
    return tuple(Output(t, p, len(p) // ROW_BYTES) for t, p in by_target.items())


State = dict[bytes, bytes | None]


def fields_of(shard: str, rows: list[bytes]) -> set[bytes]:
    """The state fields that working on `rows` reads and writes."""
    fields = {row[:2] for row in rows}
    if shard in SHARDS.mid:
        fields |= {_class_field(row[0]) for row in rows}
    return fields


def work(shard: str, rows: list[bytes], state: State) -> tuple[State, tuple[Output, ...]]:
    """Work on the rows of a keyed shard: changed state and outputs. Raises OutOfOrder.

    `state` holds `fields_of(shard, rows)`; it is not changed.
    """
    changed: State = {}
    by_target: dict[str, bytes] = {}
    mid_part = SHARDS.mid.index(shard) if shard in SHARDS.mid else None
    for row in rows:
        _advance(shard, state, changed, row[:2], row[2])
        if mid_part is not None:
            name = _class_field(row[0])
            number = _number(state, changed, name) + 1
            changed[name] = bytes((number,))
            class_ = row[0] % _CLASSES
            target = SHARDS.end[class_]
            by_target[target] = by_target.get(target, b"") + bytes((class_, mid_part, number))
        else:
            by_target[SINK] = by_target.get(SINK, b"") + row
    outputs = tuple(
        Output(target, payload, len(payload) // ROW_BYTES, external=target == SINK)
        for target, payload in by_target.items()
    )
    return changed, outputs


def _class_field(key: int) -> bytes:
    return bytes((255, key % _CLASSES))


def _number(state: State, changed: State, name: bytes) -> int:
    value = changed[name] if name in changed else state[name]
    return value[0] if value else 0


def _advance(shard: str, state: State, changed: State, name: bytes, number: int) -> None:
    last = _number(state, changed, name)
    if number != last + 1:
        raise OutOfOrder(f"{shard}: row {number} of {tuple(name)} after {last}")
    changed[name] = bytes((number,))


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


def expected_state(partitions: dict[str, list[bytes]]) -> dict[str, Counter[tuple[int, int]]]:
    """What a run without faults ends with: shard -> {(key or class, source or part): last number}."""
    truth: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    for rows in partitions.values():
        for key, source, _ in rows:
            part = key % len(SHARDS.mid)
            truth[SHARDS.mid[part]][key, source] += 1
            truth[SHARDS.end[key % _CLASSES]][key % _CLASSES, part] += 1
    return truth


def counts_of(state: dict[tuple[bytes, bytes], bytes]) -> Counter[tuple[int, int]]:
    """The counts in a shard's state, as `expected_state` gives them."""
    return Counter(
        {
            (name[0], name[1]): value[0]
            for (collection, name), value in state.items()
            if not collection and name[0] != 255
        }
    )


def marks(changed: State) -> tuple[StateWrite, ...]:
    """What else a commit writes for the last numbers that it changed, so that fields and whole collections
    come and go: which numbers are odd, and of each the numbers since the last that three divides."""
    writes = []
    for name, value in changed.items():
        number = value[0] if value else 0
        writes.append(StateWrite(_ODD, name, b"odd" if number % 2 else None))
        writes.append(StateWrite(_THREES + name, None, None))
        writes += [StateWrite(_THREES + name, bytes((n,)), b"") for n in _since_three(number)]
    return tuple(writes)


def marking_timers(changed: State) -> tuple[TimerWrite, ...]:
    """Likewise a timer for each last number that is odd."""
    return tuple(
        TimerWrite(name, value[0] if value and value[0] % 2 else None) for name, value in changed.items()
    )


def wrong_marks(state: dict[bytes, dict[bytes, bytes]], timers: dict[bytes, int]) -> str:
    """What of a shard's marks does not go with its last numbers, "" for nothing."""
    numbers = {name: value[0] for name, value in state.get(b"", {}).items()}
    odd = {name: number for name, number in numbers.items() if number % 2}
    if state.get(_ODD, {}).keys() != odd.keys():
        return f"{sorted(state.get(_ODD, {}))} are marked as odd, not {sorted(odd)}"
    if timers != odd:
        return f"timers are {timers}, not {odd}"
    for name, number in numbers.items():
        kept = {n for (n,) in state.get(_THREES + name, {})}
        if kept != set(_since_three(number)):
            return f"{name!r} has kept {kept} at {number}"
    return ""


_ODD = b"odd"
_THREES = b"threes"


def _since_three(number: int) -> range:
    return range(number - number % 3 + 1, number + 1)


def counts_in(content: bytes) -> Counter[tuple[int, int]]:
    """The rows in a sink's file, as `expected_state` counts them. Raises OutOfOrder."""
    counts: Counter[tuple[int, int]] = Counter()
    for class_, part, number in rows_of(content):
        counts[class_, part] += 1
        if counts[class_, part] != number:
            raise OutOfOrder(f"sink: row {number} of {(class_, part)} in place {counts[class_, part]}")
    return counts
