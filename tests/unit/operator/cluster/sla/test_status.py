"""The status of a LatencySLA, from how its loop stands."""

from __future__ import annotations

from typing import Any

from penstock.sla.source_lag import BEHIND
from penstock.sla.standing import SlaLine
from penstock_operator.cluster.sla.status import SlaMemory, Standing, sla_status

SECOND_US = 1_000_000
WORDS = "behind what is there by more than 10 s: orders by 12.4 s (3400 records)"


def line(*, is_behind: bool) -> SlaLine:
    return SlaLine(
        name="quick", about="end to end", policy="Hybrid", dry_run=False, bound_ms=250.0, window_ms=1000.0,
        mean_ms=34.2, worst_ms=80.1, expected_ms=12.0, met=not is_behind, success_recent=1.0, success=1.0,
        executors=3, tasks=3, mean_tasks=2.4, last_decision="",
        conditions={BEHIND: WORDS} if is_behind else {},
    )  # fmt: skip


def test_a_source_that_is_behind_is_told_as_a_condition_and_as_the_reason_that_the_sla_is_not_met() -> None:
    former: dict[str, Any] = {}
    memory = SlaMemory()
    told = []
    for second, is_behind in enumerate((False, True, True, True)):
        standing = Standing(second * SECOND_US, 1, line=line(is_behind=is_behind))
        former, events, memory = sla_status(standing, former, memory)
        told += [event.reason for event in events]
    conditions = {one["type"]: one for one in former["conditions"]}
    met = conditions["SLAMet"]
    assert (met["status"], met["reason"], WORDS in met["message"]) == ("False", BEHIND, True)
    assert (conditions[BEHIND]["status"], conditions[BEHIND]["message"]) == ("True", WORDS)
    assert told.count(BEHIND) == 2
