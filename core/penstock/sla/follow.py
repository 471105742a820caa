"""Follow: a decision that has begun goes on step by step, until it is done, stuck or given up.

Neighbours: `treatment` works the steps out, `decide` begins, `brought` measures what has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.control.snapshot import ShardSample
from penstock.schedule.record import OperatorSchedule
from penstock.sla.decide import Begun
from penstock.sla.decision_record import Brought
from penstock.sla.journal import Journal
from penstock.sla.look import SlaLook
from penstock.sla.treatment import Advance, Course, CourseSeen, Step, advance

DROPPED = "somebody else changed the schedule at the same moment"


@dataclass(slots=True)
class Treated:
    """A course under way, or one that has ended and whose outcome is not measured yet."""

    number: int
    course: Course
    ended_us: int | None = None
    before: Course | None = None
    """The course as it was before its last step, None before the first: whoever publishes may be refused."""


class Follower:
    """For one operator: it is under one treatment at a time."""

    def __init__(self, operator: str, move_us_max: int, journal: Journal) -> None:
        self._operator = operator
        self._move_us_max = move_us_max
        self._journal = journal
        self._under_way: Treated | None = None
        self._last: Treated | None = None
        """What the last schedule was a step of."""
        self.ended: list[Treated] = []
        """Those that were carried out and are not measured yet."""

    @property
    def is_busy(self) -> bool:
        return self._under_way is not None

    @property
    def awaits_tasks(self) -> bool:
        """Whether shards are to move as soon as tasks that were announced are up."""
        return self._under_way is not None and self._under_way.course.step is Step.ANNOUNCED

    @property
    def words(self) -> str:
        """What is being done; "" for nothing."""
        if (treated := self._under_way) is None:
            return ""
        return f"{treated.course.decision.treatment} #{treated.number} of {self._operator} is under way"

    def begin(self, begun: Begun, look: SlaLook, tasks: int) -> OperatorSchedule | None:
        """The first schedule of a decision; None when nothing is to be published. `tasks` are what the
        operator had at the last look that was accounted for."""
        decision, step = begun.decision, begun.advance
        course = step.course or Course(decision, decision.actions, Step.MOVING, look.at_us, look.at_us)
        return self._stepped(Treated(begun.number, course), step, look, tasks)

    def follow(
        self, look: SlaLook, samples: Mapping[str, ShardSample | None], tasks: int
    ) -> OperatorSchedule | None:
        """The next step of what is under way; None when nothing is to be published."""
        treated = self._under_way
        if treated is None:
            return None
        if look.leeway.held:
            self._end(treated, look, f"{look.leeway.held} while it was under way", tasks)
            return None
        course, schedule = treated.course, look.places.schedules[self._operator]
        # A claim counts once its owner has spoken: only then can differences be taken again.
        owners = {
            shard: known.executor
            for shard, known in look.samples.counters[self._operator].items()
            if known is not None
            if (sample := samples.get(shard)) is not None and sample.waited_us is not None
        }
        tasks_up = {
            executor.name: look.samples.speaking(executor.name, course.begun_us)
            for executor in schedule.executors
        }
        seen = CourseSeen(tasks_up, owners)
        stepped = advance(course, schedule, seen, look.at_us, move_us_max=self._move_us_max)
        return self._stepped(treated, stepped, look, tasks)

    def take_back(self, tasks: int) -> None:
        """The last schedule was not taken: somebody else's came first. The step is taken back, to be worked
        out anew; a decision that it began is dropped."""
        treated = self._last
        if treated is None:
            return
        treated.ended_us = None
        if treated in self.ended:
            self.ended.remove(treated)
        if treated.before is None:
            self._under_way = None
            self._journal.brought(Brought(treated.number, 0, None, tasks, stuck=DROPPED))
        else:
            treated.course = treated.before
            self._under_way = treated

    def _stepped(
        self, treated: Treated, stepped: Advance, look: SlaLook, tasks: int
    ) -> OperatorSchedule | None:
        treated.before = None if self._under_way is None else treated.course
        if stepped.course is None:
            self._end(treated, look, stepped.stuck, tasks)
        else:
            treated.course = stepped.course
            self._under_way = treated
        self._last = treated
        before = look.places.schedules[self._operator]
        return stepped.schedule if stepped.schedule != before else None

    def _end(self, treated: Treated, look: SlaLook, stuck: str, tasks: int) -> None:
        self._under_way = None
        treated.ended_us = look.at_us
        if not stuck:
            self.ended.append(treated)
            return
        took_us = look.at_us - treated.course.begun_us
        self._journal.brought(Brought(treated.number, took_us, None, tasks, stuck=stuck))
        # A worker that is down, or a run that ends, is told of by others.
        told = f"{treated.course.decision.treatment} #{treated.number} is given up: {stuck}"
        self._journal.tell(told, is_trouble=not look.leeway.held)
