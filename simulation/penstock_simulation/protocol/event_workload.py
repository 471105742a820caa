"""What a run by event time computes: windows that are counted when their watermark says that they are full.

Rows are those of `workload`, with an event time and with how many rows there are of their key in their
window, at `mid` and behind it at `end`. Within a partition event times go forward and back by at most
`DELAY_MS`, and each partition has its own speed: so no row is ever late. Neighbour: `event_code` has the
processors.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.dataflow.routing import Router
from penstock_simulation.protocol.workload import (
    CLASSES,
    KEYS,
    SHARDS,
    Counts,
    Fields,
    Partitions,
    Workload,
    make_partitions,
)
from penstock_worker.state import encoding
from penstock_worker.state.timers import timer_name

DELAY_MS = 30
WINDOW_MS = 64
STEP_US_MAX = 24_000
"""How far apart the rows of the fastest partitions are."""
START_US, END_US = 1_024_000, 16_384_000
FAR_END = 0.6
"""In so many partitions, 0..1, the last row comes long after the others: all windows before it end then."""
FIRED = 9
"""In the place of a part of a key: what timers put out. No key is called so."""
TimedRow = tuple[int, int, int, int, int, int]
"""Key, partition, number, event time, rows of its key in its window, rows of its class there behind `mid`."""


def window_end_ms(at_us: int) -> int:
    """The end of the tumbling window that a time is in."""
    return (at_us // (WINDOW_MS * 1000) + 1) * WINDOW_MS


def class_of(key: int) -> int:
    return CLASSES[KEYS.index(key) % len(CLASSES)]


def make_windowed(rng: random.Random, rows_max: int) -> Windowed:
    """A run's rows."""
    timed = {shard: _timed(rng, rows) for shard, rows in make_partitions(rng, rows_max).items()}
    of_key: Counter[tuple[int, int]] = Counter()
    for rows in timed.values():
        of_key.update((row[0], window_end_ms(row[3])) for row in rows)
    of_class: Counter[tuple[int, int]] = Counter()
    for (key, end_ms), count in of_key.items():
        # and what `mid` puts out of each of its windows
        of_class[class_of(key), end_ms] += count + 1
    return Windowed({
        shard: [
            (*row, of_key[row[0], window_end_ms(row[3])], of_class[class_of(row[0]), window_end_ms(row[3])])
            for row in rows
        ]
        for shard, rows in timed.items()
    })  # fmt: skip


def _timed(rng: random.Random, rows: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int, int]]:
    step_us = STEP_US_MAX * rng.random() ** 2
    at_us = START_US + rng.random() * 3 * WINDOW_MS * 1000
    timed = []
    for key, part, number in rows:
        at_us += step_us * 2 * rng.random()
        timed.append((key, part, number, int(at_us - DELAY_MS * 1000 * rng.random())))
    if rng.random() < FAR_END:
        timed[-1] = (*timed[-1][:3], END_US)
    return timed


class Windowed(Workload):
    """`rest_us` has for each partition the earliest event time of its rows from each position on."""

    def __init__(self, partitions: Partitions) -> None:
        super().__init__(partitions)
        self.end_ms = 0
        """The watermark when all partitions have ended, as their owners committed it (`ended`)."""
        self.rest_us = {shard: _least_from(rows) for shard, rows in partitions.items()}

    def end_of(self, shard: str) -> tuple[int, int]:
        """The least and the greatest watermark that a partition may end with: an owner that takes over knows
        the rows that it has read, the last one among them, and what was committed."""
        last, latest = self.partitions[shard][-1][3], max(row[3] for row in self.partitions[shard])
        return last // 1000 - DELAY_MS, latest // 1000 - DELAY_MS

    def ended(self, watermarks_ms: Iterable[int]) -> None:
        """All partitions have ended, with these watermarks."""
        self.end_ms = max(watermarks_ms)

    def truth(self) -> Mapping[str, Counts]:
        mid, end = Router(["int"], len(SHARDS.mid)), Router(["int"], len(SHARDS.end))
        truth: dict[str, Counts] = defaultdict(Counter)
        windows, class_windows = set(), set()
        for rows in self.partitions.values():
            for key, source, _, at_us, *_ in rows:
                truth[SHARDS.mid[mid.route((key,))]][key, source] += 1
                truth[SHARDS.end[end.route((class_of(key),))]][class_of(key), key] += 1
                if self.is_to_fire(window_end_ms(at_us) - 1):
                    windows.add((key, window_end_ms(at_us)))
        for key, end_ms in windows:
            truth[SHARDS.mid[mid.route((key,))]][key, FIRED] += 1
            truth[SHARDS.end[end.route((class_of(key),))]][class_of(key), key] += 1
            class_windows.add((class_of(key), end_ms))
        for class_, _ in class_windows:
            truth[SHARDS.end[end.route((class_,))]][class_, FIRED] += 1
        return truth

    def fired(self, shard: str, state: Fields) -> int:
        counts = self.counts_of(shard, state)
        return sum(number for (_, part), number in counts.items() if part == FIRED)

    def is_to_fire(self, due_ms: int) -> bool:
        return due_ms < self.end_ms

    def counts_of(self, shard: str, state: Fields) -> Counts:
        parts = (0, 1, FIRED) if shard in SHARDS.mid else (*KEYS, FIRED)
        values = state.get(b"", {})
        counts: Counts = Counter()
        for key in KEYS if shard in SHARDS.mid else CLASSES:
            if packed := values.get(_LAST + _PACKED[key]):
                numbers = zip(parts, _numbers(packed)[0], strict=True)
                counts.update({(key, part): number for part, number in numbers if number})
        return counts

    def wrong_marks(self, shard: str, state: Fields, timers: Mapping[bytes, int]) -> str:
        values = state.get(b"", {})
        counts = self.counts_of(shard, state)
        set_for: dict[bytes, int] = {}
        for key in KEYS if shard in SHARDS.mid else CLASSES:
            packed = _PACKED[key]
            rows = sum(n for (of, part), n in counts.items() if of == key and part != FIRED)
            done = _ints(values[_DONE + packed])[0] if _DONE + packed in values else 0
            windows = {
                _ints(end_ms)[0]: _ints(window)[0]
                for end_ms, window in state.get(_WINDOWS + packed, {}).items()
            }
            if done + sum(windows.values()) != rows:
                return f"of {rows} rows of key {key} {done} are in windows that fired, and {windows} are open"
            field = encoding.TIMERS + packed
            listed = _ints(values[field]) if field in values else []
            if listed != [end_ms - 1 for end_ms in sorted(windows)]:
                return f"key {key} lists timers {listed}, and has windows {windows}"
            set_for |= {timer_name(field, expiry_ms): expiry_ms for expiry_ms in listed}
        return "" if set_for == timers else f"timers are {timers}, and keys list {set_for}"


def _least_from(rows: Sequence[tuple[int, ...]]) -> list[float]:
    """The earliest event time from each row on; behind the last one there is none."""
    least = [float("inf")]
    for row in reversed(rows):
        least.append(min(least[-1], row[3]))
    return least[::-1]


_LAST = encoding.field_prefix(encoding.VALUE, "last")
_DONE = encoding.field_prefix(encoding.VALUE, "done")
_WINDOWS = encoding.field_prefix(encoding.MAP, "windows")
_PACKED = {number: encoding.pack((number,)) for number in range(10)}
_ints = msgspec.msgpack.Decoder(list[int]).decode
_numbers = msgspec.msgpack.Decoder(tuple[list[int]]).decode
