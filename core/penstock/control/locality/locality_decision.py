"""A decision about routing tables is a value, as those about tasks are (`control.decision`): what was seen,
what is predicted with and without it, which rule chose it, and later what it brought (promise 8).

Neighbours: `tables` makes them; carrying one out is the reconfiguration's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.control.locality.prediction import LocalityPrediction
from penstock.control.locality.scene import Table


class TableTreatment(StrEnum):
    NONE = "none"
    CHANGE = "change-tables"
    HOLD = "hold"
    """Something could be done, and a rule forbids it now: missing counts, a reconfiguration under way."""


@dataclass(frozen=True, slots=True)
class ChangeTables:
    """The whole tables of operators, by name; an empty one has all keys go by their hash. `keys_moved` change
    their shard, `keys_over` of them their node, with `state_bytes` of state; `cost_bytes` is what that is
    reckoned at, with what a move costs besides."""

    tables: Mapping[str, Table]
    keys_moved: int
    keys_over: int
    state_bytes: float
    cost_bytes: float


@dataclass(frozen=True, slots=True)
class EdgeView:
    """One edge as counted: records that summaries are of, pairs that they are certain of, and the part of the
    records that these are."""

    name: str
    records: int
    records_per_s: float
    pairs: int
    counted_share: float


@dataclass(frozen=True, slots=True)
class LocalityDecision:
    """`rule` names what chose it, in a word or two that stay the same over versions; `reason` is one sentence
    for people with the figures in it. `by_hash` is what would be without any table, `without` with the tables
    that there are, `expected` with those of `action`, or, where none is proposed, with the best there is."""

    at_us: int
    operators: tuple[str, ...]
    treatment: TableTreatment
    rule: str
    reason: str
    action: ChangeTables | None = None
    seen: tuple[EdgeView, ...] = ()
    by_hash: LocalityPrediction | None = None
    without: LocalityPrediction | None = None
    expected: LocalityPrediction | None = None
    conditions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LocalityOutcome:
    """What a change of tables brought: the local share that was measured after it, and `share`, the gain over
    the promised one; None where none was promised."""

    decision: LocalityDecision
    local_share: float
    share: float | None


def brought(decision: LocalityDecision, local_share: float) -> LocalityOutcome:
    """`local_share` of bytes as measured once `decision` was carried out."""
    share = None
    if decision.action is not None and decision.without is not None and decision.expected is not None:
        promised = decision.expected.local_share - decision.without.local_share
        if promised > 0:
            share = (local_share - decision.without.local_share) / promised
    return LocalityOutcome(decision, local_share, share)


def promise_words(outcome: LocalityOutcome) -> str:
    """ "62% was promised, 58% came"."""
    if outcome.share is None or outcome.decision.expected is None:
        return f"{outcome.local_share:.0%} came, and no more was promised"
    return f"{outcome.decision.expected.local_share:.0%} was promised, {outcome.local_share:.0%} came"
