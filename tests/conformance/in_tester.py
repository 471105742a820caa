"""Runs processors in PySpark's own TwsTester, key by key."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pandas as pd
from pyspark.sql.streaming.tws_tester import TwsTester

from conformance.case import CASE, Case, Group, Told, told
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.json_rows import JsonRows
from penstock.dataflow.plan import PANDAS
from penstock_worker.values.frame_rows import FrameShape
from penstock_worker.values.frames import FrameReader
from penstock_worker.values.rows import OutputShape, RowReader


def in_tester(group: Group, case: Case) -> Told:
    """What came out of each batch; rows and outputs are read and checked as Penstock does."""
    given, output = parse_schema(f"{CASE} string, {group.input}"), parse_schema(case.output)
    in_pandas = group.form == PANDAS
    tester = TwsTester(case.processor(), timeMode=group.time_mode)
    place = given.names.index(group.key[0])
    shape = OutputShape(given)
    found = []

    def taken(made: Any) -> list[tuple[Any, ...]]:
        if not in_pandas:
            return OutputShape(output).wire_rows(made)
        return FrameShape(output).wire_rows(made) if isinstance(made, pd.DataFrame) else []

    for number, batch in enumerate(case.batches):
        if group.times_ms:
            # It fires what is due when it is told the time; Spark does behind the rows.
            tester._currentProcessingTimeMs = group.times_ms[number]
        groups: dict[Any, list[Any]] = defaultdict(list)
        for row in shape.wire_rows([(case.name, *row) for row in batch]):
            groups[row[place]].append(row)
        wire_rows: list[tuple[Any, ...]] = []
        for key, rows in groups.items():
            if in_pandas:
                wire_rows += taken(tester.testInPandas(key, FrameReader(given).frame(rows)))
            else:
                wire_rows += taken(tester.test(key, list(RowReader(given).rows(rows))))
        if group.times_ms:
            tester._currentProcessingTimeMs -= 1
            wire_rows += taken(tester.setProcessingTime(group.times_ms[number]))
        lines = JsonRows(output).lines(wire_rows).splitlines()
        found.append(told(map(json.loads, lines), output.names))
    return found
