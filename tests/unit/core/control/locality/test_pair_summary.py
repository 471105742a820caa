"""Summaries merge with their errors, and come through the wire whole or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.locality.pair_summary import EMPTY, Key, Pair, PairSummary, merged
from penstock.control.locality.summary_wire import (
    PAIRS_MAX,
    SUMMARY_BYTES_MAX,
    UnreadableSummary,
    pack_summary,
    unpack_summary,
)

letters = st.sampled_from("abcdef")
keys = st.tuples(letters)
streams = st.lists(st.lists(st.tuples(keys, keys), max_size=60), max_size=5)


def summary_of(stream: Sequence[Pair], counters: int) -> PairSummary:
    """SpaceSaving as its paper has it, one record at a time."""
    counts: dict[Pair, int] = {}
    errors: dict[Pair, int] = {}
    floor = 0
    for pair in stream:
        if pair in counts:
            counts[pair] += 1
            continue
        if len(counts) == counters:
            least = min(counts, key=lambda each: counts[each])
            floor = counts.pop(least)
            del errors[least]
        counts[pair], errors[pair] = floor + 1, floor
    numbers = [np.array(list(each.values()), np.int64) for each in (counts, errors)]
    return PairSummary(len(stream), floor, tuple(counts), numbers[0], numbers[1])


@given(streams, st.integers(1, 12), st.integers(1, 30))
def test_what_is_merged_is_no_further_off_than_it_says(
    parts: list[list[Pair]], counters: int, pairs_max: int
) -> None:
    whole = merged([summary_of(part, counters) for part in parts], pairs_max)
    true = Counter(pair for part in parts for pair in part)
    assert whole.records == sum(true.values())
    assert len(whole.pairs) == len(set(whole.pairs)) <= pairs_max
    for pair, count, error in zip(whole.pairs, whole.counts.tolist(), whole.errors.tolist(), strict=True):
        assert count - error <= true[pair] <= count
    assert max((seen for pair, seen in true.items() if pair not in whole.pairs), default=0) <= whole.floor


@given(streams, st.integers(1, 12))
def test_the_order_of_tasks_makes_no_difference(parts: list[list[Pair]], counters: int) -> None:
    summaries = [summary_of(part, counters) for part in parts]
    one, other = merged(summaries, 1000), merged(summaries[::-1], 1000)
    assert told(one) == told(other)


def told(summary: PairSummary) -> tuple[int, int, dict[Pair, tuple[int, int]]]:
    numbers = zip(summary.counts.tolist(), summary.errors.tolist(), strict=True)
    return summary.records, summary.floor, dict(zip(summary.pairs, numbers, strict=True))


def test_merging_by_hand() -> None:
    one = PairSummary(10, 1, ((("a",), ("x",)),), np.array([6]), np.array([1]))
    other = PairSummary(7, 2, ((("a",), ("x",)), (("b",), ("y",))), np.array([4, 3]), np.array([0, 2]))
    whole = merged([one, other], 5)
    assert told(whole) == (17, 3, {(("a",), ("x",)): (10, 1), (("b",), ("y",)): (4, 3)})
    # What is cut may have been met as often as its count says.
    assert told(merged([one, other], 1)) == (17, 4, {(("a",), ("x",)): (10, 1)})
    assert whole.records_unnamed == 17 - 9 - 1


def test_what_tasks_received_of_a_key_adds_up_where_its_pairs_are_told() -> None:
    one = PairSummary(10, 0, ((("a",), ("x",)),), np.array([6]), np.array([0]), {("a",): 8})
    other = PairSummary(
        7, 0, ((("a",), ("y",)), (("b",), ("y",))), np.array([4, 1]), np.array([0, 0]), {("a",): 5, ("b",): 2}
    )
    assert merged([one, other], 5).received == {("a",): 13, ("b",): 2}
    assert merged([one, other], 2).received == {("a",): 13}


def test_nothing_merged_is_nothing() -> None:
    assert told(merged([], 5)) == told(EMPTY) == told(merged([EMPTY, EMPTY], 5))


def test_arrays_and_pairs_have_to_fit() -> None:
    with pytest.raises(ValueError, match="pairs"):
        replace(EMPTY, counts=np.zeros(1, np.int64))


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False),
    st.text(max_size=8), st.binary(max_size=8),
)  # fmt: skip


@given(
    st.dictionaries(
        st.tuples(st.tuples(values), st.tuples(values, values)),
        st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
        max_size=20,
    ),
    st.integers(0, 1000),
)
def test_a_summary_comes_through_the_wire(counts: dict[Pair, tuple[int, int]], more: int) -> None:
    certain, errors = (np.array([each[at] for each in counts.values()], np.int64) for at in (0, 1))
    records = int(certain.sum()) + more
    received: Counter[Key] = Counter()
    for (key, _), seen in zip(counts, certain.tolist(), strict=True):
        received[key] += seen
    summary = PairSummary(records, min(more, records), tuple(counts), certain + errors, errors, +received)
    come = unpack_summary(pack_summary(summary))
    assert told(come) == told(summary)
    assert come.received == summary.received


GOOD: list[Any] = [1, 10, 2, [["a"]], [[1], [2]], [[0, 0, 5, 1], [0, 1, 3, 0]]]


def changed(at: int, value: object) -> bytes:
    return msgspec.msgpack.encode([*GOOD[:at], value, *GOOD[at + 1 :]])


def test_what_the_faults_are_made_of_is_right() -> None:
    """Tasks of the version before leave such; those of today say how often a key was received."""
    old = unpack_summary(changed(0, 1))
    assert (old.certain.tolist(), old.received) == ([4, 3], {})
    assert unpack_summary(msgspec.msgpack.encode([2, *GOOD[1:], [9]])).received == {("a",): 9}


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (b"", "cannot be read"),
        (msgspec.msgpack.encode({"records": 5}), "cannot be read"),
        (b"\xff" * (SUMMARY_BYTES_MAX + 1), "are the most"),
        (changed(0, 3), "form 3, 1 and 2 are known"),
        (changed(0, 2), "0 counts of 1 keys received"),
        (msgspec.msgpack.encode([*GOOD, [1]]), "1 counts of 1 keys received"),
        (msgspec.msgpack.encode([2, *GOOD[1:], [1, 2]]), "2 counts of 1 keys received"),
        (msgspec.msgpack.encode([2, *GOOD[1:], [-1]]), "keys were received -1 times"),
        (msgspec.msgpack.encode([2, *GOOD[1:], [11]]), "keys were received 11 times in 10 records"),
        (changed(1, 6), "met 7 times in 6 records"),
        (changed(1, 1 << 60), "records"),
        (changed(2, -1), "a floor of -1"),
        (changed(2, 11), "a floor of 11"),
        (changed(3, [["a"], ["a"]]), "there twice among keys received"),
        (changed(3, [["a"], ["b", "c"]]), r"keys of \[1, 2\] columns"),
        (changed(3, [[["a"]]]), "values of .*list"),
        (changed(4, [[1], [{"a": 1}]]), "values of .*dict.* among keys sent"),
        (changed(5, [[0, 2, 5, 1]]), "keys 0 and 2 of 1 and 2"),
        (changed(5, [[-1, 0, 5, 1]]), "keys -1"),
        (changed(5, [[0, 0, 5, 6]]), "an error of 6"),
        (changed(5, [[0, 0, 1 << 62, (1 << 62) - 1]]), "a count of"),
        (changed(5, [[0, 0, 2, 0], [0, 0, 2, 0]]), "a pair is there twice"),
        (changed(5, [[0, 0, 1, 0]] * (PAIRS_MAX + 1)), "are the most"),
    ],
)
def test_what_makes_no_sense_is_not_read(packed: bytes, said: str) -> None:
    with pytest.raises(UnreadableSummary, match=said):
        unpack_summary(packed)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_damaged_byte_is_a_fault_or_another_summary(at: int, flip: int) -> None:
    packed = bytearray(changed(0, 1))
    packed[at % len(packed)] ^= flip
    try:
        summary = unpack_summary(bytes(packed))
    except UnreadableSummary:
        return
    assert 0 <= summary.records_unnamed <= summary.records
    assert (summary.errors <= summary.counts).all()


def test_more_than_fits_the_wire_is_refused_by_who_packs() -> None:
    many = tuple(((i,), (i,)) for i in range(PAIRS_MAX + 1))
    ones = np.ones(len(many), np.int64)
    with pytest.raises(ValueError, match="pairs"):
        pack_summary(PairSummary(len(many), 0, many, ones, 0 * ones))
    long = PairSummary(9, 0, ((("x" * SUMMARY_BYTES_MAX,), (1,)),), ones[:1], 0 * ones[:1])
    with pytest.raises(ValueError, match="bytes"):
        pack_summary(long)
