"""What the bench of peers works out, and what it starts them with."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from bench.load import RatePlan, Segment
from bench.peers import sides
from bench.peers.comparison import BOUNDS_MS, PACES_PER_S, SYSTEMS, drawn, reason, table
from bench.peers.figures import Full, Held, Killed, named, quantiles, told_again
from bench.peers.ladder import HIGHEST_PER_S, LOWEST_PER_S, highest, next_rate
from bench.sink_log import Follower, Rows, append, arrivals
from bench.spark_peer import Settings


def rows(*found: tuple[int, int, int]) -> Rows:
    """(key, total, microseconds of its arrival)."""
    table = np.array(found, dtype=np.int64).reshape(len(found), 3)
    return Rows(table[:, 0], table[:, 1], table[:, 2])


def climbed(limit: float, *tried: float) -> tuple[float, list[float]]:
    """What the ladder finds for a system that holds rates up to a limit, and what it tried for it."""
    held = {rate: rate <= limit for rate in tried}
    steps = []
    while (rate := next_rate(held)) is not None:
        assert len(steps) < 20, "the ladder has an end"
        steps.append(rate)
        held[rate] = rate <= limit
    return highest(held), steps


@pytest.mark.parametrize("limit", [130, 700, 1_000, 3_300, 9_999, 10_000, 47_000, 159_000])
def test_the_ladder_finds_what_a_system_holds_within_its_steps(limit: float) -> None:
    found, steps = climbed(limit, 1_000.0, 10_000.0)
    assert limit / 1.55 <= found <= limit
    assert len(steps) <= 6


def test_the_ladder_ends_at_both_of_its_ends() -> None:
    assert climbed(1, 1_000.0)[0] == 0
    assert min(climbed(1, 1_000.0)[1]) == LOWEST_PER_S
    assert climbed(1e9, 1_000.0, 10_000.0)[0] == HIGHEST_PER_S


def test_a_step_that_failed_by_chance_below_one_that_held_is_no_end_of_the_ladder() -> None:
    assert next_rate({1_000.0: True, 10_000.0: False, 20_000.0: True}) == 40_000.0


def test_quantiles_are_told_only_where_what_was_due_came() -> None:
    plan = RatePlan((Segment(0, 0, 1_000.0),))
    keys = np.array([3, 3, 5, 3], dtype=np.int64)
    arrived = arrivals(rows((3, 2, 10_000), (5, 1, 20_000), (3, 3, 34_000)), keys)
    # Due at 1, 2, 3 and 4 ms: 9, 8, 17 and 30 ms old.
    assert quantiles(arrived, plan, 0.0, 0.0041) == (13.0, 29.6)
    assert quantiles(arrived, plan, 0.0, 0.0061) == (None, None)
    assert quantiles(arrived, plan, 0.0, 0.0005) == (None, None)


def test_rows_that_tell_nothing_new_behind_a_kill_are_counted() -> None:
    found = rows((3, 1, 10), (3, 2, 20), (5, 4, 30), (3, 2, 110), (5, 3, 120), (3, 3, 130), (3, 3, 140))
    assert told_again(found, 100) == (3, 130)
    assert told_again(found, 200) == (0, None)
    assert told_again(rows((3, 1, 10), (7, 1, 110)), 100) == (0, 110)
    assert told_again(rows(), 100) == (0, None)


def test_a_log_is_followed_as_it_grows(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    assert follower.records() == 0
    append(tmp_path, 7, np.array([3, 5]), np.array([2, 1]))
    assert follower.records() == 3
    append(tmp_path, 9, np.array([9]), np.array([4]))
    path = next(tmp_path.glob("*.log"))
    with path.open("ab") as file:
        file.write(np.array([11, 1, 3], dtype=np.int64).tobytes())
    assert follower.records() == 7
    with path.open("ab") as file:
        file.write(np.array([5], dtype=np.int64).tobytes())
    assert follower.records() == 10
    found = follower.rows()
    assert list(zip(found.keys, found.totals, found.at_us, strict=True)) == [
        (3, 2, 7),
        (5, 1, 7),
        (9, 4, 9),
        (3, 5, 11),
    ]


def test_a_system_is_named_with_all_its_figures() -> None:
    quiet = Held(1_000.0, 2.0, 9.0, 1_000.0, 0.25, 0.1)
    busy = Held(1_000.0, 4.0, 80.0, 1_000.0, 0.5, 0.1)
    over = Held(10_000.0, None, None, 6_000.0, 1.5, 0.2)
    slow = Held(4_000.0, 300.0, 700.0, 4_000.0, 1.0, 0.2)
    found = named(
        "once",
        {1_000.0: (quiet, busy), 10_000.0: (over, None)},
        {held.rate_per_s: held for held in (quiet, over, slow)},
        Full(8_000.0, 1.6, 0.1, by_feed=False),
        Killed(5, 0, 2.5, 30),
        BOUNDS_MS,
    )
    assert found["1000"]["busy_p99_ms"] == 80.0
    assert found["10000"]["p99_ms"] is None
    assert found["10000"]["busy_p99_ms"] is None
    assert (found["p99_1s_per_s"], found["p99_1s_per_cpu_s"]) == (4_000.0, 4_000.0)
    assert (found["p99_100ms_per_s"], found["p99_100ms_per_cpu_s"]) == (1_000.0, 4_000.0)
    assert found["unbounded_per_cpu_s"] == 5_000.0
    assert (found["duplicates_after_kill"], found["lost_after_kill"]) == (5, 0)
    assert [step["per_s"] for step in found["steps"]] == [1_000.0, 4_000.0, 10_000.0]
    missing = {"promise": "once", "missing": "NoPeerError: no wheel"}
    result = {"systems": {"penstock": found, "bytewax": missing}, "spinning": 2}
    assert table(result).row_count == 2
    panes, twice = drawn(result)
    assert list(panes.values()) == [{"Penstock Process": (9.0, 80.0)}, {"Penstock Process": (None, None)}]
    assert twice == {"Penstock Process": 5}


def test_the_systems_are_those_that_were_asked_for() -> None:
    assert {"penstock", "penstock_disk", "spark_micro_batch", "spark_rtm_jvm", "spark_rtm_jvm_10s"} < set(
        SYSTEMS
    )
    assert {"pyflink", "flink_java", "bytewax"} < set(SYSTEMS)
    for name in ("pyflink", "flink_java"):
        assert {f"{name}_heap_1s", f"{name}_rocksdb_1s", f"{name}_rocksdb_10s"} < set(SYSTEMS)
    assert PACES_PER_S == (1_000, 10_000)


def test_the_settings_are_ones_that_each_side_takes(tmp_path: Path) -> None:
    given = sides.settings()
    assert msgspec.convert(given["spark_micro_batch"], Settings).max_records > 0
    assert given["spark_rtm_jvm"]["conf"]["spark.shuffle.streaming.networkBufferMaxWaitTimeMs"] == "1"
    conf = sides.flink_conf(given["flink"], "rocksdb", "1 s", tmp_path)
    assert conf["state.backend.type"] == "rocksdb"
    assert conf["execution.checkpointing.interval"] == "1 s"
    assert "execution.state-recovery.path" not in conf
    assert all("==" in line for line in sides.PINS.read_text().splitlines() if not line.startswith("#"))


def test_flink_goes_on_from_its_last_whole_checkpoint(tmp_path: Path) -> None:
    for number, whole in ((8, True), (9, True), (10, False)):
        folder = tmp_path / "checkpoints" / "job" / f"chk-{number}"
        folder.mkdir(parents=True)
        if whole:
            (folder / "_metadata").touch()
            os.utime(folder / "_metadata", (number, number))
    conf = sides.flink_conf(sides.settings()["flink"], "hashmap", "1 s", tmp_path)
    assert conf["execution.state-recovery.path"].endswith("/job/chk-9")


def test_java_reads_what_is_written_for_it(tmp_path: Path) -> None:
    written = sides.properties(tmp_path / "run", {"a": "b", **sides.prefixed("conf", {"x.y": "1 s"})})
    assert written.read_text() == "a=b\nconf.x.y=1 s\n"


def test_what_a_peer_lacks_is_told_in_a_line() -> None:
    said = "loaded\nCaused by: A: outer\n\tat x.y(Z.java:7)\nCaused by: B: no module\n\tat x.y(Z.java:9)\n\n"
    assert reason(RuntimeError(said)) == "RuntimeError: Caused by: B: no module"
    assert reason(RuntimeError("Traceback:\nKeyError: 'key'\n")) == "RuntimeError: KeyError: 'key'"
    assert reason(RuntimeError("")) == "RuntimeError: it said nothing"
