"""What a run by event time computes: windows that are counted when their watermark says that they are full.

Rows are those of `workload`, with an event time and with how many rows there are of their key in their
window, at `mid` and behind it at `end`. Within a partition event times go forward and back by at most
`DELAY_MS`, and each partition has its own speed: so no row is ever late, also of one that rests for a
while. Neighbour: `event_code` has the processors.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    begun_of,
    expected_begun,
    held_timers,
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
AT = 3
"""The column with the event time."""
INITIAL_MS = 1
"""A timer that an initial row sets: any watermark is behind it."""
IDLE_MS = 60
"""A partition that gives no rows for so long is idle, in runs where one rests."""
REST_US_MAX = 400_000
TimedRow = tuple[int, ...]
"""Key, partition, number, event time; of windows also rows of its key in its window, and rows of its class
there behind `mid`."""


def window_end_ms(at_us: int) -> int:
    """The end of the tumbling window that a time is in."""
    return (at_us // (WINDOW_MS * 1000) + 1) * WINDOW_MS


def class_of(key: int) -> int:
    return CLASSES[KEYS.index(key) % len(CLASSES)]


@dataclass(frozen=True, slots=True)
class ByEventTime:
    """A stage that goes by event time: its shards, those that send to it, and those that it sends to."""

    shards: tuple[str, ...]
    producers: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resting:
    """A partition that gives no rows from a position on for so long, and is idle meanwhile. What comes behind
    it comes behind all rows of the others, so that it is not late."""

    shard: str
    position: int
    for_us: int


def drawn_rest(rng: random.Random, timed: Mapping[str, Sequence[TimedRow]]) -> Resting | None:
    """Of one of the partitions; None where that is too short."""
    shard = list(timed)[int(rng.random() * len(timed))]
    if len(timed[shard]) < 2:
        return None
    position = 1 + int(rng.random() * (len(timed[shard]) - 1))
    return Resting(shard, position, IDLE_MS * 1000 + int(rng.random() * REST_US_MAX))


def behind_all(
    timed: Mapping[str, Sequence[TimedRow]], rest: Resting, at: int
) -> dict[str, Sequence[TimedRow]]:
    """The rows, those of the resting partition behind its rest so late that no other watermark is beyond.
    Their event time is at the column `at`."""
    latest_us = max(row[at] for rows in timed.values() for row in rows)
    rows = timed[rest.shard]
    by_us = latest_us + DELAY_MS * 1000 - min(row[at] for row in rows[rest.position :])
    back = [(*row[:at], row[at] + by_us, *row[at + 1 :]) for row in rows[rest.position :]]
    return {**timed, rest.shard: [*rows[: rest.position], *back]}


def make_windowed(
    rng: random.Random, rows_max: int, *, resting: bool = False, initial: Partitions | None = None
) -> Windowed:
    """A run's rows; `resting` and `initial` as `Windowed` has them."""
    timed: Mapping[str, Sequence[TimedRow]] = {
        shard: _timed(rng, rows) for shard, rows in make_partitions(rng, rows_max).items()
    }
    rest = drawn_rest(rng, timed) if resting else None
    if rest is not None:
        timed = behind_all(timed, rest, AT)
    of_key: Counter[tuple[int, int]] = Counter()
    for rows in timed.values():
        of_key.update((row[0], window_end_ms(row[3])) for row in rows)
    of_class: Counter[tuple[int, int]] = Counter()
    for (key, end_ms), count in of_key.items():
        # and what `mid` puts out of each of its windows
        of_class[class_of(key), end_ms] += count + 1
    whole = {
        shard: [
            (*row, of_key[row[0], window_end_ms(row[3])], of_class[class_of(row[0]), window_end_ms(row[3])])
            for row in rows
        ]
        for shard, rows in timed.items()
    }
    return Windowed(whole, initial, rest)


def _timed(rng: random.Random, rows: Sequence[tuple[int, int, int]]) -> list[TimedRow]:
    step_us = STEP_US_MAX * rng.random() ** 2
    at_us = START_US + rng.random() * 3 * WINDOW_MS * 1000
    timed: list[TimedRow] = []
    for key, part, number in rows:
        at_us += step_us * 2 * rng.random()
        timed.append((key, part, number, int(at_us - DELAY_MS * 1000 * rng.random())))
    if rng.random() < FAR_END:
        timed[-1] = (*timed[-1][:3], END_US)
    return timed


class Timed(Workload):
    """Whose stages go by event time, in order `stages`; partitions have it at the column `at`, and what comes
    to keyed stages at `at_behind`. `rest_us` has for each partition the earliest event time of its rows from
    each position on."""

    stages: tuple[ByEventTime, ...]
    at: int
    at_behind: int

    def __init__(
        self, partitions: Partitions, initial: Partitions | None = None, rest: Resting | None = None
    ) -> None:
        super().__init__(partitions, initial)
        self.rest = rest
        self._rests_until_us = 0
        self.end_ms = 0
        """The watermark when all partitions have ended, as their owners committed it (`ended`)."""
        self.rest_us = {shard: _least_from(rows, self.at) for shard, rows in partitions.items()}

    def rests_until(self, shard: str, position: int, now_us: int) -> int:
        rest = self.rest
        if rest is None or (shard, position) != (rest.shard, rest.position):
            return 0
        self._rests_until_us = self._rests_until_us or now_us + rest.for_us
        return self._rests_until_us

    def read_upto(self, shard: str, position: int) -> int:
        rest = self.rest
        if rest is not None and shard == rest.shard and position < rest.position:
            return rest.position
        return super().read_upto(shard, position)

    def end_of(self, shard: str) -> tuple[int, int]:
        """The least and the greatest watermark that a partition may end with: an owner that takes over knows
        the rows that it has read, the last one among them, and what was committed."""
        rows = self.partitions[shard]
        last, latest = rows[-1][self.at], max(row[self.at] for row in rows)
        return last // 1000 - DELAY_MS, latest // 1000 - DELAY_MS

    def ended(self, watermarks_ms: Iterable[int]) -> None:
        """All partitions have ended, with these watermarks."""
        self.end_ms = max(watermarks_ms)

    def is_to_fire(self, due_ms: int) -> bool:
        return due_ms < self.end_ms


class Windowed(Timed):
    """Of two stages in a row that count windows."""

    stages = (
        ByEventTime(SHARDS.mid, SHARDS.src, SHARDS.end),
        ByEventTime(SHARDS.end, SHARDS.mid, ()),
    )
    at = at_behind = AT

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
        for shard, counts in expected_begun(self.initial).items():
            truth[shard].update(counts)
        return truth

    def put_out(self, shard: str, rows: int, state: Fields, outside: bytes) -> int:
        counts = self.counts_of(shard, state)
        return super().put_out(shard, rows, state, outside) + sum(
            number for (_, part), number in counts.items() if part == FIRED
        )

    def counts_of(self, shard: str, state: Fields) -> Counts:
        parts = (0, 1, FIRED) if shard in SHARDS.mid else (*KEYS, FIRED)
        values = state.get(b"", {})
        counts = begun_of(shard, state)
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
            rows = sum(n for (of, part), n in counts.items() if of == key and part < FIRED)
            done = _ints(values[_DONE + packed])[0] if _DONE + packed in values else 0
            windows = {
                _ints(end_ms)[0]: _ints(window)[0]
                for end_ms, window in state.get(_WINDOWS + packed, {}).items()
            }
            if done + sum(windows.values()) != rows:
                return f"of {rows} rows of key {key} {done} are in windows that fired, and {windows} are open"
            field = encoding.TIMERS + packed
            listed = _ints(values[field]) if field in values else []
            begun = _numbers(values[_BEGUN + packed])[0] if _BEGUN + packed in values else None
            to_begin = [INITIAL_MS] if begun is not None and not begun[-1] else []
            if listed != [*to_begin, *(end_ms - 1 for end_ms in sorted(windows))]:
                return f"key {key} lists timers {listed}, and has windows {windows}"
            set_for |= {timer_name(field, expiry_ms): expiry_ms for expiry_ms in listed}
        gone, waiting = set_for.keys() - timers.keys(), held_timers(state)
        if gone <= waiting and timers.items() <= set_for.items():
            return ""
        return f"timers are {timers}, {waiting} wait to be tried again, and keys list {set_for}"


def _least_from(rows: Sequence[tuple[int, ...]], at: int) -> list[float]:
    """The earliest event time, at that column, from each row on; behind the last one there is none."""
    least = [float("inf")]
    for row in reversed(rows):
        least.append(min(least[-1], row[at]))
    return least[::-1]


_LAST = encoding.field_prefix(encoding.VALUE, "last")
_BEGUN = encoding.field_prefix(encoding.VALUE, "begun")
_DONE = encoding.field_prefix(encoding.VALUE, "done")
_WINDOWS = encoding.field_prefix(encoding.MAP, "windows")
_PACKED = {number: encoding.pack((number,)) for number in range(10)}
_ints = msgspec.msgpack.Decoder(list[int]).decode
_numbers = msgspec.msgpack.Decoder(tuple[list[int]]).decode
