"""How often which key was sent on by which: counted pairs as a value, with what each may be wrong by.

A pair is (key received, key sent) of one edge between keyed operators; Middleware'16, section 3.2.
Summaries of tasks merge into one of the edge, and errors add up (Agarwal et al., Mergeable Summaries, PODS
2012).
Neighbours: `pair_counter` makes them in tasks, `summary_wire` carries them, `key_graph` reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

Key = tuple[bool | int | float | str | bytes | None, ...]
"""A key's columns as wire values; structs are laid open into their fields."""
Pair = tuple[Key, Key]


@dataclass(frozen=True, slots=True, eq=False)
class PairSummary:
    """Pairs that are frequent among `records` records, none twice, in any order.

    The true count of `pairs[i]` is at least `counts[i] - errors[i]` and at most `counts[i]`; that of a pair
    that is not there at most `floor`. `received` says of keys of the pairs how often they were received at
    the least, in whatever pair. ValueError if arrays and pairs do not fit.
    """

    records: int
    floor: int
    pairs: tuple[Pair, ...]
    counts: Integers
    errors: Integers
    received: Mapping[Key, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.pairs),)
        if self.counts.shape != shape or self.errors.shape != shape:
            raise ValueError(f"{shape} pairs, counts {self.counts.shape}, errors {self.errors.shape}")

    @property
    def certain(self) -> Integers:
        """How often each pair was seen at the least."""
        return self.counts - self.errors

    @property
    def records_unnamed(self) -> int:
        """Records that no pair here is certain of."""
        return self.records - int(self.certain.sum())


EMPTY = PairSummary(0, 0, (), np.zeros(0, np.int64), np.zeros(0, np.int64))


def merged(summaries: Iterable[PairSummary], pairs_max: int) -> PairSummary:
    """One summary of all records that `summaries` are of, with at most `pairs_max` pairs: those that are
    certain to be the most frequent, among equals those that came first.

    A pair that one of them does not have may have been seen up to its floor there: its error grows by that.
    """
    place: dict[Pair, int] = {}
    parts: list[tuple[Integers, PairSummary]] = []
    for summary in summaries:
        at = np.fromiter((place.setdefault(pair, len(place)) for pair in summary.pairs), np.int64)
        parts.append((at, summary))
    floor = sum(summary.floor for _, summary in parts)
    # Each pair begins with all floors; whoever has it puts its own count for its floor.
    counts = np.full(len(place), floor, np.int64)
    errors = counts.copy()
    for at, summary in parts:
        counts[at] += summary.counts - summary.floor
        errors[at] += summary.errors - summary.floor
    pairs = tuple(place)
    if len(pairs) > pairs_max:
        order = np.argsort(errors - counts, kind="stable")
        kept, gone = np.sort(order[:pairs_max]), order[pairs_max:]
        floor = max(floor, int(counts[gone].max()))
        pairs = tuple(pairs[at] for at in kept.tolist())
        counts, errors = counts[kept], errors[kept]
    received: Counter[Key] = Counter()
    for _, summary in parts:
        received.update(summary.received)
    records = sum(summary.records for _, summary in parts)
    there = {key: received[key] for key, _ in pairs if key in received}
    return PairSummary(records, floor, pairs, counts, errors, there)
