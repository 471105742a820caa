"""Rows of one key on which a processor fails: what it is called for until the bad ones are found."""

# ruff: noqa: N802, N803 - pyspark's own names
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import PANDAS
from penstock.store.ownership import OwnedShard
from penstock_worker.stages.spared_calls import SparedCalls
from penstock_worker.state.cache import StateCache
from penstock_worker.user_code.running import ProcessorRunner
from scenes.owned_state import SHARD, OwnedState

BAD = 181
ROWS = [["ash", n] for n in range(256)]


class _Noting(StatefulProcessor):
    """Notes how many rows of each call it has looked at, in `calls`; it counts those that are not bad."""

    def __init__(self, calls: list[int]) -> None:
        self._calls = calls

    def init(self, handle: Any) -> None:
        self._total = handle.getValueState("total", "total long")

    def _look(self, key: Any, numbers: Sequence[int]) -> int:
        before = self._total.get()
        self._total.update(((before[0] if before else 0) + len(numbers),))
        if BAD in numbers:
            raise ValueError(f"row {BAD} of {key[0]} is bad")
        return int(self._total.get()[0])


class OneByOne(_Noting):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self._calls.append(0)
        total = 0
        for row in rows:
            self._calls[-1] += 1
            total = self._look(key, [row.n])
        yield Row(word=key[0], total=total)


class AllAtOnce(_Noting):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        numbers = [row.n for row in rows]
        self._calls.append(len(numbers))
        yield Row(word=key[0], total=self._look(key, numbers))


class AsFrames(_Noting):
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for frame in rows:
            self._calls.append(len(frame))
            yield pd.DataFrame({"word": [key[0]], "total": [self._look(key, list(frame.n))]})


def worked(processor: type[_Noting], form: str = "") -> tuple[list[int], int]:
    """The rows that each call has looked at, and the total behind all of them."""
    calls: list[int] = []
    given, output = parse_schema("word string, n long"), parse_schema("word string, total long")
    runner = ProcessorRunner(lambda: processor(calls), given, [0], output, "count", form)
    scene = OwnedState(lambda handle: None).scene
    cache = StateCache(runner.variables, runner.key_types, scene.store.call)
    spared = SparedCalls(runner)
    made = spared.run(cache.shard(OwnedShard(SHARD, scene.claims[SHARD])), ("ash",), ROWS, 0)
    (refused,) = spared.refused
    assert refused.rows == [ROWS[BAD]]
    assert f"row {BAD} of ash is bad" in refused.error
    return calls, made[-1][1]


def test_a_row_that_rows_are_taken_up_to_is_tried_alone_at_once() -> None:
    assert worked(OneByOne) == ([182, 181, 1, 74], 255)


@pytest.mark.parametrize(("processor", "form"), [(AllAtOnce, ""), (AsFrames, PANDAS)])
def test_where_all_rows_were_taken_halves_are_tried(processor: type[_Noting], form: str) -> None:
    calls, total = worked(processor, form)
    assert len(calls) == 17
    assert total == 255
