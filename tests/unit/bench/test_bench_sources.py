"""What the bench of sources works out, from totals and batches whose figures are known beforehand."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from bench.kafka_feed import PARTITIONS, fed_keys, message, partition_of
from bench.kafka_figures import Ages, Came, Kept, ages, came, full_batches, kept, once
from bench.kafka_sides import settings, tuned
from bench.kafka_watch import totals
from bench.load import RatePlan, Segment, ZipfKeys
from bench.sink_log import Rows, arrivals
from bench.spark_peer import Settings

KEYS = np.array([3, 3, 5, 3], dtype=np.int64)
"""Of the records that were fed."""


def rows(*found: tuple[int, int, int]) -> Rows:
    """(key, total, microseconds of its arrival)."""
    table = np.array(found, dtype=np.int64).reshape(len(found), 3)
    return Rows(table[:, 0], table[:, 1], table[:, 2])


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (rows((3, 2, 0), (5, 1, 0), (3, 3, 0)), Kept(0, 0)),
        (rows((3, 3, 0), (5, 1, 0)), Kept(0, 0)),
        (rows((3, 2, 0), (5, 1, 0)), Kept(1, 0)),
        (rows((3, 3, 0)), Kept(1, 0)),
        (rows(), Kept(4, 0)),
        (rows((3, 3, 0), (5, 1, 0), (3, 3, 9)), Kept(0, 1)),
        (rows((3, 4, 0), (5, 1, 0)), Kept(0, 1)),
        (rows((3, 3, 0), (5, 1, 0), (8, 2, 0)), Kept(0, 2)),
    ],
    ids=["all", "in fewer rows", "a total short", "a key short", "nothing", "again", "too much", "strange"],
)
def test_what_is_lost_and_what_is_doubled_is_counted(found: Rows, expected: Kept) -> None:
    assert kept(found, KEYS) == expected


def test_a_record_is_as_old_as_when_the_total_that_counts_it_came() -> None:
    plan = RatePlan((Segment(0, 0, 1_000.0),))
    arrived = arrivals(rows((3, 2, 10_000), (5, 1, 20_000), (3, 3, 34_000)), KEYS)
    # Due at 1, 2, 3 and 4 ms: 9, 8, 17 and 30 ms old.
    assert ages(arrived, plan, 0.0, 0.0041) == Ages(p50_ms=13.0, p99_ms=29.6, due=4)
    assert ages(arrived, plan, 0.0, 0.0021) == Ages(p50_ms=8.5, p99_ms=9.0, due=2)
    assert ages(arrived, plan, 1.0, 2.0).p99_ms is None


def test_what_came_is_counted_between_two_moments_at_which_something_came() -> None:
    arrived = arrivals(rows((3, 2, 10_000), (5, 1, 20_000), (3, 3, 34_000)), KEYS)
    assert came(arrived, 0.0, 1.0) == Came(2, 0.010, 0.034)
    assert came(arrived, 0.0, 0.030) == Came(1, 0.010, 0.020)
    assert came(arrived, 0.0, 0.015) is None
    assert came(arrived, 1.0, 2.0) is None


def test_of_a_row_that_is_there_again_the_first_one_counts() -> None:
    found = once(rows((3, 2, 50), (5, 1, 20), (3, 2, 10)))
    assert sorted(zip(found.keys, found.totals, found.at_us, strict=True)) == [(3, 2, 10), (5, 1, 20)]


def test_only_full_batches_behind_the_warm_up_are_a_systems_best() -> None:
    batches = [(10.0, 3.0, 100), (13.0, 1.0, 100), (14.0, 1.0, 99), (15.0, 1.0, 40), (16.0, 1.0, 100)]
    assert full_batches(batches, 100, 3.0, 10.0) == [batches[1], batches[2], batches[4]]
    assert full_batches(batches, 100, 3.0, 1.0) == [batches[1]]
    assert full_batches([], 100, 3.0, 1.0) == []


def test_both_sides_are_given_the_benches_records_by_key() -> None:
    keys = fed_keys(1_000)
    assert keys.tolist() == ZipfKeys().of(0, 1_000).tolist()
    assert [json.loads(message(key))["key"] for key in keys[:20].tolist()] == keys[:20].tolist()
    assert {partition_of(key) for key in keys.tolist()} == set(range(PARTITIONS))


def test_what_either_side_writes_is_read_as_totals() -> None:
    keys, found = totals([b'{"key":7,"total":2}', b'{"key": 8, "total": 1}'])
    assert (keys.tolist(), found.tolist()) == ([7, 8], [2, 1])


def test_the_settings_are_ones_that_both_sides_take() -> None:
    given = settings()
    for profile in given["spark"].values():
        assert msgspec.convert(profile, Settings).spark_conf()["spark.master"] == "local[2]"
    assert given["spark"]["best"]["max_records"] > 0
    for profile in given["penstock"].values():
        assert len(tuned(profile, "ExactlyOnce")) == len(tuned(profile, "AtLeastOnce")) + 1
    assert set(given["within_1s_per_s"]) == {"penstock", "spark"}
