"""`filter` and `select` on wire rows: what is kept and made, what is not worked out, and which row raised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.console import ConsoleSink
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.expressions.column_step import all_columns, read_filter, read_select
from penstock.dataflow.plan import Fanout, Step
from penstock.store.codec import decode_batch, decode_timestamps
from penstock.store.port import Bounds
from penstock_worker.expressions.column_step import ColumnStepWork
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.user_code.running import UserCodeError
from penstock_worker.values.held import Held

GIVEN = parse_schema("n int, c string, m map<string,int>")
ROWS = [(1, "a", [["k", 1]]), (0, "b", None), (None, None, []), (2**31 - 1, "é", None)]


def worked(rows: list[Any], *select: str, where: str = "") -> tuple[list[Any], list[int]]:
    step = read_select(select, GIVEN) if select else all_columns(GIVEN)
    if where:
        step = replace(step, kept=read_filter(where, GIVEN), filter_text=where)
    found, times = ColumnStepWork(step, GIVEN, "kept").work(rows, range(len(rows)))
    return list(found), list(times)


def test_rows_are_kept_for_which_the_filter_is_true_with_their_own_times() -> None:
    assert worked(ROWS, where="n > 0") == ([ROWS[0], ROWS[3]], [0, 3])
    assert worked(ROWS, where="n IS NULL OR c = 'b'") == ([ROWS[1], ROWS[2]], [1, 2])
    assert worked(ROWS, where="false") == ([], [])
    assert worked(ROWS, where="NULL") == ([], [])


def test_columns_go_on_as_they_are_and_others_are_made() -> None:
    assert worked(ROWS, "m", "c")[0] == [(row[2], row[1]) for row in ROWS]
    assert worked(ROWS, "c")[0] == [(row[1],) for row in ROWS]
    assert worked(ROWS, "upper(c) AS C", "m", "n % 2 AS odd", "1.50 AS one")[0] == [
        ("A", [["k", 1]], 1, "1.50"),
        ("B", None, 0, "1.50"),
        (None, [], None, "1.50"),
        ("É", None, 1, "1.50"),
    ]


def test_what_is_not_needed_is_not_worked_out() -> None:
    assert worked(ROWS, where="n <> 0 AND 10 / n > 1")[0] == [ROWS[0]]
    assert worked(ROWS, where="n = 0 OR 10 div n = 10")[0] == ROWS[:2]
    assert worked(ROWS, "if(n > 5, 0, n + 1) AS x")[0] == [(2,), (1,), (None,), (0,)]
    assert worked(ROWS, "coalesce(n, 1 div 0) AS x", where="n IS NOT NULL")[0] == [(1,), (0,), (2**31 - 1,)]


def test_the_first_row_that_raises_is_named_with_the_expression() -> None:
    with pytest.raises(UserCodeError) as raised:
        worked(ROWS, "c", "n + 1 AS more")
    assert "operator kept: select 'n + 1 AS more' raised on tuple (2147483647, 'é', None):" in str(
        raised.value
    )
    assert "overflow" in str(raised.value)
    with pytest.raises(
        UserCodeError, match=r"filter '5 % n = 0' raised on tuple \(0, 'b', None\):\ndivision by zero"
    ):
        worked(ROWS, where="5 % n = 0")


def test_a_step_of_expressions_runs_behind_a_stage() -> None:
    columns = replace(read_select(["c", "n * 2 AS twice"], GIVEN), kept=read_filter("n < 5", GIVEN))
    out = Fanout(columns.output, (), (ConsoleSink("out"),), ())
    runner = FanoutRunner(Fanout(GIVEN, (Step("kept", "", out, columns=columns),), (), ()), Path())
    outputs = OutputBatch(Bounds(), "s/0", Held(Bounds(), alone=False))
    assert runner.feed(ROWS, [5, 6, 7, 8], outputs) == {"kept": 2, "out": 2}
    (output,) = outputs.drain()
    batch = decode_batch(output.payload)
    assert [list(row) for row in batch.rows] == [["a", 2], ["b", 0]]
    assert decode_timestamps(output.payload) == [5, 6]
