"""What a task makes of its shards' counters: lost, fallen off the list, or just waiting its turn."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Claimed, ShardCounters
from penstock.store.stranding import LOOKS_APART_US, StrandingWatch

BOUNDS = Bounds(outbox_bytes_max=100, outbox_entries_max=4)
OWNED = OwnedShard("mid/0", Claimed(3, 1, 7, 9, b"", 0, {}, finished=False))
IDLE = ShardCounters(3, 1, 7, 20, 20, 0, 0, 0, 0, "mid@w1", finished=False)
WAITING = replace(IDLE, inbox_entries=2, inbox_bytes=10)


@pytest.fixture
def watch() -> StrandingWatch:
    return StrandingWatch(BOUNDS, source=False)


def looks(
    watch: StrandingWatch,
    *seen: ShardCounters | None,
    in_hand: bool = False,
    apart_us: int = LOOKS_APART_US,
    begun_us: int = 0,
) -> list[bool]:
    return [
        watch.is_stranded(OWNED, counters, begun_us + number * apart_us, in_hand=in_hand)
        for number, counters in enumerate(seen)
    ]


@pytest.mark.parametrize(
    "seen",
    [None, replace(IDLE, epoch=4), replace(IDLE, generation=2)],
    ids=["gone", "epoch", "generation"],
)
def test_a_shard_under_another_epoch_is_claimed_again_at_once(
    watch: StrandingWatch, seen: ShardCounters | None
) -> None:
    assert looks(watch, seen) == [True]


def test_an_idle_shard_is_left_alone(watch: StrandingWatch) -> None:
    assert looks(watch, IDLE, IDLE, IDLE) == [False] * 3


def test_work_that_nobody_hands_out_is_seen_twice_before_it_counts(watch: StrandingWatch) -> None:
    assert looks(watch, WAITING, WAITING) == [False, True]


def test_looks_that_come_close_together_count_as_one(watch: StrandingWatch) -> None:
    assert looks(watch, WAITING, WAITING, WAITING, apart_us=1_000) == [False] * 3
    assert looks(watch, WAITING, begun_us=LOOKS_APART_US - 1) == [False]
    assert looks(watch, WAITING, begun_us=LOOKS_APART_US) == [True], "the first one is what counts"


def test_work_that_is_seen_for_long_at_many_close_looks_counts(watch: StrandingWatch) -> None:
    assert looks(watch, *[WAITING] * 6, apart_us=LOOKS_APART_US // 5) == [False] * 5 + [True]


def test_work_between_two_looks_clears_the_suspicion(watch: StrandingWatch) -> None:
    assert looks(watch, WAITING, replace(WAITING, commit=8), replace(WAITING, commit=9)) == [False] * 3


def test_a_hand_out_between_two_looks_clears_the_suspicion(watch: StrandingWatch) -> None:
    assert looks(watch, WAITING) == [False]
    watch.handed_out("mid/0")
    assert looks(watch, WAITING, begun_us=LOOKS_APART_US) == [False]


def test_a_shard_in_hand_is_not_stranded(watch: StrandingWatch) -> None:
    assert looks(watch, WAITING, WAITING, in_hand=True) == [False, False]


@pytest.mark.parametrize(
    "outbox",
    [
        {"outbox_bytes": 101},
        {"outbox_entries": 5},
        {"outbox_bytes": 31, "outbox_limit_bytes": 30.0},
    ],
)
def test_a_shard_held_for_its_outbox_is_not_stranded(watch: StrandingWatch, outbox: dict[str, Any]) -> None:
    held = replace(WAITING, **outbox)
    assert looks(watch, held, held) == [False, False]


def test_a_source_has_work_until_it_is_finished() -> None:
    assert looks(StrandingWatch(BOUNDS, source=True), IDLE, IDLE) == [False, True]
    finished = replace(IDLE, finished=True)
    assert looks(StrandingWatch(BOUNDS, source=True), finished, finished) == [False, False]
