"""Decisions as records: what was seen, predicted and chosen, and later what it brought (promise 8).

Neighbours: `loop` hands them to a `DecisionKeeper`; `penstock run` keeps them in a file, the cluster's
operator in the status of the LatencySLA and in its log.
"""

from __future__ import annotations

import math
from typing import Protocol

import msgspec

from penstock.control.decision import (
    Action,
    AddExecutor,
    AssignCores,
    MoveShards,
    PolicyDecision,
    Prediction,
    RemoveExecutor,
)


class Expected(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `Prediction`; `latency_us` None: it never catches up."""

    latency_us: float | None
    tasks: int


class SeenExecutor(msgspec.Struct, frozen=True):
    """An `ExecutorView`; `expected_us` None is unknown unless `overloaded`: then it never catches up."""

    name: str
    health: str
    arrival_per_s: float | None
    service_per_s: float | None
    instantaneous_us: float | None
    expected_us: float | None
    overloaded: bool


class Brought(msgspec.Struct, frozen=True, tag_field="kind", tag="outcome"):
    """What decision `number` came to. `latency_us` is the average at the worst executor or shard over a
    window after it was carried out, `promised_us` what was expected of it, `before_us` what was measured when
    it was made; `share` is the gain over the promised one, below 0 where it became worse, None where none was
    promised. `stuck` says what did not come in time."""

    number: int
    took_us: int
    latency_us: float | None
    tasks: int
    share: float | None = None
    stuck: str = ""
    promised_us: float | None = None
    before_us: float | None = None


class DecisionRecord(msgspec.Struct, frozen=True, tag_field="kind", tag="decision"):
    """One decision as it was made. `actions` are in words; `dry_run`: nothing was done."""

    number: int
    at_us: int
    sla: str
    policy: str
    operator: str
    treatment: str
    rule: str
    reason: str
    health: str
    actions: tuple[str, ...]
    seen: tuple[SeenExecutor, ...]
    without: Expected | None
    expected: Expected | None
    conditions: dict[str, str]
    dry_run: bool
    brought: Brought | None = None


class DecisionKeeper(Protocol):
    """Where a loop's decisions are remembered."""

    def decided(self, decision: PolicyDecision, sla: str, *, dry_run: bool) -> int:
        """Keep `decision`; answers its number."""

    def brought(self, outcome: Brought) -> None:
        """Keep what an earlier one came to."""


def record_of(decision: PolicyDecision, number: int, sla: str, *, dry_run: bool) -> DecisionRecord:
    """`decision` as a line."""
    return DecisionRecord(
        number=number,
        at_us=decision.at_us,
        sla=sla,
        policy=decision.policy,
        operator=decision.operator,
        treatment=str(decision.treatment),
        rule=decision.rule,
        reason=decision.reason,
        health=str(decision.health),
        actions=tuple(action_words(action) for action in decision.actions),
        seen=tuple(
            SeenExecutor(
                name=view.name,
                health=str(view.health),
                arrival_per_s=view.arrival_per_s,
                service_per_s=view.service_per_s,
                instantaneous_us=view.instantaneous_us,
                expected_us=finite(view.expected_us),
                overloaded=view.expected_us is not None and math.isinf(view.expected_us),
            )
            for view in decision.seen
        ),
        without=_expected(decision.without),
        expected=_expected(decision.expected),
        conditions=dict(decision.conditions),
        dry_run=dry_run,
    )


def action_words(action: Action) -> str:
    """An action in words: "12 shards from count-w0 to count-w0-1"."""
    match action:
        case MoveShards(shards, source, destination):
            number = f"{len(shards)} shards" if len(shards) > 1 else f"shard {shards[0]}"
            return f"{number} from {source} to {destination}"
        case AddExecutor(name, tasks, node):
            where = f" on node {node}" if node else ""
            return f"executor {name} with {_tasks(tasks)}{where}"
        case RemoveExecutor(name):
            return f"executor {name} goes"
        case AssignCores(name, cores):
            spread = ", ".join(f"{count} on {node}" for node, count in cores.items() if node)
            return f"executor {name} to {_tasks(sum(cores.values()))}{f' ({spread})' if spread else ''}"


def _expected(prediction: Prediction | None) -> Expected | None:
    return None if prediction is None else Expected(finite(prediction.latency_us), prediction.tasks)


def finite(number: float | None) -> float | None:
    """None for what never ends."""
    return None if number is None or math.isinf(number) else number


def _tasks(number: int) -> str:
    return f"{number} task" if number == 1 else f"{number} tasks"
