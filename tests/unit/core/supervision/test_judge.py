"""How a worker is, from what is seen of it, and how long it is waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.supervision.judge import PODS, PROCESSES, Patience, Sight, judge
from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import WorkerState

SIGHT = Sight("w0", "u0", is_within_reach=True, has_ended=False, says_ready=False, is_first_start=True)


class Looks:
    """One worker, looked at again and again."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.since_s: dict[str, float] = {}

    def at(self, now_s: float, sight: Sight) -> WorkerState:
        since = SinceWhen(self.since_s, now_s)
        state = judge(sight, self.patience, since)
        self.since_s = since.after
        return state


def dead_after_s(patience: Patience, sight: Sight) -> float | None:
    looks = Looks(patience)
    for tenth in range(2000):
        if looks.at(tenth / 10, sight) is WorkerState.DEAD:
            return tenth / 10
    return None


def test_a_worker_that_says_so_is_ready_in_both_runtimes() -> None:
    for patience in (PODS, PROCESSES):
        assert Looks(patience).at(0.0, replace(SIGHT, says_ready=True)) is WorkerState.READY


def test_a_worker_whose_node_is_away_is_not_dead_whatever_else_is_seen() -> None:
    away = replace(SIGHT, is_within_reach=False, has_ended=True)
    for sight in (away, replace(away, uid=""), replace(away, has_ended=False, says_ready=True)):
        assert dead_after_s(PODS, sight) is None
        assert Looks(PODS).at(0.0, sight) is WorkerState.AWAY


def test_what_has_ended_is_dead_at_once_though_it_said_that_it_is_ready() -> None:
    for patience in (PODS, PROCESSES):
        sight = replace(SIGHT, has_ended=True, says_ready=True)
        assert dead_after_s(patience, sight) == 0.0


@pytest.mark.parametrize(
    ("sight", "pod_s", "process_s"),
    [
        (replace(SIGHT, uid=""), 2.0, 0.0),
        (SIGHT, 90.0, None),
        (replace(SIGHT, is_first_start=False), 3.0, 0.0),
    ],
)
def test_each_runtime_has_its_own_patience(sight: Sight, pod_s: float, process_s: float | None) -> None:
    assert dead_after_s(PODS, sight) == pod_s
    assert dead_after_s(PROCESSES, sight) == process_s


def test_a_grace_begins_anew_with_another_start_and_when_the_worker_was_seen_well_meanwhile() -> None:
    looks, again = Looks(PODS), replace(SIGHT, is_first_start=False)
    looks.at(0.0, again)
    assert looks.at(2.9, replace(again, uid="u1")) is WorkerState.STARTING
    assert looks.at(5.8, replace(again, uid="u1")) is WorkerState.STARTING
    looks.at(5.9, replace(again, uid="u1", says_ready=True))
    assert looks.at(6.0, replace(again, uid="u1")) is WorkerState.STARTING
    assert looks.at(9.0, replace(again, uid="u1")) is WorkerState.DEAD
