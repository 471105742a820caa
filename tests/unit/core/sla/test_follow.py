"""A decision that has begun is followed to its end; a step whose schedule was not taken is taken back."""

from __future__ import annotations

from dataclasses import replace

from penstock.control.decision import (
    Action,
    AddExecutor,
    Health,
    MoveShards,
    PolicyDecision,
    Treatment,
)
from penstock.control.snapshot import ShardSample
from penstock.control.target import LatencyTarget, Scope
from penstock.schedule.record import ExecutorPlace, OperatorSchedule, ShardPlace, WorkerPlace
from penstock.sla.decide import Begun
from penstock.sla.decision_record import Brought
from penstock.sla.follow import DROPPED, Follower
from penstock.sla.journal import Journal
from penstock.sla.look import Leeway, Places, Samples, SlaLook
from penstock.sla.promise import Promise
from penstock.sla.treatment import STEP_US_MAX, begin
from penstock.store.port import ShardCounters

SCHEDULE = OperatorSchedule(
    operator="count",
    version=7,
    term=0,
    workers=(WorkerPlace("w0", "here", "here", "uid0"),),
    executors=(ExecutorPlace("a", "w0", 1),),
    shards={f"count/{part}": ShardPlace("a", "local") for part in range(2)},
)
SCALE_OUT = (AddExecutor("b"), MoveShards(("count/1",), "a", "b"))
PROMISE = Promise("fast", "count", "P", 1, 1, 1, False, Scope({"count": LatencyTarget(1_000)}, {}))


class Keeper:
    """Remembers."""

    def __init__(self) -> None:
        self.outcomes: list[Brought] = []

    def decided(self, decision: PolicyDecision, sla: str, *, dry_run: bool) -> int:
        return 1

    def brought(self, outcome: Brought) -> None:
        self.outcomes.append(outcome)


class Scene:
    """One operator under a decision of `actions`; `schedule` is as it stands."""

    def __init__(self, *actions: Action) -> None:
        self.keeper = Keeper()
        self.journal = Journal(PROMISE, self.keeper)
        self.follower = Follower("count", STEP_US_MAX, self.journal)
        self.schedule = SCHEDULE
        decision = PolicyDecision(
            0, "P", "count", Treatment.SCALE_OUT, "rule", "because", Health.SEVERE, actions
        )
        first = begin(decision, SCHEDULE, {"w0": 4}, {"a"}, 0)
        self.published = self.follower.begin(Begun(decision, 1, first), self.look(0), tasks=1)
        self.publish()

    def publish(self) -> None:
        if self.published is not None:
            self.schedule = replace(self.published, version=self.schedule.version + 1)

    def look(
        self,
        at_us: int,
        spoke: dict[str, list[int]] | None = None,
        owners: dict[str, str] | None = None,
        held: str = "",
    ) -> SlaLook:
        counters = {
            shard: ShardCounters(1, 1, 1, 0, 0, 0, 0, 0, 0, (owners or {}).get(shard, "a"), False)
            for shard in SCHEDULE.shards
        }
        places = Places({"count": self.schedule}, {}, {"w0": 4})
        return SlaLook(at_us, Samples({"count": counters}, {}, spoke or {}), places, Leeway(held=held))

    def follow(self, look: SlaLook) -> OperatorSchedule | None:
        samples: dict[str, ShardSample | None] = dict.fromkeys(SCHEDULE.shards, ShardSample(0, 0, 0))
        self.published = self.follower.follow(look, samples, tasks=2)
        self.publish()
        return self.published


def test_a_scale_out_goes_from_announced_through_moving_to_its_end() -> None:
    scene = Scene(*SCALE_OUT)
    assert [executor.name for executor in scene.schedule.executors] == ["a", "b"]
    assert scene.follower.awaits_tasks
    assert scene.follower.words == "scale-out #1 of count is under way"
    assert scene.follow(scene.look(1_000)) is None
    moved = scene.follow(scene.look(2_000, {"b": [1_500]}))
    assert moved is not None
    assert moved.shards["count/1"].executor == "b"
    assert not scene.follower.awaits_tasks
    assert scene.follow(scene.look(3_000, owners={"count/1": "b"})) is None
    assert (scene.follower.is_busy, scene.follower.words) == (False, "")
    assert [treated.ended_us for treated in scene.follower.ended] == [3_000]
    assert not scene.keeper.outcomes


def test_a_step_that_does_not_come_in_time_is_told_as_trouble_and_kept_as_stuck() -> None:
    scene = Scene(*SCALE_OUT)
    withdrawn = scene.follow(scene.look(STEP_US_MAX))
    assert withdrawn is not None
    assert [executor.name for executor in withdrawn.executors] == ["a"]
    (outcome,) = scene.keeper.outcomes
    assert outcome.stuck == "b did not come up within 10 s"
    assert (outcome.took_us, outcome.tasks) == (STEP_US_MAX, 2)
    assert [event.is_trouble for event in scene.journal.take_events()] == [True]
    assert not scene.follower.ended


def test_while_nothing_may_be_moved_what_is_under_way_is_given_up_and_others_tell_why() -> None:
    scene = Scene(*SCALE_OUT)
    assert scene.follow(scene.look(1_000, held="worker w1 is not up")) is None
    assert not scene.follower.is_busy
    assert scene.keeper.outcomes[0].stuck == "worker w1 is not up while it was under way"
    assert [event.is_trouble for event in scene.journal.take_events()] == [False]


def test_a_decision_whose_first_schedule_was_not_taken_is_dropped() -> None:
    scene = Scene(*SCALE_OUT)
    scene.follower.take_back(tasks=1)
    assert not scene.follower.is_busy
    assert [outcome.stuck for outcome in scene.keeper.outcomes] == [DROPPED]


def test_a_later_step_that_was_not_taken_is_worked_out_anew() -> None:
    scene = Scene(*SCALE_OUT)
    before = scene.schedule
    assert scene.follow(scene.look(2_000, {"b": [1_500]})) is not None
    scene.follower.take_back(tasks=2)
    scene.schedule = before
    assert scene.follower.awaits_tasks
    again = scene.follow(scene.look(3_000, {"b": [2_500]}))
    assert again is not None
    assert again.shards["count/1"].executor == "b"
    assert not scene.keeper.outcomes


def test_an_end_that_was_not_taken_is_no_end() -> None:
    scene = Scene(MoveShards(("count/0",), "a", "a"))
    assert not scene.follower.is_busy
    assert len(scene.follower.ended) == 1
    scene.follower.take_back(tasks=1)
    assert not scene.follower.ended
