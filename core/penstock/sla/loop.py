"""Keeps one LatencySLA. Every delta: observe, judge, follow what is under way, decide, account.

It does no I/O but for its log of decisions: whoever runs it (`penstock run`, the cluster's operator) hands it
what the stores said and publishes the schedules that it answers. While a treatment goes on, while workers
come or go, and while metrics are missing nothing new is decided. Neighbours, in the order of a look:
`observe`, `judge`, `follow` (and `brought`), `decide`, `account`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.control.policy import Policy
from penstock.control.snapshot import OperatorSnapshot, TopologySnapshot
from penstock.schedule.record import OperatorSchedule
from penstock.sla.account import Account, Deciding
from penstock.sla.brought import OutcomeMeter
from penstock.sla.decide import Begun, Decider
from penstock.sla.decision_record import DecisionKeeper
from penstock.sla.follow import Follower
from penstock.sla.journal import Journal
from penstock.sla.judge import WindowJudge
from penstock.sla.look import SlaLook
from penstock.sla.observe import Observer, waiting_rows
from penstock.sla.promise import Promise
from penstock.sla.source_lag import BEHIND, SourceLagJudge
from penstock.sla.standing import SlaLine, SlaSummary
from penstock.sla.turn import SlaTurn, Ways


@dataclass(frozen=True, slots=True)
class _Operator:
    """Who looks after one operator in scope."""

    observer: Observer
    judge: WindowJudge
    follower: Follower


class SlaLoop:
    """`shards` are all shards of the operators in scope, `edges` the plan's (upstream, downstream)."""

    def __init__(
        self,
        promise: Promise,
        policy: Policy,
        shards: Mapping[str, Sequence[str]],
        edges: Sequence[tuple[str, str]],
        log: DecisionKeeper,
        ways: Ways = Ways(),  # noqa: B008 - frozen
    ) -> None:
        self.promise = promise
        self._journal = Journal(promise, log)
        self._operators = {
            name: _Operator(
                Observer(name),
                WindowJudge(target, shards[name]),
                Follower(name, ways.move_us_max, self._journal),
            )
            for name, target in promise.scope.targets.items()
        }
        self._edges = tuple(edge for edge in edges if set(edge) <= self._operators.keys())
        self._decider = Decider(promise, policy, ways, self._journal)
        self._outcomes = OutcomeMeter(policy, promise.window_us, self._journal)
        judges = {name: kept.judge for name, kept in self._operators.items()}
        self._account = Account(promise, self._edges, judges, keeps_timeline=ways.keeps_timeline)
        self._source_lag = SourceLagJudge(promise.source_lag_us, promise.window_us, promise.sources)
        self._due_us = 0

    @property
    def interval_s(self) -> float:
        return self.promise.interval_us / 1e6

    @property
    def treatments(self) -> dict[str, str]:
        """Operator -> what is being done to it, in words."""
        return {name: kept.follower.words for name, kept in self._operators.items() if kept.follower.is_busy}

    def due(self, now_us: int) -> bool:
        """Whether an interval has passed."""
        return now_us >= self._due_us

    def away(self, now_us: int, why: str) -> None:
        """The store said nothing: hold, and say so."""
        self._due_us = now_us + self.promise.interval_us
        self._decider.away(why)

    @property
    def awaits_tasks(self) -> bool:
        """Whether shards are to move as soon as tasks that were announced are up."""
        return any(kept.follower.awaits_tasks for kept in self._operators.values())

    def follow(self, look: SlaLook) -> SlaTurn:
        """A look between two that are due: shards go to tasks that have come up meanwhile. Nothing is
        decided, and nothing measured."""
        schedules = [
            kept.follower.follow(look, {}, self._account.tasks(name))
            for name, kept in self._operators.items()
            if kept.follower.awaits_tasks
        ]
        return SlaTurn(tuple(one for one in schedules if one is not None), self._journal.take_events())

    def examine(self, look: SlaLook) -> SlaTurn:
        """One look, from samples to schedules."""
        # A look that came late does not make the next one late too.
        interval_us = self.promise.interval_us
        self._due_us = max(self._due_us + interval_us, look.at_us + interval_us // 2)
        snapshots = {name: kept.observer.snapshot(look) for name, kept in self._operators.items()}
        self._judge(look)
        schedules = self._follow(look, snapshots)
        schedules += self._decide(look, snapshots, {schedule.operator for schedule in schedules})
        self._account.draw(look)
        return SlaTurn(tuple(schedules), self._journal.take_events(), self._decider.lacks_room)

    def refused(self, operator: str) -> None:
        """The schedule that the last look answered for `operator` was not taken: somebody else's came first.
        The step is taken back, to be worked out anew; a decision that it began is dropped."""
        self._operators[operator].follower.take_back(self._account.tasks(operator))

    def line(self) -> SlaLine:
        """How it stands."""
        return self._account.line(self._deciding())

    def summary(self) -> SlaSummary:
        """What it came to."""
        return self._account.summary(self._deciding())

    # --- parts of a look --------------------------------------------------------------------------

    def _judge(self, look: SlaLook) -> None:
        judged = {
            name: kept.judge.take(look.at_us, look.samples.rows, waiting_rows(name, look.samples))
            for name, kept in self._operators.items()
        }
        self._source_lag.take(look.at_us, look.samples.lags)
        self._account.take(look, judged)

    def _follow(self, look: SlaLook, snapshots: Mapping[str, OperatorSnapshot]) -> list[OperatorSchedule]:
        """The next steps of what is under way; what has ended a window ago is measured."""
        stepped = [
            kept.follower.follow(look, snapshots[name].samples, self._account.tasks(name))
            for name, kept in self._operators.items()
        ]
        for name, kept in self._operators.items():
            judged, tasks = self._account.judged(name), self._account.tasks(name)
            self._outcomes.measure(kept.follower.ended, judged, tasks, look.at_us)
        return [schedule for schedule in stepped if schedule is not None]

    def _decide(
        self, look: SlaLook, snapshots: Mapping[str, OperatorSnapshot], stepped: set[str]
    ) -> list[OperatorSchedule]:
        """First steps of what is begun now; operators that were `stepped` at this look are left alone."""
        held = bool(look.leeway.held or look.leeway.busy)
        # What is published now is not what was looked at: the next look shows it.
        snapshot = TopologySnapshot(
            at_us=look.at_us,
            operators={
                name: replace(seen, treatment=held or name in stepped or self._is_treated(name))
                for name, seen in snapshots.items()
            },
            nodes=look.places.nodes,
            edges=self._edges,
            cores_max=look.leeway.cores_max,
        )
        free = [name for name, seen in snapshot.operators.items() if not seen.treatment]
        schedules = self._begin(self._decider.split_tasks(look, free), look)
        published = stepped | {schedule.operator for schedule in schedules}
        decisions = self._decider.ask(snapshot, look.leeway.held)
        for name, target in self._decider.targets.items():
            self._operators[name].judge.retarget(target)
        for decision in decisions:
            begun = self._decider.begin(
                decision, look, lambda name: name not in published and not self._is_treated(name)
            )
            schedules += self._begin(begun, look)
        return schedules

    def _begin(self, begun: Sequence[Begun], look: SlaLook) -> list[OperatorSchedule]:
        schedules = []
        for one in begun:
            operator = one.decision.operator
            tasks = self._account.tasks(operator)
            schedules.append(self._operators[operator].follower.begin(one, look, tasks))
        return [schedule for schedule in schedules if schedule is not None]

    def _is_treated(self, operator: str) -> bool:
        return self._operators[operator].follower.is_busy

    @property
    def _behind(self) -> dict[str, str]:
        return {BEHIND: self._source_lag.words} if self._source_lag.words else {}

    def _deciding(self) -> Deciding:
        return Deciding(
            last=self._journal.last_decision,
            counts=self._journal.counts,
            expected_us=self._decider.expected_us,
            conditions=self._decider.conditions | self._behind,
            is_behind=bool(self._behind),
        )
