"""What decisions brought, a window after they were carried out (promise 8).

A policy that measures is asked first; else it is read off the latency that was judged. Neighbours: `follow`
says what has ended, `judge` what was measured, `journal` keeps it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from penstock.control.decision import Outcome, PolicyDecision
from penstock.control.outcomes import before_us
from penstock.control.policy import Policy
from penstock.sla.decision_record import Brought, finite
from penstock.sla.follow import Treated
from penstock.sla.journal import Journal
from penstock.sla.judge import Judged

OUTCOME_WINDOWS = 4
"""So long a policy that measures is waited for before what it brought is read off the judged latency."""


@runtime_checkable
class Measures(Protocol):
    """A policy that measures what its decisions brought, as `guard` does."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]: ...


class OutcomeMeter:
    """For one SLA, whose windows are `window_us` long."""

    def __init__(self, policy: Policy, window_us: int, journal: Journal) -> None:
        self._policy = policy
        self._window_us = window_us
        self._journal = journal

    def measure(self, ended: list[Treated], judged: Judged | None, tasks: int, at_us: int) -> None:
        """Those of `ended`, all of one operator, whose window is over are kept, and leave the list."""
        for treated in list(ended):
            since_us = at_us - (treated.ended_us or at_us)
            if treated.ended_us is None or since_us < self._window_us:
                continue
            decision = treated.course.decision
            known = self._known(decision)
            if known is not None:
                latency_us, share = known.latency_us, known.share
            elif isinstance(self._policy, Measures) and since_us < OUTCOME_WINDOWS * self._window_us:
                continue
            else:
                latency_us, share = judged.worst_us if judged is not None else None, None
            ended.remove(treated)
            promised = decision.expected
            self._journal.brought(
                Brought(
                    number=treated.number,
                    took_us=treated.ended_us - treated.course.begun_us,
                    latency_us=latency_us,
                    tasks=tasks,
                    share=share,
                    promised_us=None if promised is None else finite(promised.latency_us),
                    before_us=before_us(decision),
                )
            )

    def _known(self, decision: PolicyDecision) -> Outcome | None:
        """What the policy itself has measured of one of its decisions."""
        outcomes = self._policy.outcomes if isinstance(self._policy, Measures) else ()
        for outcome in reversed(outcomes):
            if (outcome.decision.at_us, outcome.decision.operator) == (decision.at_us, decision.operator):
                return outcome
        return None
