"""Runs processors in PySpark's own TwsTester, key by key."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pandas as pd
from pyspark.sql import Row
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
    tester = TwsTester(case.processor())
    place = given.names.index(group.key[0])
    shape = OutputShape(given)
    found = []
    for batch in case.batches:
        groups: dict[Any, list[Any]] = defaultdict(list)
        for row in shape.wire_rows([(case.name, *row) for row in batch]):
            groups[row[place]].append(row)
        wire_rows: list[tuple[Any, ...]] = []
        for key, rows in groups.items():
            if in_pandas:
                frame = tester.testInPandas(key, FrameReader(given).frame(rows))
                wire_rows += FrameShape(output).wire_rows(frame) if isinstance(frame, pd.DataFrame) else []
            else:
                made: list[Row] = tester.test(key, list(RowReader(given).rows(rows)))
                wire_rows += OutputShape(output).wire_rows(made)
        lines = JsonRows(output).lines(wire_rows).splitlines()
        found.append(told(map(json.loads, lines), output.names))
    return found
