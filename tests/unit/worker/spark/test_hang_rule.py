"""When a call of user code does not return."""

from __future__ import annotations

from penstock_worker.spark.hang_rule import HangRule
from penstock_worker.task.note import Noted

S = 1_000_000


def at(shard: str = "count/0", key: str = "", works: int = 1) -> Noted:
    return Noted(7, 1, shard, key, works)


def test_one_piece_of_work_that_takes_too_long_hangs() -> None:
    rule = HangRule()
    assert [rule.is_hanging(second * S, at(), 3 * S) for second in range(6)] == [False] * 3 + [True] * 3


def test_work_that_goes_on_to_another_key_or_batch_does_not() -> None:
    keys, batches, idle = HangRule(), HangRule(), HangRule()
    for second in range(20):
        assert not keys.is_hanging(second * S, at(key=str(second // 2)), 3 * S)
        assert not batches.is_hanging(second * S, at(works=second // 2), 3 * S)
        assert not idle.is_hanging(second * S, at(shard=""), 3 * S)


def test_without_a_timeout_nothing_hangs() -> None:
    rule = HangRule()
    assert not any(rule.is_hanging(second * S, at(), 0) for second in range(100))


def test_who_looks_and_stood_still_itself_does_not_take_that_for_the_tasks_time() -> None:
    rule = HangRule()
    rule.is_hanging(0, at(), 3 * S)
    assert not rule.is_hanging(3_600 * S, at(), 3 * S)
