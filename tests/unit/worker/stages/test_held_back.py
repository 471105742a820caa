"""Rows by event time that are tried again: nothing becomes late by it, in their operator or behind it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.testing import TopologyTest

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: tried}
spec:
  code: {module: tried_by_event_time}
  operators:
  - name: rows
    source: {files: {glob: "*.jsonl", format: jsonl, schema: "word string, at timestamp"}}
    eventTime: {column: at}
  - name: checked
    inputs: [rows]
    keyBy: [word]
    processor: tried_by_event_time:Checked
    outputSchema: "word string, at timestamp, told bigint"
    timeMode: EventTime
    eventTime: {column: at}
    shards: 4
    onError: {policy: Retry, attempts: 4, backoff: 100ms}
  - name: minutes
    inputs: [checked]
    keyBy: [word]
    window: {tumbling: 1m}
    aggregate:
    - {as: rows, function: count}
    - {as: told, function: max, column: told}
    shards: 4
  - name: out
    inputs: [minutes]
    sink: {console: {}}
"""
CODE = """
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

FAILS = 2
FIRED = []


class Checked(StatefulProcessor):
    def init(self, handle):
        self.handle = handle

    def handleInputRows(self, key, rows, timerValues):
        global FAILS
        told = timerValues.getCurrentWatermarkInMs()
        if key[0] == "slow" and FAILS:
            FAILS -= 1
            raise ConnectionError("away")
        for row in rows:
            self.handle.registerTimer(int(row.at.timestamp() * 1000) + 30_000)
            yield Row(word=key[0], at=row.at, told=told)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        FIRED.append((key[0], expiredTimerInfo.getExpiryTimeInMs()))
        yield from ()

    def close(self):
        pass
"""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


@pytest.fixture
def test(tmp_path: Path) -> Iterator[TopologyTest]:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "tried_by_event_time.py").write_text(CODE)
    with TopologyTest.of(tmp_path / "topology.yaml") as test:
        yield test
    sys.modules.pop("tried_by_event_time", None)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_what_comes_of_a_row_that_was_tried_again_is_in_time_behind_it(test: TopologyTest) -> None:
    test.feed("rows", [("quick", after(5))])
    test.feed("rows", [("slow", after(10))])
    test.feed("rows", [("quick", after(300))])
    assert test.watermark("checked") == after(300)
    assert test.watermark("minutes") == after(5)
    assert test.rows("out") == []
    test.advance(seconds=1)
    assert test.watermark("minutes") == after(300)
    assert test.late_rows("minutes") == test.late_rows("checked") == []
    first = {row["word"]: row for row in test.rows("out")}
    assert {word: row["rows"] for word, row in first.items()} == {"quick": 1, "slow": 1}
    assert first["slow"]["told"] == ms(after(5))


def test_timers_of_other_keys_fire_meanwhile_and_those_of_the_key_behind_its_rows(test: TopologyTest) -> None:
    fired = sys.modules["tried_by_event_time"].__dict__["FIRED"]
    test.feed("rows", [("quick", after(5)), ("slow", after(10))])
    test.feed("rows", [("quick", after(300))])
    assert fired == [("quick", ms(after(35)))]
    test.advance(seconds=1)
    assert fired == [("quick", ms(after(35))), ("slow", ms(after(40)))]


def test_another_task_holds_back_what_the_one_before_did(test: TopologyTest) -> None:
    test.feed("rows", [("slow", after(10))])
    test.restart("checked")
    test.feed("rows", [("quick", after(300))])
    assert test.watermark("minutes") in (None, NOON, after(10))
    test.advance(seconds=1)
    assert test.watermark("minutes") == after(300)
    assert test.late_rows("minutes") == []
