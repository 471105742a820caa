"""Dead letters of a tested topology, as a test reads them.

Neighbours: `penstock.store.dead_letters` reads and orders, `topology_test` says of which operator.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.dataflow.plan import Fanout, Plan, Processor
from penstock.dataflow.schema import Schema
from penstock.store.dead_letters import DeadLetters, Place
from penstock.store.letters import INITIAL, INPUT, REPLAY, TIMER, Letter
from penstock.store.port import NodeStore
from penstock.store.shard_homes import ShardHomes
from penstock_worker.testing.topologies.kept_state import plain_key
from penstock_worker.testing.topologies.shown_rows import ShownRows
from penstock_worker.testing.topologies.virtual_clock import instant

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
        self._inputs = dict(_inputs(plan))
        self._heads = {s.operator: s.head for s in plan.stages if isinstance(s.head, Processor)}

    @property
    def operators(self) -> Sequence[str]:
        """Those that can have some."""
        return tuple(self._inputs)

    def of(self, operator: str) -> list[DeadLetter]:
        """By when they were written, as far as one shard's go: of several shards by that time."""
        found = sorted(self._letters.all(operator), key=lambda one: one[1].at_ms)
        return [self._shown(place, letter) for place, letter in found]

    def order(self, operator: str) -> int:
        """Have all letters of an operator worked on again; how many there are."""
        places = [place for place, _ in self._letters.all(operator)]
        for place in places:
            self._letters.order(REPLAY, place)
        return len(places)

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


def _inputs(plan: Plan) -> Iterator[tuple[str, Schema | None]]:
    """Operator -> the schema of its input; None for a source."""
    for stage in plan.stages:
        if stage.initial_of:
            continue
        yield stage.operator, stage.head.input if isinstance(stage.head, Processor) else None
        yield from _inputs_of_steps(stage.out)


def _inputs_of_steps(fanout: Fanout) -> Iterator[tuple[str, Schema | None]]:
    for step in fanout.steps:
        yield step.name, fanout.schema
        yield from _inputs_of_steps(step.out)
