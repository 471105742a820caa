"""Decisions on tables as records, as those about tasks are (`sla.decision_record`): seen, predicted, chosen,
and later what came of it (promise 8); and an edge as people are shown it.

Neighbours: `loop` hands records to a `TableDecisionKeeper` and makes lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec

from penstock.control.locality.locality_decision import ChangeTables, LocalityDecision
from penstock.control.locality.prediction import LocalityPrediction
from penstock.control.wording import counted, of_bytes


class SeenEdge(msgspec.Struct, frozen=True):
    """An `EdgeView`."""

    name: str
    records: int
    records_per_s: float
    pairs: int
    counted_share: float


class Placed(msgspec.Struct, frozen=True):
    """A `LocalityPrediction`: what part of the bytes stays on its node, in all and by edge."""

    local_share: float
    remote_bytes_per_s: float
    imbalance: float
    edges: dict[str, float]


class TablesBrought(msgspec.Struct, frozen=True, tag_field="kind", tag="tables-outcome"):
    """What decision `number` came to: the share that was measured once its tables were carried out, and the
    gain over the promised one; None where none was promised."""

    number: int
    took_us: int
    local_share: float
    share: float | None
    words: str


class TablesRecord(msgspec.Struct, frozen=True, tag_field="kind", tag="tables"):
    """One decision as it was made. `actions` are in words; `dry_run`: nothing was done."""

    number: int
    at_us: int
    operators: tuple[str, ...]
    treatment: str
    rule: str
    reason: str
    actions: tuple[str, ...]
    seen: tuple[SeenEdge, ...]
    by_hash: Placed | None
    without: Placed | None
    expected: Placed | None
    dry_run: bool
    brought: TablesBrought | None = None


class TableDecisionKeeper(Protocol):
    """Where decisions on tables are remembered."""

    def tables_decided(self, decision: LocalityDecision, *, dry_run: bool) -> int:
        """Keep `decision`; answers its number."""

    def tables_brought(self, outcome: TablesBrought) -> None:
        """Keep what an earlier one came to."""


@dataclass(frozen=True, slots=True)
class EdgeLine:
    """An edge as people are shown it. `local_share` is measured, None where it is not known; `by_hash` and
    `expected` are of the last decision that reckoned with it. `versions` are those of the tables of both
    ends, 0 for none."""

    upstream: str
    downstream: str
    local_share: float | None
    by_hash: float | None
    expected: float | None
    versions: tuple[int, int]
    is_changing: bool

    @property
    def name(self) -> str:
        return f"{self.upstream} to {self.downstream}"


def record_of(decision: LocalityDecision, number: int, *, dry_run: bool) -> TablesRecord:
    """`decision` as a line."""
    return TablesRecord(
        number=number,
        at_us=decision.at_us,
        operators=decision.operators,
        treatment=str(decision.treatment),
        rule=decision.rule,
        reason=decision.reason,
        actions=action_words(decision.action),
        seen=tuple(
            SeenEdge(view.name, view.records, view.records_per_s, view.pairs, view.counted_share)
            for view in decision.seen
        ),
        by_hash=_placed(decision.by_hash),
        without=_placed(decision.without),
        expected=_placed(decision.expected),
        dry_run=dry_run,
    )


def action_words(change: ChangeTables | None) -> tuple[str, ...]:
    """A change in words, an operator each: "a table of 120 keys for count"."""
    if change is None:
        return ()
    tables = (f"a table of {counted(len(table), 'key')} for {name}" for name, table in change.tables.items())
    return (*tables, f"{counted(change.keys_moved, 'key')} move, {of_bytes(change.state_bytes)} of state")


def _placed(prediction: LocalityPrediction | None) -> Placed | None:
    if prediction is None:
        return None
    return Placed(
        prediction.local_share,
        prediction.remote_bytes_per_s,
        prediction.imbalance,
        dict(prediction.edges),
    )
