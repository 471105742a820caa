"""What is kept and told of decisions, as they are made and as they turn out (promise 8).

Neighbours: `decide` and `follow` write into it, a `DecisionKeeper` remembers; `account` counts from it,
`loop` hands its events on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from penstock.control.decision import PolicyDecision, Treatment
from penstock.sla.decision_record import Brought, DecisionKeeper
from penstock.sla.promise import Promise
from penstock.sla.turn import SlaEvent

SHOWN_AGAIN_US = 60_000_000
"""A decision that is not carried out comes again every interval; it is kept and told so often."""
REFUSED = "refused"
"""The rule of a decision that does not fit the schedule, or leaves the bounds."""


class Journal:
    """Of one SLA. `keeper` does the I/O, if any is done."""

    def __init__(self, promise: Promise, keeper: DecisionKeeper) -> None:
        self._promise = promise
        self._keeper = keeper
        self._counts: Counter[str] = Counter()
        self._events: list[SlaEvent] = []
        self._shown_us: dict[tuple[str, ...], int] = {}
        self.last_decision = ""
        """In words, "" before the first."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Treatment -> how often one was begun; in a dry run, would have been."""
        return dict(self._counts)

    def take_events(self) -> tuple[SlaEvent, ...]:
        """What has been told since this was last asked."""
        events, self._events = tuple(self._events), []
        return events

    def begun(self, decision: PolicyDecision) -> int:
        """One that is carried out; answers its number."""
        number = self._keeper.decided(decision, self._promise.name, dry_run=False)
        self._remember(decision, number)
        return number

    def shown(self, decision: PolicyDecision, lasting: Sequence[str]) -> None:
        """One that is not carried out: kept now and then, for as long as it comes again every interval.
        `lasting` are those of its conditions that are news."""
        if not (
            decision.actions or lasting or (decision.treatment is Treatment.HOLD and not decision.conditions)
        ):
            return
        kind = (decision.operator, str(decision.treatment), decision.rule, *lasting)
        if decision.at_us - self._shown_us.get(kind, -SHOWN_AGAIN_US) < SHOWN_AGAIN_US:
            return
        self._shown_us[kind] = decision.at_us
        number = self._keeper.decided(decision, self._promise.name, dry_run=bool(decision.actions))
        if decision.actions:
            self._remember(decision, number)
        elif lasting or decision.rule == REFUSED:
            self.tell(f"{decision.operator or 'topology'} holds: {decision.reason}")

    def brought(self, outcome: Brought) -> None:
        """What an earlier one came to."""
        self._keeper.brought(outcome)

    def tell(self, text: str, *, is_trouble: bool = False, kind: str = "") -> None:
        self._events.append(SlaEvent(f"{self._promise.name}: {text}", is_trouble, kind))

    def _remember(self, decision: PolicyDecision, number: int) -> None:
        self._counts[str(decision.treatment)] += 1
        dry = "dry run: " if self._promise.dry_run else ""
        self.last_decision = f"{dry}{decision.operator}: {decision.treatment}, {decision.reason}"
        told = f"{dry}{decision.operator} #{number} {decision.treatment}: {decision.reason}"
        self.tell(told, kind=str(decision.treatment))
