"""Keeps one LatencySLA: every delta it looks, judges, asks the policy, and has it carried out.

It does no I/O but for its log of decisions: whoever runs it (`penstock run`, the cluster's operator) hands it
what the stores said and publishes the schedules that it answers. While a treatment goes on, while workers
come or go, and while metrics are missing nothing new is decided. Neighbours: `treatment` carries
decisions out, `judge` judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from penstock.control.decision import (
    Decision,
    Health,
    Outcome,
    Treatment,
)
from penstock.control.outcomes import before_us
from penstock.control.policy import Policy
from penstock.control.samples.sampling import ShardSampler
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, ShardSample, TopologySnapshot
from penstock.control.split_sla import heaviest_until
from penstock.control.target import LatencyTarget
from penstock.schedule.record import OperatorSchedule
from penstock.sla.decision_record import Brought, DecisionKeeper, finite
from penstock.sla.fitting import begin_what_fits, by_operator, without_remote_cores
from penstock.sla.judge import Judged, WindowJudge
from penstock.sla.promise import Promise
from penstock.sla.standing import SlaLine, SlaSummary, TimelinePoint
from penstock.sla.treatment import (
    ActionRefused,
    Advance,
    Course,
    CourseSeen,
    NoRoom,
    Step,
    advance,
    begin_single_tasks,
)
from penstock.sla.turn import HELD, NEWS_WINDOWS, UNAVAILABLE, SlaEvent, SlaLook, SlaTurn, Ways

TASK_SILENT_US = 3_000_000
"""A task that works or waits speaks at least once a second; an executor that is silent for so long is not
known."""
TIMELINE_US = 1_000_000
SHOWN_AGAIN_US = 60_000_000
"""A decision that is not carried out comes again every interval; it is kept and told so often."""
OUTCOME_WINDOWS = 4
"""So long a policy that measures is waited for before what it brought is read off the judged latency."""
DROPPED = "somebody else changed the schedule at the same moment"
REFUSED = "refused"
"""The rule of a decision that does not fit the schedule, or leaves the bounds."""


@runtime_checkable
class Measures(Protocol):
    """A policy that measures what its decisions brought, as `guard` does."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]: ...


@runtime_checkable
class Splits(Protocol):
    """A policy that splits an end-to-end bound anew: `targets` are the parts of now."""

    @property
    def targets(self) -> Mapping[str, LatencyTarget]: ...


@dataclass(slots=True)
class _Treated:
    """A course under way, or one that has ended and whose outcome is not measured yet."""

    number: int
    course: Course
    ended_us: int | None = None
    before: Course | None = None
    """The course as it was before its last step, None before the first: whoever publishes may be refused."""


@dataclass(slots=True)
class _Operator:
    """What is kept of one operator in scope."""

    sampler: ShardSampler
    judge: WindowJudge
    judged: Judged | None = None
    under_way: _Treated | None = None
    last: _Treated | None = None
    """What the last schedule was a step of."""
    measuring: list[_Treated] = field(default_factory=list)
    arrived: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)
    """(generation, rows) at the last point of the timeline."""
    tasks: int = 0
    executors: int = 0


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
        self._ways = ways
        self._policy = policy
        self._log = log
        self._operators = {
            name: _Operator(ShardSampler(), WindowJudge(target, shards[name]))
            for name, target in promise.scope.targets.items()
        }
        self._edges = tuple(edge for edge in edges if set(edge) <= self._operators.keys())
        self._due_us = 0
        self._began_us: int | None = None
        self._last_us = 0
        self._task_us = 0.0
        self._executor_us = 0.0
        self._timeline: list[TimelinePoint] = []
        self._point_us = 0
        self._point_counts = [0, 0]
        self._counts: Counter[str] = Counter()
        self._last_decision = ""
        self._shown_us: dict[tuple[str, ...], int] = {}
        self._expected_us: dict[str, float] = {}
        self._conditions: dict[str, str] = {}
        self._since_us: dict[str, int] = {}
        self._events: list[SlaEvent] = []
        self._lacks_room = False

    @property
    def interval_s(self) -> float:
        return self.promise.interval_us / 1e6

    @property
    def treatments(self) -> dict[str, str]:
        """Operator -> what is being done to it, in words."""
        return {
            name: f"{treated.course.decision.treatment} #{treated.number} of {name} is under way"
            for name, kept in self._operators.items()
            if (treated := kept.under_way) is not None
        }

    def due(self, now_us: int) -> bool:
        """Whether an interval has passed."""
        return now_us >= self._due_us

    def away(self, now_us: int, why: str) -> None:
        """The store said nothing: hold, and say so."""
        self._due_us = now_us + self.promise.interval_us
        self._conditions = {UNAVAILABLE: why}

    @property
    def awaits_tasks(self) -> bool:
        """Whether shards are to move as soon as tasks that were announced are up."""
        return any(
            kept.under_way is not None and kept.under_way.course.step is Step.ANNOUNCED
            for kept in self._operators.values()
        )

    def follow(self, look: SlaLook) -> SlaTurn:
        """A look between two that are due: shards go to tasks that have come up meanwhile. Nothing is
        decided, and nothing measured."""
        self._events = []
        schedules = [
            self._follow_course(name, kept, look, {})
            for name, kept in self._operators.items()
            if kept.under_way is not None and kept.under_way.course.step is Step.ANNOUNCED
        ]
        return SlaTurn(tuple(one for one in schedules if one is not None), tuple(self._events))

    def examine(self, look: SlaLook) -> SlaTurn:
        """One look, from samples to schedules."""
        # A look that came late does not make the next one late too.
        interval_us = self.promise.interval_us
        self._due_us = max(self._due_us + interval_us, look.at_us + interval_us // 2)
        self._events = []
        self._lacks_room = False
        self._account(look)
        snapshots = {name: self._observe(name, kept, look) for name, kept in self._operators.items()}
        schedules = [
            schedule
            for name, kept in self._operators.items()
            if (schedule := self._follow_course(name, kept, look, snapshots[name].samples)) is not None
        ]
        self._measure(look)
        held = bool(look.held or look.busy)
        # What is published now is not what was looked at: the next look shows it.
        published = {schedule.operator for schedule in schedules}
        snapshot = TopologySnapshot(
            at_us=look.at_us,
            operators={
                name: replace(seen, treatment=held or name in published or self._is_treated(name))
                for name, seen in snapshots.items()
            },
            nodes=look.nodes,
            edges=self._edges,
            cores_max=look.cores_max,
        )
        schedules += self._split(look, snapshot)
        published = {schedule.operator for schedule in schedules}
        decisions = self._policy.decide(snapshot)
        if isinstance(self._policy, Splits):
            for name, target in self._policy.targets.items():
                self._operators[name].judge.retarget(target)
        self._conditions = {HELD: look.held} if look.held else {}
        for decision in decisions:
            self._conditions.update(decision.conditions)
        self._since_us = {kind: self._since_us.get(kind, look.at_us) for kind in self._conditions}
        for decision in decisions:
            schedules += self._take(decision, look, published)
        self._draw(look)
        return SlaTurn(tuple(schedules), tuple(self._events), self._lacks_room)

    # --- looking ----------------------------------------------------------------------------------

    def _account(self, look: SlaLook) -> None:
        """Tasks and executors over time: what keeping the SLA costs."""
        passed_us = look.at_us - self._last_us if self._began_us is not None else 0
        if self._began_us is None:
            self._began_us = look.at_us
        self._last_us = look.at_us
        for name, kept in self._operators.items():
            self._task_us += kept.tasks * passed_us
            self._executor_us += kept.executors * passed_us
            kept.tasks = look.schedules[name].tasks
            kept.executors = sum(executor.tasks > 0 for executor in look.schedules[name].executors)

    def _observe(self, name: str, kept: _Operator, look: SlaLook) -> OperatorSnapshot:
        schedule, counters = look.schedules[name], look.counters[name]
        samples: dict[str, ShardSample | None] = kept.sampler.take(counters, look.rows)
        waiting = {
            shard: None if known is None else known.arrived_rows - known.completed_rows
            for shard, known in counters.items()
        }
        kept.judged = kept.judge.take(look.at_us, look.rows, waiting)
        if kept.judged is not None:
            self._point_counts[0] += kept.judged.kept
            self._point_counts[1] += kept.judged.judged
        nodes = {worker.name: worker.node for worker in schedule.workers}
        executors = tuple(
            ExecutorSeen(
                name=executor.name,
                tasks=executor.tasks,
                tasks_ready=min(executor.tasks, _speaking(look, executor.name, look.at_us - TASK_SILENT_US)),
                node=nodes[executor.worker],
                cores={nodes[executor.worker]: executor.tasks},
            )
            for executor in schedule.executors
        )
        # What a silent executor's shards have told is of no moment that is known.
        silent = {executor.name for executor in executors if executor.tasks and not executor.tasks_ready}
        assignment = {shard: place.executor for shard, place in schedule.shards.items()}
        for shard, executor_name in assignment.items():
            if executor_name in silent:
                samples[shard] = None
        return OperatorSnapshot(name, executors, assignment, samples)

    # --- treatments -------------------------------------------------------------------------------

    def _is_treated(self, operator: str) -> bool:
        return self._operators[operator].under_way is not None

    def _follow_course(
        self, name: str, kept: _Operator, look: SlaLook, samples: Mapping[str, ShardSample | None]
    ) -> OperatorSchedule | None:
        """The next step of what is under way; None when nothing is to be published."""
        treated = kept.under_way
        if treated is None:
            return None
        if look.held:
            self._end(kept, treated, look, f"{look.held} while it was under way")
            return None
        course = treated.course
        # A claim counts once its owner has spoken: only then can differences be taken again.
        owners = {
            shard: known.executor
            for shard, known in look.counters[name].items()
            if known is not None
            if (sample := samples.get(shard)) is not None and sample.waited_us is not None
        }
        tasks_up = {
            executor.name: _speaking(look, executor.name, course.begun_us)
            for executor in look.schedules[name].executors
        }
        stepped = advance(
            course,
            look.schedules[name],
            CourseSeen(tasks_up, owners),
            look.at_us,
            move_us_max=self._ways.move_us_max,
        )
        return self._stepped(kept, treated, stepped, look)

    def _stepped(
        self, kept: _Operator, treated: _Treated, stepped: Advance, look: SlaLook
    ) -> OperatorSchedule | None:
        treated.before = None if kept.under_way is None else treated.course
        if stepped.course is None:
            self._end(kept, treated, look, stepped.stuck)
        else:
            treated.course = stepped.course
            kept.under_way = treated
        kept.last = treated
        before = look.schedules[stepped.schedule.operator]
        return stepped.schedule if stepped.schedule != before else None

    def refused(self, operator: str) -> None:
        """The schedule that the last look answered for `operator` was not taken: somebody else's came first.
        The step is taken back, to be worked out anew; a decision that it began is dropped."""
        kept = self._operators[operator]
        treated = kept.last
        if treated is None:
            return
        treated.ended_us = None
        if treated in kept.measuring:
            kept.measuring.remove(treated)
        if treated.before is None:
            kept.under_way = None
            self._log.brought(Brought(treated.number, 0, None, kept.tasks, stuck=DROPPED))
        else:
            treated.course = treated.before
            kept.under_way = treated

    def _end(self, kept: _Operator, treated: _Treated, look: SlaLook, stuck: str) -> None:
        kept.under_way = None
        treated.ended_us = look.at_us
        decision = treated.course.decision
        if stuck:
            took_us = look.at_us - treated.course.begun_us
            self._log.brought(Brought(treated.number, took_us, None, kept.tasks, stuck=stuck))
            # A worker that is down, or a run that ends, is told of by others.
            told = f"{decision.treatment} #{treated.number} is given up: {stuck}"
            self._tell(told, is_trouble=not look.held)
        else:
            kept.measuring.append(treated)

    def _measure(self, look: SlaLook) -> None:
        """What decisions brought, a window after they were carried out (promise 8)."""
        measures = isinstance(self._policy, Measures)
        for kept in self._operators.values():
            for treated in list(kept.measuring):
                since_us = look.at_us - (treated.ended_us or look.at_us)
                if treated.ended_us is None or since_us < self.promise.window_us:
                    continue
                known = self._known_outcome(treated.course.decision)
                if known is not None:
                    latency_us, share = known.latency_us, known.share
                elif measures and since_us < OUTCOME_WINDOWS * self.promise.window_us:
                    continue
                else:
                    latency_us, share = kept.judged.worst_us if kept.judged is not None else None, None
                kept.measuring.remove(treated)
                promised = treated.course.decision.expected
                self._log.brought(
                    Brought(
                        number=treated.number,
                        took_us=treated.ended_us - treated.course.begun_us,
                        latency_us=latency_us,
                        tasks=kept.tasks,
                        share=share,
                        promised_us=None if promised is None else finite(promised.latency_us),
                        before_us=before_us(treated.course.decision),
                    )
                )

    def _known_outcome(self, decision: Decision) -> Outcome | None:
        """What the policy itself has measured of one of its decisions."""
        outcomes = self._policy.outcomes if isinstance(self._policy, Measures) else ()
        for outcome in reversed(outcomes):
            if (outcome.decision.at_us, outcome.decision.operator) == (decision.at_us, decision.operator):
                return outcome
        return None

    # --- decisions --------------------------------------------------------------------------------

    def _take(self, decision: Decision, look: SlaLook, published: Collection[str]) -> list[OperatorSchedule]:
        """Remember a decision, and begin what it asks for."""
        prediction = decision.expected or decision.without
        if prediction is not None:
            self._expected_us[decision.operator] = prediction.latency_us
        if not decision.actions or look.held or look.busy or self.promise.dry_run:
            self._show_only(decision)
            return []
        schedules = []
        for operator, actions in by_operator(decision, look.schedules).items():
            kept = self._operators[operator]
            if operator in published or kept.under_way is not None:
                continue
            part = replace(decision, operator=operator, actions=actions)
            schedule = self._begin(part, kept, look)
            if schedule is not None:
                schedules.append(schedule)
        return schedules

    def _begin(self, decision: Decision, kept: _Operator, look: SlaLook) -> OperatorSchedule | None:
        schedule = look.schedules[decision.operator]
        try:
            if not self._ways.has_remote_cores:
                decision = without_remote_cores(decision, schedule)
            decision, begun, lacks = begin_what_fits(
                decision, schedule, self.promise.scope, look.room, look.taken, look.at_us, look.warm
            )
            self._lacks_room |= lacks
        except ActionRefused as refused:
            self._lacks_room |= isinstance(refused, NoRoom)
            reason = f"{decision.reason}; it does not fit what there is: {refused}"
            self._show_only(
                replace(decision, treatment=Treatment.HOLD, rule=REFUSED, reason=reason, actions=())
            )
            return None
        number = self._log.decided(decision, self.promise.name, dry_run=False)
        self._remember(decision, number)
        course = begun.course or Course(decision, decision.actions, Step.MOVING, look.at_us, look.at_us)
        treated = _Treated(number, course)
        return self._stepped(kept, treated, begun, look)

    def _split(self, look: SlaLook, snapshot: TopologySnapshot) -> list[OperatorSchedule]:
        """Executors of several tasks become executors of one each, where the policy knows no others."""
        if not self._ways.are_tasks_single or self.promise.dry_run:
            return []
        schedules = []
        for name, kept in self._operators.items():
            if snapshot.operators[name].treatment:
                continue
            reason = f"an executor has one task each under {self.promise.policy}"
            decision = Decision(
                at_us=look.at_us,
                policy=self.promise.policy,
                operator=name,
                treatment=Treatment.REPARTITION,
                rule="single-tasks",
                reason=reason,
                health=Health.UNKNOWN,
            )
            begun = begin_single_tasks(decision, look.schedules[name], look.taken, look.at_us)
            if begun is None or begun.course is None:
                continue
            number = self._log.decided(begun.course.decision, self.promise.name, dry_run=False)
            self._remember(begun.course.decision, number)
            schedule = self._stepped(kept, _Treated(number, begun.course), begun, look)
            if schedule is not None:
                schedules.append(schedule)
        return schedules

    def _show_only(self, decision: Decision) -> None:
        """One that is not carried out: kept now and then, for as long as it comes again every interval."""
        lasting = sorted(kind for kind in decision.conditions if self._lasts(kind, decision.at_us))
        if not (
            decision.actions or lasting or (decision.treatment is Treatment.HOLD and not decision.conditions)
        ):
            return
        kind = (decision.operator, str(decision.treatment), decision.rule, *lasting)
        if decision.at_us - self._shown_us.get(kind, -SHOWN_AGAIN_US) < SHOWN_AGAIN_US:
            return
        self._shown_us[kind] = decision.at_us
        number = self._log.decided(decision, self.promise.name, dry_run=bool(decision.actions))
        if decision.actions:
            self._remember(decision, number)
        elif lasting or decision.rule == REFUSED:
            self._tell(f"{decision.operator or 'topology'} holds: {decision.reason}")

    def _lasts(self, condition: str, at_us: int) -> bool:
        """After each move a window has to be seen anew: what is missing only then is no news."""
        return at_us - self._since_us.get(condition, at_us) >= NEWS_WINDOWS * self.promise.window_us

    def _remember(self, decision: Decision, number: int) -> None:
        self._counts[str(decision.treatment)] += 1
        dry = "dry run: " if self.promise.dry_run else ""
        self._last_decision = f"{dry}{decision.operator}: {decision.treatment}, {decision.reason}"
        told = f"{dry}{decision.operator} #{number} {decision.treatment}: {decision.reason}"
        self._tell(told, kind=str(decision.treatment))

    def _tell(self, text: str, *, is_trouble: bool = False, kind: str = "") -> None:
        self._events.append(SlaEvent(f"{self.promise.name}: {text}", is_trouble, kind))

    # --- showing ----------------------------------------------------------------------------------

    def line(self) -> SlaLine:
        """How it stands."""
        by_name = {name: kept.judged for name, kept in self._operators.items() if kept.judged is not None}
        judged = list(by_name.values())
        mean_us = self._along_paths({name: one.mean_us for name, one in by_name.items()})
        worst_us = self._along_paths({name: one.worst_us for name, one in by_name.items()})
        windows = sum(one.judged for one in judged)
        expected = self._along_paths(self._expected_us)
        return SlaLine(
            name=self.promise.name,
            about=self.promise.operator or "end to end",
            policy=self.promise.policy,
            dry_run=self.promise.dry_run,
            bound_ms=self.promise.latency_us / 1000,
            window_ms=self.promise.window_us / 1000,
            mean_ms=None if mean_us is None else mean_us / 1000,
            worst_ms=None if worst_us is None else worst_us / 1000,
            expected_ms=None if expected is None else expected / 1000,
            met=all(one.kept == one.judged for one in judged) if windows else None,
            success_recent=_mean(kept.judge.success_recent() for kept in self._operators.values()),
            success=_mean(kept.judge.success() for kept in self._operators.values()),
            executors=sum(kept.executors for kept in self._operators.values()),
            tasks=sum(kept.tasks for kept in self._operators.values()),
            mean_tasks=self._over_time(self._task_us),
            last_decision=self._last_decision,
            conditions=dict(self._conditions),
        )

    def _along_paths(self, values: Mapping[str, float | None]) -> float | None:
        """The greatest sum of the operators' values along a path; who has none adds nothing. None when nobody
        has one."""
        known = {name: value for name, value in values.items() if value is not None}
        if not known:
            return None
        sums = heaviest_until({name: known.get(name, 0.0) for name in self._operators}, self._edges)
        return max(sums.values())

    def summary(self) -> SlaSummary:
        """What it came to."""
        line = self.line()
        return SlaSummary(
            name=line.name,
            operator=self.promise.operator,
            policy=line.policy,
            dry_run=line.dry_run,
            bound_ms=line.bound_ms,
            window_ms=line.window_ms,
            success=line.success,
            success_recent=line.success_recent,
            success_of_shards={
                shard: share
                for kept in self._operators.values()
                for shard, share in kept.judge.success_of_shards().items()
            },
            mean_executors=self._over_time(self._executor_us),
            mean_tasks=line.mean_tasks,
            decisions=dict(self._counts),
            timeline=tuple(self._timeline),
        )

    def _over_time(self, sum_us: float) -> float | None:
        passed_us = self._last_us - self._began_us if self._began_us is not None else 0
        return sum_us / passed_us if passed_us > 0 else None

    def _draw(self, look: SlaLook) -> None:
        """A point of the timeline, once a second."""
        if look.at_us < self._point_us or self._began_us is None or not self._ways.keeps_timeline:
            return
        self._point_us = look.at_us + TIMELINE_US
        line = self.line()
        judged = [kept.judged for kept in self._operators.values() if kept.judged is not None]
        at_s = (look.at_us - self._began_us) / 1e6
        passed_s = at_s - self._timeline[-1].at_s if self._timeline else 0.0
        self._timeline.append(
            TimelinePoint(
                at_s=at_s,
                arrived_per_s=self._arrived_per_s(look, passed_s),
                completed_per_s=sum(one.completed_per_s for one in judged),
                mean_ms=line.mean_ms,
                worst_ms=line.worst_ms,
                executors=line.executors,
                tasks=line.tasks,
                busy_cores=sum(one.busy_cores for one in judged),
                kept=self._point_counts[0],
                judged=self._point_counts[1],
            )
        )
        self._point_counts = [0, 0]

    def _arrived_per_s(self, look: SlaLook, passed_s: float) -> float | None:
        """Rows that arrived at all operators in scope since the last point; None where that is not known."""
        total: float | None = 0.0
        for name, kept in self._operators.items():
            now = {
                shard: None if known is None else (known.generation, known.arrived_rows)
                for shard, known in look.counters[name].items()
            }
            before, kept.arrived = kept.arrived, now
            grown = _grown(before, now)
            total = None if total is None or grown is None or passed_s <= 0 else total + grown / passed_s
        return total


def _grown(
    before: Mapping[str, tuple[int, int] | None], now: Mapping[str, tuple[int, int] | None]
) -> int | None:
    """The difference of counts over all shards; each is (generation, rows). None where one is missing."""
    rows = 0
    for shard, count in now.items():
        earlier = before.get(shard)
        if count is None or earlier is None or count[0] != earlier[0]:
            return None
        rows += count[1] - earlier[1]
    return rows if now else None


def _speaking(look: SlaLook, executor: str, since_us: int) -> int:
    """Tasks of an executor that have spoken since then."""
    return sum(at_us >= since_us for at_us in look.tasks.get(executor, ()))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
