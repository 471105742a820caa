"""The watermark that a keyed shard takes: that of its stage, when what was placed before it is worked off."""

from __future__ import annotations

from penstock.store.ownership import OwnedShard
from penstock.store.port import Claimed, FetchedShard, Watermark
from penstock_worker.stages.event_time import InputTime


def owned_at(offset: int) -> OwnedShard:
    return OwnedShard("mid/0", Claimed(1, 1, 0, offset, b"", 0, {}, finished=False))


def told(placed: int, watermark_ms: int) -> FetchedShard:
    return FetchedShard("mid/0", 1, 0, (), placed=placed, watermark=Watermark(watermark_ms))


def test_a_watermark_is_taken_when_what_was_placed_is_worked_off() -> None:
    time, owned = InputTime(), owned_at(0)
    time.told(owned, told(3, 1_000))
    assert time.taken(owned, 2) is None
    assert time.taken(owned, 3) == Watermark(1_000)


def test_one_that_is_waited_for_comes_first() -> None:
    time, owned = InputTime(), owned_at(0)
    time.told(owned, told(3, 1_000))
    time.told(owned, told(9, 2_000))
    assert time.taken(owned, 3) == Watermark(1_000)


def test_where_nothing_waits_the_newest_is_taken_since_timers_come_up_to_it() -> None:
    time, owned = InputTime(), owned_at(0)
    time.told(owned, told(3, 1_000))
    owned.offset = 3  # by a commit that took no watermark
    time.told(owned, told(3, 2_000))
    assert time.taken(owned, 3) == Watermark(2_000)


def test_one_that_the_shard_was_advanced_beyond_is_forgotten() -> None:
    time, owned = InputTime(), owned_at(0)
    time.told(owned, told(3, 1_000))
    owned.offset = 3
    owned.took(Watermark(2_000))
    time.told(owned, told(3, 2_000))
    assert time.taken(owned, 3) is None
