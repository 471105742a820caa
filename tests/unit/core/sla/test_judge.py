"""Whether a target was kept: shard by shard, window by window (StreamSwitch, section 6)."""

from __future__ import annotations

import pytest

from penstock.control.target import LatencyTarget
from penstock.metrics.rows import ShardRow
from penstock.sla.judge import Judged, WindowJudge

A, B = "count/0", "count/1"
DELTA_US = 100_000
TARGET = LatencyTarget(latency_us=250_000, window_us=1_000_000, alert_us=100_000, interval_us=DELTA_US)


def row(rows: int, latency_us: int, epoch: int = 1, busy_us: int = 0) -> ShardRow:
    """Sums over `rows`, each so old: half of it waited, half of it served."""
    half = rows * latency_us // 2
    return ShardRow(epoch, 1, 0, rows, busy_us, half, half)


class Scene:
    """A judge, and the time; each look is one interval after the last."""

    def __init__(self, *shards: str) -> None:
        self.judge = WindowJudge(TARGET, shards or (A,))
        self.at_us = 0

    def look(self, rows: dict[str, ShardRow], waiting: dict[str, int | None] | None = None) -> Judged | None:
        self.at_us += DELTA_US
        return self.judge.take(self.at_us, rows, waiting or {})

    def judged(self, rows: dict[str, ShardRow], waiting: dict[str, int | None] | None = None) -> Judged:
        found = self.look(rows, waiting)
        assert found is not None
        return found


def test_the_first_look_judges_nothing() -> None:
    assert Scene().look({A: row(5, 10_000)}) is None


def test_the_average_is_of_the_rows_completed_in_the_window() -> None:
    scene = Scene()
    scene.look({A: row(5, 999_000)})
    first = ShardRow(1, 1, 0, 5 + 10, 0, 5 * 499_500 + 10 * 100_000, 5 * 499_500 + 10 * 100_000)
    assert scene.judged({A: first}).mean_us == pytest.approx(200_000)


def test_rows_leave_the_window_after_t() -> None:
    scene = Scene()
    scene.look({})
    assert scene.judged({A: row(4, 400_000)}).worst_us == pytest.approx(400_000)
    for _ in range(9):
        assert scene.judged({A: row(4, 400_000)}).worst_us == pytest.approx(400_000)
    gone = scene.judged({A: row(4, 400_000)})
    assert (gone.worst_us, gone.judged) == (None, 0)


def test_each_shard_is_judged_by_itself() -> None:
    scene = Scene(A, B)
    scene.look({})
    judged = scene.judged({A: row(99, 10_000), B: row(1, 300_000)})
    assert (judged.kept, judged.judged) == (1, 2)
    assert judged.worst_shard == B
    assert judged.mean_us == pytest.approx((99 * 10_000 + 300_000) / 100)
    assert scene.judge.success_of_shards() == {A: 1.0, B: 0.0}
    assert scene.judge.success() == 0.5


def test_a_window_at_the_bound_is_kept() -> None:
    scene = Scene()
    scene.look({})
    assert scene.judged({A: row(2, 250_000)}).kept == 1
    assert scene.judged({A: row(4, 250_002)}).kept == 0


def test_a_window_without_completions_is_not_judged_where_nothing_waits() -> None:
    scene = Scene()
    scene.look({})
    judged = scene.judged({}, {A: 0})
    assert (judged.kept, judged.judged) == (0, 0)
    assert scene.judge.success() is None
    assert scene.judge.success_recent() is None


def test_rows_that_wait_longer_than_the_bound_without_a_completion_fail_the_window() -> None:
    scene = Scene()
    scene.look({}, {A: 1})
    counts = [scene.judged({}, {A: 1}).judged for _ in range(4)]
    # Seen to wait at 0.2 s: 0.1, 0.2, 0.3 s later the bound of 0.25 s is over.
    assert counts == [0, 0, 0, 1]
    assert scene.judge.success() == 0.0


def test_an_unknown_backlog_is_no_backlog_that_fails() -> None:
    scene = Scene()
    scene.look({}, {A: None})
    assert [scene.judged({}, {A: None}).judged for _ in range(5)] == [0] * 5


def test_rows_of_a_new_owner_begin_at_zero() -> None:
    scene = Scene()
    scene.look({A: row(100, 10_000)})
    judged = scene.judged({A: row(4, 80_000, epoch=2)})
    assert judged.mean_us == pytest.approx(80_000)
    assert judged.completed_per_s == pytest.approx(4.0)


def test_busy_time_is_told_as_cores() -> None:
    scene = Scene(A, B)
    scene.look({})
    judged = scene.judged({A: row(1, 10, busy_us=400_000), B: row(1, 10, busy_us=800_000)})
    assert judged.busy_cores == pytest.approx(1.2)


def test_success_is_shown_over_five_minutes_and_since_the_start() -> None:
    scene = Scene()
    scene.look({})
    assert scene.judged({A: row(1, 900_000)}).kept == 0
    scene.at_us += 301_000_000
    # The late row has left the window long ago; one that is in time comes.
    sums = ShardRow(1, 1, 0, 2, 0, 450_000 + 5, 450_000 + 5)
    assert scene.judged({A: sums}).kept == 1
    assert scene.judge.success_recent() == 1.0
    assert scene.judge.success() == 0.5


def test_another_bound_holds_from_then_on() -> None:
    scene = Scene()
    scene.look({})
    assert scene.judged({A: row(1, 200_000)}).kept == 1
    scene.judge.retarget(LatencyTarget(latency_us=150_000, alert_us=100_000))
    assert scene.judged({A: row(2, 200_000)}).kept == 0
    assert scene.judge.success() == 0.5
