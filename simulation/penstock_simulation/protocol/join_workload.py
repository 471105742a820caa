"""What a run with a join computes: pairs of rows of two sources, each pair once, whatever is done to the run.

`src` is the left and `side` the right of an interval join, `mid`; event times of each partition go on at a
pace of their own. Within a key the rows of a side are numbered, so a pair is three numbers in the sink: its
key and the two. A row of the left without a partner comes out too, once nobody can come any more. The join's
own state is looked at as well: what waits, and the timer that ends it. Neighbours: `topologies` has the plan,
`event_workload` what all workloads by event time have.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from penstock.dataflow.interval_join import LEFT_OUTER, IntervalJoin, JoinSide
from penstock.dataflow.routing import Router
from penstock_simulation.protocol.event_workload import (
    DELAY_MS,
    FAR_END,
    ByEventTime,
    Resting,
    Timed,
    TimedRow,
    behind_all,
    drawn_rest,
)
from penstock_simulation.protocol.layout import JOINED
from penstock_simulation.protocol.workload import (
    KEYS,
    SHARDS,
    Counts,
    Fields,
    OutOfOrder,
    Partitions,
    make_partitions,
)
from penstock_worker.state import encoding
from penstock_worker.state.timers import timer_name
from penstock_worker.windows.join_times import LEFT, RIGHT, JoinTimes

NUMBER, AT = 1, 2
"""The columns of a row behind its key."""
AT_BEHIND = 1
"""The column with the event time of what comes to the join, behind its key."""
JOIN = IntervalJoin(
    JoinSide("at", (("key", "key"), ("number", "left_number"))),
    JoinSide("at", (("number", "right_number"),)),
    -1_000,
    1_500,
    LEFT_OUTER,
)
NOBODY = 255
"""In the place of the number of a row of the right, where there is none."""
STEP_US_MIN, STEP_US_MAX = 150_000, 500_000
"""How far apart the rows of a partition are: what waits in a bucket is to fit a small commit."""
START_US, END_US = 1_024_000, 200_000_000
_TIMES_MS = 500
"""All times at which a bucket is over are multiples of this; no watermark that a partition ends with is."""


def make_joined(rng: random.Random, rows_max: int, *, resting: bool) -> Joined:
    """A run's rows; `resting` as `Timed` has it."""
    timed: Mapping[str, Sequence[TimedRow]] = {
        **_timed(rng, make_partitions(rng, rows_max)),
        **_timed(rng, make_partitions(rng, rows_max, SHARDS.side)),
    }
    rest = drawn_rest(rng, timed) if resting else None
    return Joined(behind_all(timed, rest, AT) if rest is not None else timed, rest)


def _timed(
    rng: random.Random, partitions: Mapping[str, Sequence[Sequence[int]]]
) -> dict[str, list[TimedRow]]:
    numbers: Counter[int] = Counter()
    timed: dict[str, list[TimedRow]] = {}
    for shard, rows in partitions.items():
        step_us = STEP_US_MIN + STEP_US_MAX * rng.random() ** 2
        at_us = START_US + rng.random() * 2_000_000
        timed[shard] = []
        for key, *_ in rows:
            numbers[key] += 1
            at_us += step_us * 2 * rng.random()
            timed[shard].append((key, numbers[key], _between(int(at_us - DELAY_MS * 1000 * rng.random()))))
        if rng.random() < FAR_END:
            timed[shard][-1] = (*timed[shard][-1][:AT], END_US)
    return timed


def _between(at_us: int) -> int:
    """A time like it whose watermark is none at which a bucket is over."""
    return at_us if (at_us // 1000 - DELAY_MS) % _TIMES_MS else at_us + 1000


class Joined(Timed):
    """Of one stage, which joins."""

    sink_shards = SHARDS.mid
    stages = (ByEventTime(SHARDS.mid, (*SHARDS.src, *SHARDS.side), ()),)
    at, at_behind = AT, AT_BEHIND

    def __init__(self, partitions: Partitions, rest: Resting | None = None) -> None:
        super().__init__(partitions, None, rest)
        self.layout = JOINED
        self._times = JoinTimes(JOIN)

    def truth(self) -> Mapping[str, Counts]:
        route = Router(["int"], len(SHARDS.mid)).route
        left = [row for shard in SHARDS.src for row in self.partitions[shard]]
        right = [row for shard in SHARDS.side for row in self.partitions[shard]]
        truth: dict[str, Counts] = defaultdict(Counter)
        for key, number, at_us in left:
            first_us, last_us = at_us + JOIN.lower_ms * 1000, at_us + JOIN.upper_ms * 1000
            met = [other for of, other, other_us in right if of == key and first_us <= other_us <= last_us]
            is_over = self._times.over_ms(LEFT, self._times.bucket_of(at_us)) < self.end_ms
            pairs = truth[SHARDS.mid[route((key,))]]
            for other in met or ([NOBODY] if is_over else []):
                pairs[key, _pair(number, other)] = 1
        return truth

    def counts_of(self, shard: str, state: Fields) -> Counts | None:
        return None

    def counts_outside(self, content: bytes) -> Counts:
        counts: Counts = Counter()
        for start in range(0, len(content), 3):
            key, number, other = content[start : start + 3]
            counts[key, _pair(number, other)] += 1
            if counts[key, _pair(number, other)] > 1:
                raise OutOfOrder(f"sink: row {number} of key {key} and row {other} once more")
        return counts

    def put_out(self, shard: str, rows: int, state: Fields, outside: bytes) -> int:
        return len(outside) // 3

    def wrong_marks(self, shard: str, state: Fields, timers: Mapping[bytes, int]) -> str:
        """What waits is named, and a timer is set that comes no later than what of it is over first."""
        values = state.get(b"", {})
        set_for: dict[bytes, int] = {}
        for key in KEYS:
            packed = encoding.pack((key,))
            found = values.get(_JOIN + packed)
            timer_ms, named = _join(_bytes(found)[0]) if found else (None, ([], []))
            kept = [sorted(_int(bucket)[0] for bucket in state.get(side + packed, {})) for side in _SIDES]
            if list(map(list, named)) != kept:
                return f"key {key} has the buckets {kept}, and names {named}"
            over_ms = self._times.first_over_ms(named)
            if over_ms is not None and (timer_ms is None or timer_ms > over_ms):
                return f"key {key} has a bucket until {over_ms}, and its timer is set for {timer_ms}"
            field = encoding.TIMERS + packed
            listed = _listed(values[field]) if field in values else []
            if timer_ms is not None and timer_ms not in listed:
                return f"key {key} lists timers {listed}, and names {timer_ms}"
            set_for |= {timer_name(field, expiry_ms): expiry_ms for expiry_ms in listed}
        return "" if set_for == timers else f"timers are {timers}, and keys list {set_for}"


def _pair(number: int, other: int) -> int:
    return number * 256 + other


_JOIN = encoding.field_prefix(encoding.VALUE, "join")
_SIDES = [encoding.field_prefix(encoding.MAP, ("left", "right")[side]) for side in (LEFT, RIGHT)]
_join = msgspec.msgpack.Decoder(tuple[int | None, tuple[list[int], list[int]]]).decode
_bytes = msgspec.msgpack.Decoder(tuple[bytes]).decode
_int = msgspec.msgpack.Decoder(tuple[int]).decode
_listed = msgspec.msgpack.Decoder(list[int]).decode
