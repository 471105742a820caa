"""What is run: a processor with its batches of rows, and what comes out of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming import StatefulProcessor

from penstock.dataflow.plan import ROWS

CASE = "case"
"""The column that tells the cases of one query apart; it is the first of their input and of their key."""

Batches = Sequence[Sequence[tuple[Any, ...]]]
Told = list[list[str]]
"""Of each batch the rows that came out, as JSON, sorted."""


@dataclass(frozen=True)
class Case:
    """`processor` works on rows of its group's input. `output` are its columns; `in_tester` whether TwsTester
    does the same, which keeps what it is given and knows one key column only."""

    processor: type[StatefulProcessor]
    output: str
    batches: Batches
    in_tester: bool = True

    @property
    def name(self) -> str:
        return self.processor.__name__


@dataclass(frozen=True)
class Group:
    """Cases that share one query in Spark: one form, one input, one key."""

    form: str
    input: str
    key: tuple[str, ...]
    cases: tuple[Case, ...]

    @property
    def name(self) -> str:
        return f"{self.form} by {', '.join(self.key)}"


def told(lines: Sequence[str]) -> list[str]:
    """Rows in an order of their own."""
    return sorted(lines)


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


__all__ = ["CASE", "ROWS", "Batches", "Case", "Group", "Told", "of_keys", "told"]
