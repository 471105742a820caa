"""Dead letters of a tested topology, as a test reads them.

Neighbours: `penstock.store.dead_letters` reads and orders, `topology_test` says of which operator.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.dataflow.letter_columns import DEAD_LETTERS
from penstock.dataflow.plan import Plan, Processor
from penstock.store.dead_letters import DeadLetters, Place
from penstock.store.letters import INITIAL, INPUT, REPLAY, TIMER, Letter
from penstock.store.port import NodeStore
from penstock.store.shard_homes import ShardHomes
from penstock_worker.testing.topologies.failures import Misuse
from penstock_worker.testing.topologies.kept_state import plain_key
from penstock_worker.testing.topologies.shown_rows import ShownRows
from penstock_worker.testing.topologies.virtual_clock import instant
from penstock_worker.values.letter_rows import inputs_of

_STORE = "tested"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What code has failed on. `rows` are as the operator was given them, dicts; `key` is a value, of several
    columns a tuple, None where the operator has no keys. `error` is what was raised, with its traceback;
    `timer` the time of one whose handler raised."""

    operator: str
    key: Any
    rows: list[Any]
    error: str
    attempts: int = 1
    timer: datetime.datetime | None = None


class KeptLetters:
    """Of all operators of `plan`. `shards` are all there are, in `store`."""

    def __init__(self, plan: Plan, shards: Iterable[str], store: NodeStore) -> None:
        self._letters = DeadLetters(ShardHomes(dict.fromkeys(shards, _STORE), {_STORE: store}))
        stages = [stage for stage in plan.stages if not stage.initial_of]
        self._inputs = {name: schema for stage in stages for name, schema in inputs_of(stage)}
        self._sent = {name for stage in stages for name, policy in stage.policies.items() if policy.to_sink}
        self._heads = {s.operator: s.head for s in plan.stages if isinstance(s.head, Processor)}

    @property
    def operators(self) -> Sequence[str]:
        """Those that can have some."""
        return tuple(self._inputs)

    def of(self, operator: str) -> list[DeadLetter]:
        """By when they were written, as far as one shard's go: of several shards by that time. Raises Misuse
        where they go to a sink."""
        found = sorted(self._letters.all(operator), key=lambda one: one[1].at_ms)
        self._check_kept(operator, len(found))
        return [self._shown(place, letter) for place, letter in found]

    def order(self, operator: str) -> int:
        """Have all letters of an operator worked on again; how many there are. Raises Misuse as `of`."""
        places = [place for place, _ in self._letters.all(operator)]
        self._check_kept(operator, len(places))
        for place in places:
            self._letters.order(REPLAY, place)
        return len(places)

    def _check_kept(self, operator: str, found: int) -> None:
        """Letters that are too large for a sink are kept all the same."""
        if operator in self._sent and not found:
            raise Misuse(
                f"dead letters of {operator} are not kept: they go to the sink of spec.deadLetters. Read "
                f"rows({DEAD_LETTERS!r}), or give the test overrides "
                f"[{f'{operator}.onError.to=Store'!r}]"
            )

    def _shown(self, place: Place, letter: Letter) -> DeadLetter:
        head = self._heads.get(place.operator)
        schema = self._inputs[place.operator]
        if letter.kind == INITIAL and head is not None and head.initial is not None:
            schema = head.initial.schema
        rows: list[Any] = letter.rows
        if letter.kind != INPUT and schema is not None:
            rows = list(ShownRows(schema).rows(tuple(row) for row in letter.rows))
        timer = instant((letter.expiry_ms or 0) * 1000) if letter.kind == TIMER else None
        key = None if letter.key is None or head is None else plain_key(head, letter.key)
        return DeadLetter(place.operator, key, rows, letter.error, letter.attempts, timer)
