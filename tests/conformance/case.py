"""What is run: a processor with its batches of rows, and what comes out of each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming import StatefulProcessor

from conformance.dispatch import name_of
from penstock.dataflow.plan import NO_TIME, PROCESSING_TIME

CASE = "case"
"""The column that tells the cases of one query apart; it is the first of their input and of their key."""

Batches = Sequence[Sequence[tuple[Any, ...]]]
Told = list[list[str]]
"""Of each batch the rows that came out, as JSON, sorted."""


@dataclass(frozen=True)
class Case:
    """`processor` works on rows of its group's input. `output` are its columns; `in_tester` whether TwsTester
    does the same: it keeps what it is given, knows one key column only, says that an emptied map exists,
    works with what was deleted, and lets nothing expire."""

    processor: type[StatefulProcessor]
    output: str
    batches: Batches
    in_tester: bool = True

    @property
    def name(self) -> str:
        return name_of(self.processor)


@dataclass(frozen=True)
class Group:
    """Cases that share one query in Spark: one form, one input, one key.

    `times_ms` says when each batch begins, where the cases have timers and times to live.
    """

    form: str
    input: str
    key: tuple[str, ...]
    cases: tuple[Case, ...]
    times_ms: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert not self.times_ms or {len(case.batches) for case in self.cases} == {len(self.times_ms)}

    @property
    def name(self) -> str:
        timed = " with timers" if self.times_ms else ""
        return f"{self.form} by {', '.join(self.key)} of {self.input}{timed}"

    @property
    def time_mode(self) -> str:
        return PROCESSING_TIME if self.times_ms else NO_TIME


def told(rows: Iterable[dict[str, Any]], names: Sequence[str]) -> list[str]:
    """Rows with the columns `names`, those that are not there as null, in an order of their own."""
    return sorted(json.dumps({name: row.get(name) for name in names}, ensure_ascii=False) for row in rows)


def differences(ours: Told, theirs: Told) -> list[str]:
    """A line for each row that only one of the two has, by batch."""
    assert len(ours) == len(theirs)
    found = []
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        found += [f"batch {number}, only here: {row}" for row in (Counter(one) - Counter(other)).elements()]
        found += [f"batch {number}, only there: {row}" for row in (Counter(other) - Counter(one)).elements()]
    return found


def of_keys(*keys: str, rows: Callable[[str, int], tuple[Any, ...]], counts: Sequence[int]) -> Batches:
    """For each count a batch with so many rows of each key, made of key and number."""
    batches, number = [], 0
    for count in counts:
        batch = []
        for _ in range(count):
            for key in keys:
                batch.append(rows(key, number))
                number += 1
        batches.append(batch)
    return batches
