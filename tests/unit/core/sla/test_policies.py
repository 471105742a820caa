"""Which code keeps which LatencySLA."""

from __future__ import annotations

import pytest

from penstock.control.guard import Guard
from penstock.control.policy import Policy
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.sla.policies import EndToEnd, has_single_tasks, policy_of
from penstock.sla.promise import Promise


def policy(name: str, *operators: str, operator: str = "") -> Policy:
    targets = {name: LatencyTarget(latency_us=100_000, alert_us=100_000) for name in operators}
    scope = Scope(targets, dict.fromkeys(operators, TaskLimits(1, 4)))
    promise = Promise("fast", operator, name, 300_000, 1_000_000, 100_000, False, scope)
    return policy_of(promise, (("orders", "a"), ("a", "b")))


@pytest.mark.parametrize("name", ["StreamSwitch", "Elasticutor", "Hybrid"])
def test_every_policy_of_the_manifest_is_guarded(name: str) -> None:
    assert isinstance(policy(name, "a", operator="a"), Guard)


@pytest.mark.parametrize(("name", "windows"), [("StreamSwitch", 1), ("Elasticutor", 2), ("Hybrid", 2)])
def test_a_task_is_given_up_after_two_windows_in_good_health_under_streamswitch_after_one(
    name: str, windows: int
) -> None:
    guard = policy(name, "a", operator="a")
    assert isinstance(guard, Guard)
    window_us = LatencyTarget(latency_us=100_000).window_us
    assert guard._rules.scale_in_after_us == windows * window_us


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="no policy Guess"):
        policy("Guess", "a")


def test_an_end_to_end_bound_over_several_operators_is_split_by_the_policy() -> None:
    found = policy("StreamSwitch", "a", "b")
    assert isinstance(found, EndToEnd)
    assert {name: target.latency_us for name, target in found.targets.items()} == {
        "a": 150_000,
        "b": 150_000,
    }


def test_an_end_to_end_bound_over_one_operator_is_its_own() -> None:
    assert isinstance(policy("StreamSwitch", "a"), Guard)


def test_only_streamswitch_has_executors_of_one_task() -> None:
    assert [has_single_tasks(name) for name in ("StreamSwitch", "Elasticutor", "Hybrid")] == [
        True,
        False,
        False,
    ]
