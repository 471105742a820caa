"""An end-to-end bound over operators: in proportion at first, then after success (StreamSwitch, section
6.6)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.split_sla import (
    WEIGHT_MIN,
    EndToEndSplit,
    adjusted_weights,
    bounds_us,
    first_weights,
)
from penstock.control.target import LatencyTarget
from scenes.control_scene import decision, view

SECOND = 1_000_000


def test_bounds_begin_in_proportion_to_service_time() -> None:
    # Split takes 1 ms a row, Count 3 ms: of 2 s they get 0.5 s and 1.5 s.
    weights = first_weights({"split": 1000.0, "count": 3000.0})
    assert bounds_us(2 * SECOND, weights) == {
        "split": pytest.approx(500_000),
        "count": pytest.approx(1_500_000),
    }


def test_a_service_time_that_is_not_known_is_the_mean_of_the_others() -> None:
    assert first_weights({"a": 1000.0, "b": 3000.0, "c": None})["c"] == pytest.approx(2 / 3)
    assert first_weights({"a": None, "b": None}) == {"a": 1.0, "b": 1.0}
    with pytest.raises(ValueError, match="service times"):
        first_weights({"a": 0.0})


def test_no_operator_gets_next_to_nothing() -> None:
    weights = first_weights({"fast": 1.0, "slow": 1e6})
    assert weights == {"fast": WEIGHT_MIN, "slow": 1.0}


def test_who_succeeds_less_gets_more() -> None:
    # exp(2 * 0.05) and exp(-2 * 0.05) around a mean of 0.9, then in shares of the greatest.
    weights = adjusted_weights({"a": 1.0, "b": 1.0}, {"a": 0.85, "b": 0.95})
    assert weights == {"a": 1.0, "b": pytest.approx(math.exp(-0.2))}


def test_equal_success_changes_nothing() -> None:
    assert adjusted_weights({"a": 1.0, "b": 0.5}, {"a": 0.9, "b": 0.9}) == {"a": 1.0, "b": 0.5}


def test_success_that_was_not_measured_changes_nothing() -> None:
    weights = {"a": 1.0, "b": 0.5}
    assert adjusted_weights(weights, {"a": 0.1, "b": None}) == weights
    assert adjusted_weights(weights, {}) == weights


def test_success_of_unequal_operators_equalises() -> None:
    # An operator's success grows with its bound: here 1 - exp(-L_i / scale).
    scales = {"split": 100_000.0, "count": 400_000.0}
    weights = first_weights(dict.fromkeys(scales))
    for _ in range(200):
        bounds = bounds_us(SECOND, weights)
        success: dict[str, float | None] = {
            name: 1 - math.exp(-bounds[name] / scale) for name, scale in scales.items()
        }
        weights = adjusted_weights(weights, success)
    assert bounds["count"] == pytest.approx(800_000, rel=0.01)
    assert success["split"] == pytest.approx(success["count"], abs=0.005)


def test_along_no_path_bounds_are_more_than_the_whole() -> None:
    # a -> b -> d and a -> c -> d with weights 1, 3, 1, 1: the heaviest path weighs 5, and c is on one of 3.
    weights = {"a": 1.0, "b": 3.0, "c": 1.0, "d": 1.0}
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    bounds = bounds_us(SECOND, weights, edges)
    assert bounds == {
        "a": pytest.approx(200_000),
        "b": pytest.approx(600_000),
        "c": pytest.approx(1_000_000 / 3),
        "d": pytest.approx(200_000),
    }


@given(
    st.lists(st.floats(0.05, 1), min_size=2, max_size=6),
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5))),
)
def test_every_path_of_every_graph_keeps_the_whole(values: list[float], pairs: set[tuple[int, int]]) -> None:
    weights = {f"o{i}": value for i, value in enumerate(values)}
    edges = [(f"o{a}", f"o{b}") for a, b in sorted(pairs) if a < b < len(values)]
    if not edges:
        assert sum(bounds_us(SECOND, weights).values()) == pytest.approx(SECOND)
        return
    bounds = bounds_us(SECOND, weights, edges)

    def longest(operator: str) -> float:
        return bounds[operator] + max((longest(down) for up, down in edges if up == operator), default=0.0)

    assert max(longest(operator) for operator in weights) == pytest.approx(SECOND)


def test_what_is_no_path_is_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        bounds_us(SECOND, {"a": 1.0, "b": 1.0}, [("a", "b"), ("b", "a")])
    with pytest.raises(ValueError, match="edges name c"):
        bounds_us(SECOND, {"a": 1.0}, [("a", "c")])
    with pytest.raises(ValueError, match="latency of 0"):
        bounds_us(0, {"a": 1.0})


def looked(split: EndToEndSplit, at_us: int, split_us: float, count_us: float) -> bool:
    return split.look(
        decision(at_us, operator=name, seen=(view("E1", instantaneous_us=us, service_per_s=rate),))
        for name, us, rate in (("split", split_us, 1000.0), ("count", count_us, 500.0))
    )


def test_a_split_follows_service_times_and_then_success() -> None:
    target = LatencyTarget(latency_us=1, alert_us=400_000)
    split = EndToEndSplit(900_000, {"split": target, "count": target}, interval_us=10 * SECOND)
    assert split.targets["split"].latency_us == pytest.approx(450_000)
    # 1 ms and 2 ms a row.
    assert looked(split, 0, 1000, 1000)
    assert split.targets["split"].latency_us == pytest.approx(300_000)
    assert split.targets["split"].alert_us == pytest.approx(300_000)
    assert split.targets["count"].alert_us == 400_000
    for second in range(1, 10):
        # Split is above its 300 ms in every third look, Count never above its 600 ms.
        assert not looked(split, second * SECOND, 350_000 if second % 3 == 0 else 1000, 1000)
    assert looked(split, 10 * SECOND, 1000, 1000)
    assert split.targets["split"].latency_us > 300_000
    assert sum(one.latency_us for one in split.targets.values()) == pytest.approx(900_000)


def test_a_split_that_saw_nothing_stays() -> None:
    target = LatencyTarget(latency_us=1)
    split = EndToEndSplit(SECOND, {"split": target}, service_us={"split": 1000.0})
    assert not split.look([decision(at_us, operator="split") for at_us in (0,)])
    assert not split.look([decision(100 * SECOND, operator="split")])
    assert not split.look([decision(0, operator="elsewhere")])
