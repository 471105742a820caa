"""A keyed stage whose processor takes DataFrames: rows that came as columns are handed over as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from clocks.standing_clock import StandingClock
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import PANDAS, Fanout, Processor
from penstock.store.even_rows import even_cells, even_entry
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Claimed, Entry, FetchedShard
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.work import Work
from penstock_worker.state.cache import StateCache
from penstock_worker.user_code.running import ProcessorRunner
from penstock_worker.values.group_rows import GroupRows

GIVEN = parse_schema("key bigint, n bigint")
OUT = parse_schema("key bigint, total bigint")
ROWS = 600


class Total(StatefulProcessor):  # type: ignore[misc]  # pyspark carries no types for mypy here
    def init(self, handle: StatefulProcessorHandle) -> None:
        """Without state."""

    def handleInputRows(  # noqa: N802
        self,
        key: tuple[int],
        rows: Iterator[pd.DataFrame],
        timerValues: object,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"key": [key[0]], "total": [sum(int(frame["n"].sum()) for frame in rows)]})

    def close(self) -> None:
        """Nothing is held open."""


@pytest.mark.parametrize("keys", [1, 3])
def test_rows_of_one_key_are_made_by_columns_as_those_of_several(
    keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = ProcessorRunner(Total, GIVEN, (0,), OUT, "count", PANDAS)
    made: list[type] = []
    each = runner.given

    def given(rows_by_key: Any) -> Iterable[Iterable[Any]]:
        made.extend(type(rows) for rows in rows_by_key)
        return each(rows_by_key)

    monkeypatch.setattr(runner, "given", given)
    owned = OwnedShard("count/0", Claimed(1, 1, 0, 0, b"", 0, {}, finished=False))
    stage = KeyedStage(
        "count",
        Processor("m:Total", GIVEN, (0,), 4),
        runner,
        StateCache((), runner.key_types, lambda _: pytest.fail("there is no state")),
        FanoutRunner(Fanout(OUT, (), (), ()), Path()),
        Bounds(),
        StandingClock(),
    )
    stage.adopt(owned)
    numbers = np.arange(ROWS)
    payload = even_entry(np.zeros(ROWS, np.int64), even_cells([numbers % keys, numbers], ROWS))
    fetched = FetchedShard("count/0", 1, 0, (Entry(1, 0, payload),))
    stage.wanted(owned, fetched)
    worked = stage.work(owned, fetched)
    assert isinstance(worked, Work)
    assert worked.rows_out == {"count": keys}
    assert made == [GroupRows] * keys
