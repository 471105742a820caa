"""What is begun of a policy's decisions, and what is only kept and told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.decision import (
    Action,
    AddExecutor,
    Health,
    MoveShards,
    PolicyDecision,
    Prediction,
    RemoveExecutor,
    Treatment,
)
from penstock.control.snapshot import TopologySnapshot
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, WorkerPlace
from penstock.sla.decide import Decider
from penstock.sla.decision_record import Brought
from penstock.sla.journal import REFUSED, SHOWN_AGAIN_US, Journal
from penstock.sla.look import Leeway, Places, Samples, SlaLook
from penstock.sla.promise import Promise
from penstock.sla.turn import HELD, UNAVAILABLE, Ways

WINDOW_US = 500_000
SCOPE = Scope({"count": LatencyTarget(1_000)}, {"count": TaskLimits(1, 3)})
PROMISE = Promise("fast", "count", "Scripted", 1_000, WINDOW_US, 100_000, False, SCOPE)
SCHEDULE = OperatorSchedule(
    operator="count",
    version=7,
    term=0,
    workers=(WorkerPlace("w0", "here", "here", "uid0"),),
    executors=(ExecutorPlace("a", "w0", 1),),
    shards={f"count/{part}": ShardPlace("a", "local") for part in range(4)},
)
SCALE_OUT = (AddExecutor("b"), MoveShards(("count/1",), "a", "b"))


def decision(*actions: Action, **said: object) -> PolicyDecision:
    made = PolicyDecision(
        0, "Scripted", "count", Treatment.SCALE_OUT, "rule", "because", Health.SEVERE, actions,
        expected=Prediction(500.0, 2),
    )  # fmt: skip
    return replace(made, **said)  # type: ignore[arg-type]


class Scripted:
    name = "Scripted"

    def __init__(self) -> None:
        self.answer: tuple[PolicyDecision, ...] = ()

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        return tuple(replace(one, at_us=snapshot.at_us) for one in self.answer)


class Keeper:
    def __init__(self) -> None:
        self.kept: list[tuple[PolicyDecision, bool]] = []

    def decided(self, decision: PolicyDecision, sla: str, *, dry_run: bool) -> int:
        self.kept.append((decision, dry_run))
        return len(self.kept)

    def brought(self, outcome: Brought) -> None:
        raise AssertionError(outcome)


class Scene:
    def __init__(self, *, dry_run: bool = False, schedule: OperatorSchedule = SCHEDULE) -> None:
        self.policy, self.keeper = Scripted(), Keeper()
        promise = replace(PROMISE, dry_run=dry_run)
        self.journal = Journal(promise, self.keeper)
        self.decider = Decider(promise, self.policy, Ways(are_tasks_single=True), self.journal)
        self.schedule = schedule

    def look(self, room: int = 4, leeway: Leeway = Leeway()) -> SlaLook:  # noqa: B008 - frozen
        places = Places({"count": self.schedule}, {}, {"w0": room})
        return SlaLook(0, Samples({}, {}, {}), places, leeway)

    def ask(self, at_us: int, *answer: PolicyDecision, held: str = "") -> tuple[PolicyDecision, ...]:
        self.policy.answer = answer
        return self.decider.ask(TopologySnapshot(at_us, {}, {}, ()), held)

    def begin(self, made: PolicyDecision, look: SlaLook | None = None) -> list[OperatorSchedule]:
        begun = self.decider.begin(made, look or self.look(), lambda _: True)
        return [one.advance.schedule for one in begun]


def test_a_decision_that_fits_begins_with_its_first_schedule_of_the_same_version() -> None:
    scene = Scene()
    (schedule,) = scene.begin(decision(*SCALE_OUT))
    assert [executor.name for executor in schedule.executors] == ["a", "b"]
    assert schedule.version == SCHEDULE.version
    assert scene.decider.expected_us == {"count": 500.0}
    assert scene.keeper.kept == [(decision(*SCALE_OUT), False)]
    assert [event.kind for event in scene.journal.take_events()] == ["scale-out"]
    assert scene.journal.counts == {"scale-out": 1}


@pytest.mark.parametrize("leeway", [Leeway(held="worker w1 is not up"), Leeway(busy="shards move")])
def test_nothing_begins_while_nothing_may(leeway: Leeway) -> None:
    scene = Scene()
    assert not scene.begin(decision(*SCALE_OUT), scene.look(leeway=leeway))


def test_a_dry_run_keeps_what_it_would_have_done_once_a_minute() -> None:
    scene = Scene(dry_run=True)
    for at_us in (0, SHOWN_AGAIN_US - 1, SHOWN_AGAIN_US):
        assert not scene.begin(decision(*SCALE_OUT, at_us=at_us))
    assert [dry for _, dry in scene.keeper.kept] == [True, True]
    assert scene.journal.last_decision == "dry run: count: scale-out, because"
    assert not scene.decider.split_tasks(scene.look(), ["count"])


def test_an_operator_that_is_not_free_is_left_alone() -> None:
    scene = Scene()
    assert not scene.decider.begin(decision(*SCALE_OUT), scene.look(), lambda _: False)
    assert not scene.keeper.kept


def test_what_finds_no_room_holds_and_says_so_until_it_is_asked_again() -> None:
    scene = Scene()
    assert not scene.begin(decision(*SCALE_OUT), scene.look(room=0))
    assert scene.decider.lacks_room
    ((kept, dry_run),) = scene.keeper.kept
    assert (kept.treatment, kept.rule, kept.actions, dry_run) == (Treatment.HOLD, REFUSED, (), False)
    assert "no worker has room" in scene.journal.take_events()[0].text
    scene.ask(1)
    assert not scene.decider.lacks_room


def test_what_leaves_the_bounds_is_refused_and_lacks_no_room() -> None:
    scene = Scene()
    assert not scene.begin(decision(AddExecutor("b", 3), MoveShards(("count/1",), "a", "b")))
    assert not scene.decider.lacks_room
    assert scene.keeper.kept[0][0].rule == REFUSED


def test_a_condition_is_told_once_it_has_lasted() -> None:
    scene = Scene()
    missing = decision(treatment=Treatment.HOLD, conditions={UNAVAILABLE: "two shards"})
    for at_us in (0, WINDOW_US, 2 * WINDOW_US):
        (made,) = scene.ask(at_us, missing)
        scene.begin(made)
        assert scene.decider.conditions == {UNAVAILABLE: "two shards"}
        assert len(scene.keeper.kept) == (at_us == 2 * WINDOW_US)
    assert [event.text for event in scene.journal.take_events()] == ["fast: count holds: because"]
    scene.ask(3 * WINDOW_US, held="worker w1 is not up")
    assert scene.decider.conditions == {HELD: "worker w1 is not up"}
    scene.decider.away("the store is away")
    assert scene.decider.conditions == {UNAVAILABLE: "the store is away"}


def test_executors_of_several_tasks_are_split_where_the_policy_knows_no_others() -> None:
    wide = replace(SCHEDULE, executors=(ExecutorPlace("a", "w0", 2),))
    scene = Scene(schedule=wide)
    (begun,) = scene.decider.split_tasks(scene.look(), ["count"])
    assert begun.decision.rule == "single-tasks"
    assert len(begun.advance.schedule.executors) == 2
    assert not Scene().decider.split_tasks(Scene().look(), ["count"])


def test_an_executor_that_still_has_shards_does_not_go() -> None:
    scene = Scene()
    assert not scene.begin(decision(RemoveExecutor("a"), treatment=Treatment.SCALE_IN))
    assert scene.keeper.kept[0][0].rule == REFUSED
