"""What `make bench-schedule` makes of what it sees of a move: parts in order, the worker's own commits."""

from __future__ import annotations

from bench.first_commits import Arrival
from bench.schedule_moves import STAGES, until_ms
from msgspec.structs import replace

from penstock.store.port import ShardCounters, ShardStatus, TaskMap

AT_SOURCE = ShardCounters(7, 1, 40, 0, 0, 0, 0, 0, 0, "count@b", finished=False)
THERE = replace(AT_SOURCE, executor="", status=ShardStatus.INSTALLING)
ACTIVE = replace(THERE, status=ShardStatus.ACTIVE)
CLAIMED = replace(ACTIVE, executor="count@a")


def seen(*looks: ShardCounters | None) -> dict[str, float]:
    """Part -> number of the look at which a move to worker a has it behind it."""
    arrival = Arrival("count/0", "a")
    for number, now in enumerate(looks):
        arrival.look(now, number)
    return arrival.seen_s


def test_each_part_of_an_arrival_is_told_when_it_is_first_seen() -> None:
    found = seen(None, THERE, THERE, ACTIVE, CLAIMED, CLAIMED, replace(CLAIMED, commit=41))
    assert found == {"arriving": 1, "active": 3, "claimed": 4, "committed": 6}


def test_a_part_that_was_too_short_to_be_seen_has_the_next_ones_time() -> None:
    assert seen(THERE, replace(CLAIMED, commit=41)) == {
        "arriving": 0,
        "active": 1,
        "claimed": 1,
        "committed": 1,
    }


def test_a_tombstone_of_an_earlier_stay_is_no_arrival() -> None:
    assert seen(replace(AT_SOURCE, executor="", commit=0, status=ShardStatus.MOVED)) == {}
    assert seen(replace(CLAIMED, status=ShardStatus.DEPARTED)) == {}


def test_commits_of_the_owner_before_are_not_the_workers() -> None:
    cleared = replace(THERE, commit=0)
    assert "committed" not in seen(cleared, CLAIMED)
    assert seen(cleared, CLAIMED, replace(CLAIMED, commit=41))["committed"] == 2


def test_a_claim_in_the_same_store_is_seen_too() -> None:
    found = seen(
        AT_SOURCE,
        replace(AT_SOURCE, commit=43),
        replace(CLAIMED, commit=43),
        replace(CLAIMED, commit=44),
    )
    assert found == {"arriving": 0, "active": 0, "claimed": 2, "committed": 3}


def test_a_shard_is_named_only_under_the_schedule_that_was_asked_for() -> None:
    arrival = Arrival("count/0", "a")
    arrival.look_at_maps(TaskMap("a/1/1", {"count/0": "ready"}, version=4), 5, 0.0)
    assert arrival.seen_s == {}
    arrival.look_at_maps(TaskMap("a/1/1", {}, version=5), 5, 1.0)
    arrival.look_at_maps(TaskMap("a/1/1", {"count/0": "ready"}, version=6), 5, 2.0)
    assert arrival.seen_s == {"published": 1.0, "named": 2.0}


def test_stages_are_told_for_all_moves_and_for_the_slowest_tenth() -> None:
    moves = [dict.fromkeys(STAGES, float(number)) for number in range(1, 101)]
    found = until_ms(moves)
    assert set(found) == set(STAGES)
    assert found["committed"] == {"p50": 50.5, "p99": 100.0, "slowest_tenth": 95.5}


def test_the_slowest_moves_are_those_whose_commit_came_last() -> None:
    usual = [{**dict.fromkeys(STAGES, 10.0), "committed": 30.0} for _ in range(19)]
    slow = {**dict.fromkeys(STAGES, 12.0), "claimed": 80.0, "committed": 90.0}
    found = until_ms([slow, *usual])
    assert found["claimed"] == {"p50": 10.0, "p99": 80.0, "slowest_tenth": 45.0}
