"""Pairs counted in bounded memory: the algorithm's guarantees on whole streams, and the bound by measure."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pytest

from penstock.control.locality.batch_sampling import BatchSampling
from penstock.control.locality.pair_counter import LIMIT_BYTES, LIMIT_BYTES_MIN, PairCounter
from penstock.control.locality.pair_summary import Key, Pair, PairSummary
from penstock.control.locality.summary_wire import pack_summary, unpack_summary

Batch = tuple[list[Key], list[Key]]


def drawn(seed: int, records: int, keys: int, exponent: float) -> list[Pair]:
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, keys + 1) ** exponent
    received = rng.choice(40, records)
    sent = (rng.choice(keys, records, p=weights / weights.sum()) * 7 + received * 3) % keys
    return [
        ((f"c{one}",), (f"t{other}",)) for one, other in zip(received.tolist(), sent.tolist(), strict=True)
    ]


def batches(pairs: list[Pair], size: int) -> Iterator[Batch]:
    for start in range(0, len(pairs), size):
        part = pairs[start : start + size]
        yield [received for received, _ in part], [sent for _, sent in part]


class WatchedCounter(PairCounter):
    """Notes the fewest counters that were left by pruning."""

    __slots__ = ("fewest",)

    def __init__(self, limit_bytes: int) -> None:
        self.fewest = 1 << 62
        super().__init__(limit_bytes)

    def _prune(self) -> None:
        before = len(self._pairs)
        super()._prune()
        if len(self._pairs) < before:
            self.fewest = min(self.fewest, len(self._pairs))


def assert_within_errors(summary: PairSummary, true: Counter[Pair]) -> None:
    there = dict(zip(summary.pairs, zip(summary.counts, summary.errors, strict=True), strict=True))
    assert len(there) == len(summary.pairs)
    for pair, (count, error) in there.items():
        assert count - error <= true[pair] <= count
    assert max((seen for pair, seen in true.items() if pair not in there), default=0) <= summary.floor
    assert summary.records == sum(true.values())
    received: Counter[Key] = Counter()
    for (key, _), seen in true.items():
        received[key] += seen
    assert summary.received.keys() == {key for key, _ in there}
    assert all(seen <= received[key] for key, seen in summary.received.items())


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2, 2.0])
@pytest.mark.parametrize("size", [1, 7, 256, 5000])
def test_no_count_is_further_off_than_it_says(exponent: float, size: int) -> None:
    pairs = drawn(int(exponent * 10) + size, 12_000, 3000, exponent)
    counter = WatchedCounter(LIMIT_BYTES_MIN)
    for received, sent in batches(pairs, size):
        counter.count(received, sent)
    summary = counter.summary()
    assert_within_errors(summary, Counter(pairs))
    assert sum(summary.received.values()) <= len(pairs)
    # SpaceSaving's own bound, for the counters that stayed; the flattest stream is the one that reaches it.
    assert counter._pairs.floor <= len(pairs) / (counter.fewest + 1)
    assert exponent > 0 or counter._pairs.floor > 0


def test_the_most_frequent_pairs_have_names_and_small_errors() -> None:
    pairs = drawn(3, 40_000, 20_000, 1.3)
    counter = PairCounter(LIMIT_BYTES_MIN)
    for received, sent in batches(pairs, 64):
        counter.count(received, sent)
    summary = counter.summary()
    certain = dict(zip(summary.pairs, summary.certain.tolist(), strict=True))
    for pair, seen in Counter(pairs).most_common(40):
        assert certain[pair] >= 0.8 * seen


def test_keys_received_are_counted_beyond_their_pairs_that_have_names() -> None:
    """Forty of them, each with more tags than can be known."""
    pairs = drawn(5, 40_000, 30_000, 0.6)
    counter = PairCounter(LIMIT_BYTES_MIN)
    for received, sent in batches(pairs, 64):
        counter.count(received, sent)
    summary = counter.summary()
    assert summary.certain.sum() < len(pairs) / 4
    true = Counter(received for received, _ in pairs)
    assert summary.received == {key: true[key] for key, _ in summary.pairs}


def test_keys_received_that_have_one_hash_are_counted_in_their_pairs_alone() -> None:
    """Each of them would be told with the records of both, more than there were."""
    assert hash((-1,)) == hash((-2,))
    counter = PairCounter(LIMIT_BYTES_MIN)
    counter.count([(-1,), (-2,), (-3,)] * 50, [(10,), (20,), (30,)] * 50)
    summary = unpack_summary(pack_summary(counter.summary()))
    assert dict(zip(summary.pairs, summary.certain.tolist(), strict=True)) == {
        ((-1,), (10,)): 50,
        ((-2,), (20,)): 50,
        ((-3,), (30,)): 50,
    }
    assert summary.received == {(-3,): 50}


def test_what_fits_is_counted_exactly() -> None:
    pairs = [((f"c{i % 5}",), (i % 35, None, b"x")) for i in range(700)]
    counter = PairCounter()
    for received, sent in batches(pairs, 50):
        counter.count(received, sent)
    summary = counter.summary()
    assert dict(zip(summary.pairs, summary.counts.tolist(), strict=True)) == Counter(pairs)
    assert summary.errors.sum() == summary.floor == summary.records_unnamed == 0


def test_a_summary_takes_nothing_away_and_reset_takes_all() -> None:
    pairs = [(("a",), ("b",)), (("a",), ("b",)), (("a",), ("c",))] * 10
    counter = PairCounter()
    for received, sent in batches(pairs, 4):
        counter.count(received, sent)
        counter.summary()
    assert_within_errors(counter.summary(), Counter(pairs))
    counter.reset()
    assert counter.summary().records == len(counter.summary().pairs) == counter.summary().floor == 0


def test_a_pair_that_is_too_long_has_no_name_and_is_not_forgotten() -> None:
    long, short = ("x" * 600,), ("y",)
    counter = PairCounter()
    counter.count([long] * 9 + [short] * 5, [short] * 14)
    summary = counter.summary()
    assert summary.pairs == ((short, short),)
    assert (summary.records, summary.floor) == (14, 9)


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(ValueError, match="2 keys received, 1 sent"):
        PairCounter().count([("a",), ("b",)], [("a",)])
    with pytest.raises(ValueError, match="at least"):
        PairCounter(LIMIT_BYTES_MIN - 1)


MADE: dict[str, Callable[[int], Pair]] = {
    "all different": lambda i: ((f"country-{i}",), (f"tag-{i}",)),
    "few and long": lambda i: ((f"{i % 900:0200}",), (f"{i % 2700:0200}",)),
    "longer than may be": lambda i: ((f"{i:05000}",), (f"{i:05000}",)),
    "one key received": lambda i: (("one",), (i,)),
    "each one twice": lambda i: ((i // 2,), (i // 2 + 10**12,)),
    "of many columns": lambda i: ((i, None, "a", 1.5, i), (i, f"\N{SNOWMAN}\N{PILE OF POO}{i % 5000}", b"b")),
}


@pytest.mark.parametrize("limit_bytes", [LIMIT_BYTES_MIN, LIMIT_BYTES])
@pytest.mark.parametrize("kind", MADE)
def test_memory_stays_within_its_bound(kind: str, limit_bytes: int) -> None:
    """By what the interpreter and numpy say that they hold at the worst moment."""
    make = MADE[kind]
    records = (1500 if kind == "longer than may be" else 8000) * (limit_bytes // LIMIT_BYTES_MIN) ** (1 / 3)
    # A full collection also gives back what the interpreter keeps of freed tuples, which nobody would count.
    gc.collect()
    tracemalloc.start()
    try:
        counter = PairCounter(limit_bytes)
        worst = held = 0
        for start in range(0, int(records), 50):
            pairs = [make(i) for i in range(start, start + 50)]
            received, sent = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            del pairs
            # What was there besides: the batch, which is not the counter's as long as the caller has it.
            besides = tracemalloc.get_traced_memory()[0] - held
            tracemalloc.reset_peak()
            counter.count(received, sent)
            worst = max(worst, tracemalloc.get_traced_memory()[1] - besides)
            del received, sent
            held = tracemalloc.get_traced_memory()[0]
            worst = max(worst, held)
    finally:
        tracemalloc.stop()
    assert worst <= limit_bytes


def test_batches_are_drawn_by_lot_and_as_many_as_asked_for() -> None:
    for share in (0.05, 0.25, 1.0):
        sampling = BatchSampling(share, Random(5))
        due = [sampling.is_due() for _ in range(20_000)]
        assert sum(due) / len(due) == pytest.approx(share, rel=0.1)
        # Every fourth batch might be of one shard: none of the four is left out, none comes too often.
        for turn in range(4):
            assert sum(due[turn::4]) / len(due[turn::4]) == pytest.approx(share, rel=0.2)
    with pytest.raises(ValueError, match="share"):
        BatchSampling(0.0, Random(5))
