"""Diagnose: which unit strategy x = (K, s, d) keeps an operator within its target (StreamSwitch, section 3).

Health of executors and operator, Algorithm 1 (scale in), Algorithm 2 (load balance) and scale out with
mu_d = mu_s. Where the paper is silent or contradicts itself, docs/decisions/0012-streamswitch.md says what is
done and why. Pure, on arrays by executor. Neighbours: `examination` is what comes in, `policy` makes a
decision of what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.control.decision import Health, Treatment
from penstock.control.streamswitch.examination import Examination, Flags, Floats, Indices
from penstock.control.target import LatencyTarget

GAIN_MIN = 0.05
"""What a load balance must gain where it does not cure: the share by which it lowers the latency, or in
overload the utilisation, of the worst executor. Without it balancing an overload would go on for ever."""


def capacity_per_s(service_per_s: Floats, safety_margin: float) -> Floats:
    """(1 - epsilon) mu_i: what an executor may be given (4.2)."""
    return (1.0 - safety_margin) * service_per_s


def expected_latency_us(arrival_per_s: Floats, capacity: Floats) -> Floats:
    """L_i = 1 / ((1 - epsilon) mu_i - lambda_i) in microseconds, math.inf where that is not positive
    (4.2)."""
    spare = capacity - arrival_per_s
    endless = np.full(spare.shape, math.inf)
    latency_us: Floats = np.divide(1e6, spare, out=endless, where=spare > 0)
    return latency_us


def pressure(arrival_per_s: Floats, capacity: Floats) -> Floats:
    """A total order of executors that goes on where L_i ends.

    Below capacity it is -1 / L_i in rows per second, so that it orders as L_i does. From capacity on, where
    all L_i are infinite, it is utilisation - 1 >= 0: the seconds of latency that are added every second.
    """
    has_capacity = capacity > 0
    over = np.where(has_capacity, arrival_per_s / np.where(has_capacity, capacity, 1.0) - 1.0, math.inf)
    return np.where(arrival_per_s < capacity, arrival_per_s - capacity, over)


def latency_of(worst: float) -> float:
    """The L, in microseconds, of a `pressure`."""
    return 1e6 / -worst if worst < 0 else math.inf


def severe(instantaneous_us: Floats, expected_us: Floats, target: LatencyTarget) -> Flags:
    """(l_i, L_i) > (l, L): both are above (3.3)."""
    return (instantaneous_us > target.alert_us) & (expected_us > target.latency_us)


def good(instantaneous_us: Floats, expected_us: Floats, target: LatencyTarget) -> Flags:
    """(l_i, L_i) <= (l, L): neither is above (3.3). What is neither good nor severe is moderate."""
    return (instantaneous_us <= target.alert_us) & (expected_us <= target.latency_us)


def can_merge(arrival_per_s: Floats, capacity: Floats, latency_us: float) -> Flags:
    """By executor: whether another one could take all its arrivals and still expect at most `latency_us`.

    Exact and without pairs: executor s fits if the most room of the others holds lambda_s. Executors are the
    last axis, so a simulator may ask for many slots at once.
    """
    if arrival_per_s.shape[-1] < 2:
        return np.zeros(arrival_per_s.shape, np.bool_)
    room = capacity - 1e6 / latency_us - arrival_per_s
    two = np.partition(room, -2, axis=-1)[..., -2:]
    first, second = two[..., 1:], two[..., :1]
    is_first = np.arange(room.shape[-1]) == room.argmax(axis=-1)[..., None]
    return np.where(is_first, second, first) >= arrival_per_s


def _some_fit(arrival_per_s: list[float], capacity: list[float], latency_us: float) -> bool:
    """Whether `can_merge` is true of anyone: for a few executors faster than arrays, and asked at every
    look."""
    least = 1e6 / latency_us
    first = second = -math.inf
    first_at = -1
    for at, (load, most) in enumerate(zip(arrival_per_s, capacity, strict=True)):
        room = most - least - load
        if room > first:
            first, second, first_at = room, first, at
        elif room > second:
            second = room
    return any(load <= (second if at == first_at else first) for at, load in enumerate(arrival_per_s))


def is_quiet(
    arrival_per_s: Floats,
    service_per_s: Floats,
    instantaneous_us: Floats,
    target: LatencyTarget,
    may_go: Flags | None = None,
) -> Flags:
    """Whether nothing is to be done, from the arrays alone: no executor is severe, and either one is moderate
    or no two fit into one. Executors are the last axis; the others are kept, one answer each. `may_go` is as
    in `Room`. Stalled executors are not seen by it."""
    capacity = capacity_per_s(service_per_s, target.safety_margin)
    expected_us = expected_latency_us(arrival_per_s, capacity)
    is_severe = np.asarray(severe(instantaneous_us, expected_us, target).any(axis=-1))
    is_good = np.asarray(good(instantaneous_us, expected_us, target).all(axis=-1))
    merges = can_merge(arrival_per_s, capacity, target.latency_us)
    if may_go is not None:
        merges = merges & may_go
    return ~is_severe & ~(is_good & np.asarray(merges.any(axis=-1)))


@dataclass(frozen=True, slots=True, eq=False)
class Strategy:
    """x = (K, s, d): `moved` are indices of shards, `source` and `destination` of executors; destination None
    is a new one. `expected_us` is L_i(x) of all executors that are left, the new one last; `source_us` and
    `destination_us` are those of s and d (math.inf for a source that goes), `worst` the greater `pressure` of
    the two (of d alone)."""

    moved: Indices
    source: int
    destination: int | None
    expected_us: Floats
    source_us: float
    destination_us: float
    worst: float = math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """What the scope allows: which executors may go, and how many more may be asked for at once."""

    may_go: Flags
    more: int


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """`treatment` HOLD: an executor is severe and nothing can be done, `rule` says why. `strategies` are done
    side by side and share no executor, the worst executor's first; only scale-outs come in numbers.
    `incurable` are severe executors that no move of shards helps."""

    health: Health
    expected_us: Floats
    is_severe: Flags
    is_good: Flags
    treatment: Treatment
    rule: str
    strategies: tuple[Strategy, ...] = ()
    incurable: tuple[int, ...] = ()

    @property
    def strategy(self) -> Strategy | None:
        """The first one."""
        return self.strategies[0] if self.strategies else None


def worst_after_us(expected_us: Floats, strategies: Sequence[Strategy]) -> float:
    """The greatest L_i once all of `strategies` are carried out; `expected_us` are L_i(x_NO)."""
    if len(strategies) == 1:
        return float(strategies[0].expected_us.max(initial=0.0))
    left_us = np.delete(expected_us, [strategy.source for strategy in strategies])
    changed_us = [max(strategy.source_us, strategy.destination_us) for strategy in strategies]
    return max(float(left_us.max(initial=0.0)), *changed_us)


def diagnose(seen: Examination, target: LatencyTarget, room: Room) -> Diagnosis:
    """The two-level logic of section 3.2. `seen` is valid and all its service rates are known."""
    capacity = capacity_per_s(seen.service_per_s, target.safety_margin)
    expected_us = expected_latency_us(seen.arrival_per_s, capacity)
    if seen.stalled.any():
        expected_us = np.where(seen.stalled, math.inf, expected_us)
    is_late = seen.instantaneous_us > target.alert_us
    is_slow = expected_us > target.latency_us
    is_severe, is_good = is_late & is_slow, ~(is_late | is_slow)
    if is_severe.any():
        return _relieve(seen, target, room, capacity, expected_us, is_severe, is_good)
    if not is_good.all():
        return Diagnosis(Health.MODERATE, expected_us, is_severe, is_good, Treatment.NONE, "moderate")
    merged = find_scale_in(seen, target, room, capacity)
    if merged is None:
        return Diagnosis(Health.GOOD, expected_us, is_severe, is_good, Treatment.NONE, "good")
    return Diagnosis(Health.GOOD, expected_us, is_severe, is_good, Treatment.SCALE_IN, "scale-in", (merged,))


# --- scale in -----------------------------------------------------------------------------------------


def find_scale_in(seen: Examination, target: LatencyTarget, room: Room, capacity: Floats) -> Strategy | None:
    """Algorithm 1: all shards of s go to d, so that the latencies of those left, sorted from the worst down,
    are the least in lexicographic order. None where none of them keeps the operator good. Ties: the fewest
    shards, then the first pair."""
    arrival = seen.arrival_per_s
    if not _some_fit(arrival.tolist(), capacity.tolist(), target.latency_us):
        return None
    may_go = room.may_go & can_merge(arrival, capacity, target.latency_us)
    if not may_go.any():
        return None
    count = len(arrival)
    sources, destinations = np.divmod(np.arange(count * count), count)
    merged = arrival[sources] + arrival[destinations]
    fits = (
        may_go[sources]
        & (sources != destinations)
        & (expected_latency_us(merged, capacity[destinations]) <= target.latency_us)
    )
    sources, destinations = sources[fits], destinations[fits]
    if not sources.size:
        return None
    equals = least_merges(seen, capacity, sources, destinations)
    held = np.bincount(seen.holder, minlength=count)
    best = int(equals[held[sources[equals]].argmin()])
    return merge(seen, capacity, int(sources[best]), int(destinations[best]))


def least_merges(seen: Examination, capacity: Floats, sources: Indices, destinations: Indices) -> Indices:
    """Of merges of `sources` into `destinations`, pair by pair, those after which the pressures of all
    executors left, from the worst down, are the least in lexicographic order."""
    arrival = seen.arrival_per_s
    pairs = np.arange(len(sources))
    merged = arrival[sources] + arrival[destinations]
    vectors = np.tile(pressure(arrival, capacity), (len(sources), 1))
    vectors[pairs, destinations] = pressure(merged, capacity[destinations])
    vectors[pairs, sources] = -math.inf
    return _least(-np.sort(-vectors, axis=1))


def merge(seen: Examination, capacity: Floats, source: int, destination: int) -> Strategy:
    """All shards of `source` to `destination`, and `source` goes."""
    after = seen.arrival_per_s.copy()
    after[destination] += after[source]
    expected_us = expected_latency_us(after, capacity)
    return Strategy(
        moved=np.flatnonzero(seen.holder == source),
        source=source,
        destination=destination,
        expected_us=np.delete(expected_us, source),
        source_us=math.inf,
        destination_us=float(expected_us[destination]),
        worst=float(pressure(after, capacity)[destination]),
    )


def _least(vectors: Floats) -> Indices:
    """The rows that are least in lexicographic order."""
    rows = np.arange(len(vectors))
    for column in range(vectors.shape[1]):
        values = vectors[rows, column]
        rows = rows[values <= values.min()]
        if len(rows) == 1:
            break
    return rows


# --- load balance and scale out -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The best prefix of a source's shards for one destination, and the greater `pressure` of the two
    then."""

    moved: Indices
    worst: float


def find_substreams(
    seen: Examination, source: int, capacity_s: float, arrival_d: Floats, capacity_d: Floats
) -> list[Split]:
    """`FindOptimalSubstreams` of Algorithm 2, for several destinations at once (arrays of one entry each).

    Shards of s in ascending l^k move one by one. Taken is the prefix with the least max(L_s, L_d), of equal
    ones the shortest, over all proper prefixes: never all shards, never none. Empty if s has not two shards.
    """
    held = np.flatnonzero(seen.holder == source)
    if len(held) < 2:
        return []
    held = held[np.argsort(seen.shard_latency_us[held], kind="stable")]
    gone = np.cumsum(seen.shard_arrival_per_s[held])
    left = np.maximum(gone[-1] - gone[:-1], 0.0)
    worst = np.maximum(
        pressure(left, np.full_like(left, capacity_s))[None, :],
        pressure(arrival_d[:, None] + gone[None, :-1], capacity_d[:, None]),
    )
    best = worst.argmin(axis=1)
    return [Split(held[: at + 1], float(worst[row, at])) for row, at in enumerate(best.tolist())]


def find_load_balance(
    seen: Examination, source: int, capacity: Floats, aside: Flags | None = None
) -> Strategy | None:
    """Algorithm 2: from `source` to any other executor, but to no stalled one and none `aside`, which also do
    not count: the least worst latency over all, then over the two, then the fewest shards.

    None unless it is better for the two than what `source` has now.
    """
    load = pressure(seen.arrival_per_s, capacity)
    excluded = seen.stalled.copy() if aside is None else seen.stalled | aside
    excluded[source] = True
    destinations = np.flatnonzero(~excluded)
    splits = find_substreams(
        seen, source, float(capacity[source]), seen.arrival_per_s[destinations], capacity[destinations]
    )
    now = math.inf if seen.stalled[source] else float(load[source])
    best: tuple[tuple[float, float, int], int, Split] | None = None
    for destination, split in zip(destinations.tolist(), splits, strict=False):
        if split.worst >= now:
            continue
        others = float(load[destinations[destinations != destination]].max(initial=-math.inf))
        rank = (max(others, split.worst), split.worst, len(split.moved))
        if best is None or rank < best[0]:
            best = (rank, destination, split)
    if best is None:
        return None
    _, destination, split = best
    arrival = seen.arrival_per_s.copy()
    moved_per_s = seen.shard_arrival_per_s[split.moved].sum()
    arrival[source] = max(arrival[source] - moved_per_s, 0.0)
    arrival[destination] += moved_per_s
    return _strategy(split, source, destination, arrival, capacity)


def find_scale_out(seen: Examination, source: int, capacity: Floats) -> Strategy | None:
    """Algorithm 2 from `source` to a new executor, of which mu_d = mu_s is assumed (3.4). None unless
    better."""
    now = math.inf if seen.stalled[source] else float(pressure(seen.arrival_per_s, capacity)[source])
    of_source = capacity[source : source + 1]
    splits = find_substreams(seen, source, float(of_source[0]), np.zeros(1), of_source)
    if not splits or splits[0].worst >= now:
        return None
    moved_per_s = seen.shard_arrival_per_s[splits[0].moved].sum()
    arrival = np.append(seen.arrival_per_s, moved_per_s)
    arrival[source] = max(arrival[source] - moved_per_s, 0.0)
    return _strategy(splits[0], source, None, arrival, np.append(capacity, of_source))


def _strategy(
    split: Split, source: int, destination: int | None, arrival: Floats, capacity: Floats
) -> Strategy:
    expected_us = expected_latency_us(arrival, capacity)
    return Strategy(
        moved=split.moved,
        source=source,
        destination=destination,
        expected_us=expected_us,
        source_us=float(expected_us[source]),
        destination_us=float(expected_us[-1 if destination is None else destination]),
        worst=split.worst,
    )


def _relieve(
    seen: Examination,
    target: LatencyTarget,
    room: Room,
    capacity: Floats,
    expected_us: Floats,
    is_severe: Flags,
    is_good: Flags,
) -> Diagnosis:
    """Someone is severe: balance if that cures the operator, else scale out, else balance if that eases
    (3.2). Scale-outs go side by side, one for each severe executor and then one for each that will be: of
    those the projected latency is beyond the bound, and nothing else is decided until the treatment ends."""
    load = np.where(seen.stalled, math.inf, pressure(seen.arrival_per_s, capacity))
    worst_first = sorted(np.flatnonzero(is_severe).tolist(), key=lambda i: -float(load[i]))
    outs: dict[int, Strategy] = {}
    balances: dict[int, Strategy] = {}
    aside = np.zeros(len(load), np.bool_)
    for source in worst_first:
        before = float(load[source])
        out = find_scale_out(seen, source, capacity)
        if out is not None and _is_worth(before, out.worst, target):
            outs[source] = out
        balance = find_load_balance(seen, source, capacity, aside)
        if balance is not None and _is_worth(before, balance.worst, target):
            balances[source] = balance
        aside[source] = source not in outs and source not in balances
    incurable = tuple(np.flatnonzero(aside).tolist())
    curable = [source for source in worst_first if not aside[source]]

    def answer(treatment: Treatment, rule: str, *strategies: Strategy) -> Diagnosis:
        return Diagnosis(
            Health.SEVERE, expected_us, is_severe, is_good, treatment, rule, strategies, incurable
        )

    if not curable:
        return answer(Treatment.HOLD, "incurable")
    balance = balances.get(curable[0])
    if balance is not None and _cures(seen, target, balance, is_severe & ~aside):
        return answer(Treatment.LOAD_BALANCE, "load-balance", balance)
    at_once = [outs[source] for source in curable if source in outs][: max(room.more, 0)]
    if at_once:
        soon = np.flatnonzero((expected_us > target.latency_us) & ~is_severe).tolist()
        for source in sorted(soon, key=lambda i: -float(load[i])):
            if len(at_once) >= room.more:
                break
            out = find_scale_out(seen, source, capacity)
            if out is not None and _is_worth(float(load[source]), out.worst, target):
                at_once.append(out)
        return answer(Treatment.SCALE_OUT, "scale-out", *at_once)
    for source in curable:
        if source in balances:
            return answer(Treatment.LOAD_BALANCE, "load-balance-eases", balances[source])
    return answer(Treatment.HOLD, "at-limit")


def _cures(seen: Examination, target: LatencyTarget, strategy: Strategy, now_severe: Flags) -> bool:
    """H(x) is not severe, of those that a move can help: l_i stays what was measured, L_i is projected."""
    after = severe(seen.instantaneous_us, strategy.expected_us, target)
    at = np.arange(len(now_severe))
    involved = (at == strategy.source) | (at == strategy.destination)
    return not np.where(involved, after, now_severe).any()


def _is_worth(before: float, after: float, target: LatencyTarget) -> bool:
    """Whether the worse of the two gets within the target, or better by a share that is worth a move."""
    if latency_of(after) <= target.latency_us or before == math.inf:
        return True
    if before < 0:
        return latency_of(after) <= (1 - GAIN_MIN) * latency_of(before)
    return after < 0 or 1 + after <= (1 - GAIN_MIN) * (1 + before)
