"""Which treatment the diagnosis of StreamSwitch chooses."""

from __future__ import annotations

import pytest

from penstock.control.decision import Health, Treatment
from penstock.control.streamswitch.diagnose import (
    find_scale_out,
    find_substreams,
    worst_after_us,
)
from penstock.control.streamswitch.examination import Examination
from scenes.control_scene import Shard, examination
from scenes.diagnosed import FINE_US, LATE_US, capacity, floats, found, moved


def overloaded(second: float, **more: float) -> Examination:
    """E1 has ten shards of 90/s, E2 `second` in one."""
    shards = {f"s{i}": Shard("E1", 90, 1000.0 + i) for i in range(10)}
    extra = {f"x{name}": Shard(name, rate) for name, rate in more.items()}
    return examination(
        {"E1": (1000, LATE_US), "E2": (1000, FINE_US), **dict.fromkeys(more, (1000, FINE_US))},
        {**shards, "e": Shard("E2", second), **extra},
    )


def test_balancing_comes_first_where_it_cures() -> None:
    seen = overloaded(300)
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.LOAD_BALANCE
    # 900 | 300 becomes 630 | 570.
    assert len(moved(seen, diagnosis)) == 3


def test_the_destination_is_the_one_that_leaves_the_least() -> None:
    diagnosis = found(overloaded(500, E3=100))
    assert diagnosis.strategy is not None
    assert diagnosis.strategy.destination == 2


def test_scaling_out_comes_where_balancing_does_not_cure() -> None:
    seen = overloaded(790)
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_OUT
    assert diagnosis.strategy is not None
    # mu_d = mu_s: half and half (3.4).
    assert len(moved(seen, diagnosis)) == 5
    assert diagnosis.strategy.expected_us.tolist() == pytest.approx([1e6 / 350, 1e5, 1e6 / 350])


def test_two_severe_executors_are_not_cured_by_one_balance() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, LATE_US), "E3": (1000, FINE_US)},
        {
            "a": Shard("E1", 450),
            "b": Shard("E1", 450),
            "c": Shard("E2", 420),
            "d": Shard("E2", 420),
            "e": Shard("E3", 0),
        },
    )
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_OUT
    assert diagnosis.strategy is not None
    assert diagnosis.strategy.source == 0


def burst(**arrivals: tuple[int, float]) -> Examination:
    """Executors of 1000/s by what arrives, in two shards each, and how late they are."""
    return examination(
        {name: (1000, late_us) for name, (_, late_us) in arrivals.items()},
        {f"{name}-{n}": Shard(name, rate / 2) for name, (rate, _) in arrivals.items() for n in range(2)},
    )


def test_executors_that_a_burst_overloads_scale_out_side_by_side_the_worst_first() -> None:
    # All at 800/s at most: one after the other would take as many treatments.
    seen = burst(E1=(900, LATE_US), E2=(1100, LATE_US), E3=(700, FINE_US))
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_OUT
    assert [(x.source, x.destination) for x in diagnosis.strategies] == [(1, None), (0, None)]
    # 1 / (800 - 550) is the worst: E3 keeps 1 / 100, which is more.
    assert worst_after_us(diagnosis.expected_us, diagnosis.strategies) == pytest.approx(1e6 / 100)


def test_with_a_scale_out_goes_one_for_who_will_be_late_before_it_is_over() -> None:
    seen = burst(E1=(1100, LATE_US), E2=(900, FINE_US), E3=(700, FINE_US))
    assert [x.source for x in found(seen).strategies] == [0, 1]
    # By itself nobody is relieved who is not late (3.3).
    assert found(burst(E1=(700, FINE_US), E2=(900, FINE_US))).strategies == ()


def test_no_more_scale_outs_than_are_allowed_and_the_severe_ones_first() -> None:
    seen = burst(E1=(900, LATE_US), E2=(1100, LATE_US), E3=(1200, FINE_US))
    assert [x.source for x in found(seen, more=2).strategies] == [1, 0]
    assert [x.source for x in found(seen, more=1).strategies] == [1]


def test_the_source_is_the_fullest_where_all_latencies_are_infinite() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, LATE_US)},
        {
            "a": Shard("E1", 600),
            "b": Shard("E1", 600),
            "c": Shard("E2", 900),
            "d": Shard("E2", 900),
        },
    )
    diagnosis = found(seen)
    assert diagnosis.strategy is not None
    assert diagnosis.strategy.source == 1
    assert diagnosis.treatment is Treatment.SCALE_OUT


def test_in_overload_something_moves_although_all_latencies_stay_infinite() -> None:
    # 3000/s of 800/s: by L alone infinite is not below infinite, and nothing would ever move.
    seen = examination({"E1": (1000, LATE_US)}, {f"s{i}": Shard("E1", 300) for i in range(10)})
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_OUT
    assert len(moved(seen, diagnosis)) == 5


def test_at_the_limit_an_overload_is_spread_evenly_and_then_left() -> None:
    shards = {f"s{i}": Shard("E1", 200) for i in range(10)} | {"e": Shard("E2", 900), "f": Shard("E2", 100)}
    seen = examination({"E1": (1000, LATE_US), "E2": (1000, LATE_US)}, shards)
    diagnosis = found(seen, more=0)
    assert (diagnosis.treatment, diagnosis.rule) == (Treatment.LOAD_BALANCE, "load-balance-eases")
    # 2000 | 1000 becomes 1400 | 1600 or 1600 | 1400: two or three shards, of equals the fewer.
    assert len(moved(seen, diagnosis)) == 2
    even = {f"s{i}": Shard("E1" if i < 5 else "E2", 300) for i in range(10)}
    left = found(examination({"E1": (1000, LATE_US), "E2": (1000, LATE_US)}, even), more=0)
    assert (left.treatment, left.rule) == (Treatment.HOLD, "at-limit")


def test_at_the_limit_a_small_gain_is_not_worth_a_move() -> None:
    # 1500 | 1440 could become 1470 | 1470: two percent.
    shards = {f"s{i}": Shard("E1", 30) for i in range(50)} | {f"t{i}": Shard("E2", 30) for i in range(48)}
    seen = examination({"E1": (1000, LATE_US), "E2": (1000, LATE_US)}, shards)
    assert found(seen, more=0).treatment is Treatment.HOLD


def test_an_executor_with_one_overloaded_shard_cannot_be_helped() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, FINE_US)}, {"hot": Shard("E1", 1200), "e": Shard("E2", 10)}
    )
    diagnosis = found(seen)
    assert (diagnosis.treatment, diagnosis.rule) == (Treatment.HOLD, "incurable")
    assert diagnosis.incurable == (0,)
    assert diagnosis.health is Health.SEVERE


def test_who_cannot_be_helped_keeps_nobody_else_from_it() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (1000, LATE_US), "E3": (1000, FINE_US)},
        {
            "hot": Shard("E1", 1200),
            "c": Shard("E2", 450),
            "d": Shard("E2", 450),
            "e": Shard("E3", 10),
        },
    )
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.LOAD_BALANCE
    assert diagnosis.strategy is not None
    assert (diagnosis.strategy.source, diagnosis.strategy.destination) == (1, 2)
    assert diagnosis.incurable == (0,)


def test_light_shards_are_parted_from_one_that_is_too_heavy() -> None:
    seen = examination(
        {"E1": (1000, LATE_US)},
        {"hot": Shard("E1", 1200, 1000), **{f"s{i}": Shard("E1", 50, 2000.0 + i) for i in range(4)}},
    )
    diagnosis = found(seen)
    assert diagnosis.treatment is Treatment.SCALE_OUT
    assert moved(seen, diagnosis) == ["hot"]


def test_a_scale_out_that_gains_next_to_nothing_is_left_out() -> None:
    seen = examination(
        {"E1": (1000, LATE_US)}, {"hot": Shard("E1", 1200, 2000), "light": Shard("E1", 1, 1000)}
    )
    assert found(seen).treatment is Treatment.HOLD


def test_a_faster_executor_takes_more() -> None:
    seen = examination(
        {"E1": (1000, LATE_US), "E2": (3000, FINE_US)},
        {**{f"s{i}": Shard("E1", 100, 1000.0 + i) for i in range(10)}, "e": Shard("E2", 100)},
    )
    diagnosis = found(seen)
    # 800 - left = 2400 - 100 - taken; left + taken = 1000: nine leave 100 and 1000, of all but one the most.
    assert diagnosis.treatment is Treatment.LOAD_BALANCE
    assert len(moved(seen, diagnosis)) == 9


def test_scale_out_of_a_single_shard_finds_nothing() -> None:
    seen = examination({"E1": (1000, LATE_US)}, {"s0": Shard("E1", 900)})
    assert find_scale_out(seen, 0, capacity(seen)) is None
    assert find_substreams(seen, 0, 800.0, floats(0), floats(800)) == []
