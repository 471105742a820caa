"""What the benches of moves work out, from commits and throughput whose figures are known beforehand."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from bench import commit_gaps, degradation
from bench.file_growth import FileGrowth
from bench.holding import GOLDEN, HOT_PARTS, PARTS
from bench.move import SIZES, key_pools

from penstock.dataflow.routing import Router


def test_the_gap_of_a_move_is_the_longest_time_between_commits_around_it() -> None:
    commits_s = np.array([0.0, 0.010, 0.020, 0.065, 0.070, 0.200])
    assert commit_gaps.longest_gap_ms(commits_s, 0.015, 0.069) == pytest.approx(45)
    assert commit_gaps.longest_gap_ms(commits_s, 0.001, 0.015) == pytest.approx(10)


def test_a_gap_that_began_before_the_move_counts_whole() -> None:
    commits_s = np.array([0.0, 0.100, 0.110])
    assert commit_gaps.longest_gap_ms(commits_s, 0.090, 0.105) == pytest.approx(100)


def test_a_gap_that_is_not_over_is_no_figure() -> None:
    with pytest.raises(ValueError, match="none after it"):
        commit_gaps.longest_gap_ms(np.array([0.0, 0.010]), 0.005, 0.020)


def test_p99_of_few_is_the_largest() -> None:
    assert commit_gaps.p99([1.0, 2.0, 9.0]) == 9.0
    assert commit_gaps.p99(np.arange(1.0, 1001.0)) == 991.0


def test_what_moves_add_to_the_others_is_found_with_an_interval_around_it() -> None:
    generator = np.random.default_rng(3)
    control = [generator.exponential(2.0, 300) for _ in range(60)]
    moved = [generator.exponential(2.0, 300) + 5.0 for _ in range(60)]
    added = commit_gaps.added_p99(moved, control)
    assert added.low_ms < 5.0 < added.high_ms
    assert added.low_ms <= added.ms <= added.high_ms
    assert added.high_ms - added.low_ms < 2.0
    nothing = commit_gaps.added_p99(control[:30], control[30:])
    assert nothing.low_ms < 0.0 < nothing.high_ms


def test_sides_without_ages_have_no_difference() -> None:
    with pytest.raises(ValueError, match="no ages"):
        commit_gaps.added_p99([np.empty(0)], [np.ones(3)])


def test_each_shard_has_as_many_keys_of_its_own_as_its_size_asks_for() -> None:
    sizes = (4 << 10, 16 << 10, 1 << 10, 64 << 10)
    pools = key_pools(sizes)
    router = Router(["bigint"], len(sizes))
    assert [len(pool) for pool in pools] == [4, 16, 1, 64]
    assert all(router.route((key,)) == shard for shard, pool in enumerate(pools) for key in pool)


def test_records_draw_their_keys_evenly() -> None:
    drawn = np.array([(number * GOLDEN % (1 << 64)) * 100 >> 64 for number in range(0, 7 * 5000, 7)])
    counts = np.bincount(drawn, minlength=100)
    assert counts.min() > 40
    assert counts.max() < 60
    assert HOT_PARTS / PARTS * 1750 == 1000
    assert len(SIZES) == 4


def test_growths_of_a_sinks_file_are_seen_in_order(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    with FileGrowth({"hold/0": file}) as watch:
        for size in (3, 7):
            with file.open("ab") as out:
                out.write(b"x" * (size - out.tell()))
            while watch.growths("hold/0")[1][-1:].tolist() != [size]:
                assert time.time() > 0
    times, sizes = watch.growths("hold/0")
    assert sizes.tolist() == [3, 7]
    assert times[0] < times[1] == watch.last_s("hold/0")


# --- degradation of throughput


def test_records_are_counted_in_the_bucket_in_which_they_came() -> None:
    at_s = np.array([10.01, 10.09, 10.11, 10.35])
    counts = degradation.buckets(at_s, np.array([2, 3, 4, 5]), 10.0, 10.5)
    assert counts.tolist() == [5, 4, 0, 5, 0]


def test_seconds_at_a_level_are_those_of_buckets_that_lost_at_least_so_much() -> None:
    counts = np.array([100, 81, 80, 79, 41, 40, 20, 0, 150, 100])
    seconds = degradation.seconds_at(counts, 100.0)
    assert seconds == {"20": 0.6, "40": 0.4, "60": 0.3, "80": 0.2, "100": 0.1}


def test_a_catch_up_makes_good_no_bucket_before_it() -> None:
    counts = np.array([0, 200])
    assert degradation.seconds_at(counts, 100.0)["100"] == 0.1
