"""A plan whose every operator has one sink more: what comes out of it is collected for the test.

So is what came late, also where the manifest drops it. All else of the plan is as it is. Neighbours:
`collected_rows` is what the sinks lead to, `one_node` runs the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.dataflow.plan import Fanout, Plan, Processor, Stage
from penstock.dataflow.sink import Sink


@dataclass(frozen=True, slots=True)
class ObservedSink(Sink):
    """Leads to the test."""

    kind: ClassVar[str] = "observed"

    name: str

    def identity_text(self) -> str:
        return ""


def rows_of(operator: str) -> str:
    """The sink that collects what an operator puts out; no operator can be called so."""
    return f"{operator}:rows"


def late_rows_of(operator: str) -> str:
    """The sink that collects what came late to it."""
    return f"{operator}:late"


def observed(plan: Plan) -> Plan:
    """The plan with these sinks."""
    return replace(plan, stages=tuple(map(_observed_stage, plan.stages)))


def _observed_stage(stage: Stage) -> Stage:
    if stage.is_sink or stage.initial_of:
        return stage
    head = stage.head
    if isinstance(head, Processor) and head.by_event_time:
        late = ObservedSink(late_rows_of(stage.operator))
        head = replace(head, late_sinks=(*head.late_sinks, late))
    return replace(stage, head=head, out=_observed_fanout(stage.out, stage.operator))


def _observed_fanout(fanout: Fanout, operator: str) -> Fanout:
    steps = tuple(replace(step, out=_observed_fanout(step.out, step.name)) for step in fanout.steps)
    return replace(fanout, steps=steps, sinks=(*fanout.sinks, ObservedSink(rows_of(operator))))
