"""A guard around a policy that says what it is told to, look after look."""

from __future__ import annotations

from dataclasses import replace

from penstock.control.decision import (
    Action,
    AddExecutor,
    ExecutorView,
    Health,
    MoveShards,
    PolicyDecision,
    Prediction,
    RemoveExecutor,
    Treatment,
)
from penstock.control.guard import Guard, GuardRules
from penstock.control.snapshot import ExecutorSeen, OperatorSnapshot, TopologySnapshot
from penstock.control.target import LatencyTarget, Scope, TaskLimits
from scenes.control_scene import SLOT_US, decision, view

TARGET = LatencyTarget(latency_us=1_000_000)


SECOND = 1_000_000


OUT: tuple[Action, ...] = (AddExecutor("E3"), MoveShards(("s0",), "E1", "E3"))


IN: tuple[Action, ...] = (MoveShards(("s1",), "E2", "E1"), RemoveExecutor("E2"))


class Scripted:
    """Answers what it was given last."""

    def __init__(self) -> None:
        self.next: tuple[PolicyDecision, ...] = ()

    @property
    def name(self) -> str:
        return "Scripted"

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        return tuple(replace(one, at_us=snapshot.at_us) for one in self.next)


class Scene:
    """A guard around a script, over operator "op" with executors E1 and E2 (unless a test changes it)."""

    def __init__(
        self,
        rules: GuardRules | None = None,
        limits: TaskLimits | None = None,
        cores_max: float | None = None,
    ) -> None:
        self.script = Scripted()
        self.scope = Scope({"op": TARGET}, {"op": limits or TaskLimits(1, 4)}, cores_max)
        self.guard = Guard(self.script, self.scope, rules)
        self.executors = ["E1", "E2"]
        self.assignment = {"s0": "E1", "s1": "E2"}
        self.treatment = False
        self.tasks = 1
        self.at_us = 0

    def look(self, *decisions: PolicyDecision) -> PolicyDecision:
        self.script.next = decisions or (decision(0, seen=self.views()),)
        self.at_us += SLOT_US
        return self.guard.decide(self.snapshot())[0]

    def views(
        self, arrival_per_s: float = 100.0, instantaneous_us: float = 5000.0
    ) -> tuple[ExecutorView, ...]:
        return tuple(view(name, arrival_per_s, instantaneous_us=instantaneous_us) for name in self.executors)

    def snapshot(self) -> TopologySnapshot:
        seen = OperatorSnapshot(
            "op",
            tuple(ExecutorSeen(name, self.tasks, self.tasks) for name in self.executors),
            dict(self.assignment),
            {},
            self.treatment,
        )
        return TopologySnapshot(self.at_us, {"op": seen})

    def severe_out(self, latency_us: float = 100_000.0) -> PolicyDecision:
        return decision(
            0,
            Treatment.SCALE_OUT,
            Health.SEVERE,
            actions=OUT,
            seen=self.views(instantaneous_us=500_000.0),
            without=Prediction(float("inf"), 2),
            expected=Prediction(latency_us, 3),
        )

    def good_in(self) -> PolicyDecision:
        return decision(
            0, Treatment.SCALE_IN, actions=IN, seen=self.views(), expected=Prediction(3000, 1),
            without=Prediction(2000, 2),
        )  # fmt: skip
