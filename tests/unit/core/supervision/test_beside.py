"""When a Spark worker that stands beside a worker leaves."""

from __future__ import annotations

from dataclasses import replace

from penstock.supervision.beside import LINGER_S, Beside, why_it_leaves
from penstock.supervision.since_when import SinceWhen

THERE = Beside("p0", home_uid="u0", tasks=2)


def why(beside: Beside, home_uid: str = "u0", idle_s: float = 0.0) -> str:
    return why_it_leaves(beside, home_uid, SinceWhen({"unused:p0": 0.0}, idle_s))


def test_it_stays_while_it_has_tasks() -> None:
    assert why(THERE, idle_s=1e6) == ""


def test_it_is_of_one_start_of_its_worker() -> None:
    for home_uid in ("u1", ""):
        assert why(THERE, home_uid) == "the worker whose tasks it ran is gone"


def test_it_lingers_without_tasks_and_then_leaves() -> None:
    idle = replace(THERE, tasks=0)
    assert why(idle, idle_s=LINGER_S - 0.1) == ""
    assert why(idle, idle_s=LINGER_S) == "no remote task is wanted there any more"


def test_one_that_has_ended_is_cleared_away_though_it_has_tasks() -> None:
    assert why(replace(THERE, ending="it has ended: Evicted")) == "it has ended: Evicted"
