"""The same topology on the same rows by `penstock.testing` and by `penstock run`: the same rows come out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import TopologyTest
from processes.run_harness import Run, read_rows

HEAD = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: compared}
spec:
  code: {module: compared_code}
  operators:
"""
REMINDERS = (
    HEAD
    + """
  - name: lines
    source: {files: {glob: "rows/lines.jsonl", format: jsonl, schema: "user string, n bigint"}}
  - name: remind
    inputs: [lines]
    keyBy: [user]
    processor: compared_code:Remind
    timeMode: ProcessingTime
    outputSchema: "user string, what string, n bigint"
  - name: out
    inputs: [remind]
    sink: {files: {path: out/out, format: jsonl}}
"""
)
BY_EVENT_TIME = (
    HEAD
    + """
  - name: shown
    source: {files: {glob: "rows/shown.jsonl", format: jsonl, schema: "user string, ad string, at timestamp"}}
    eventTime: {column: at, allowedDelay: 5s}
  - name: clicked
    source:
      files: {glob: "rows/clicked.jsonl", format: jsonl, schema: "user string, ad string, at timestamp"}
    eventTime: {column: at, allowedDelay: 5s}
  - name: matched
    inputs: [shown, clicked]
    join:
      left: {key: [user, ad]}
      right: {key: [user, ad], columns: [{column: at, as: clicked}]}
      after: 10s
      kind: LeftOuter
  - name: pairs
    inputs: [matched]
    sink: {files: {path: out/pairs, format: jsonl}}
  - name: per-minute
    inputs: [shown]
    keyBy: [ad]
    window: {sliding: {size: 1m, every: 30s}}
    aggregate: [{as: shown, function: count}, {as: last, function: max, column: at}]
  - name: counts
    inputs: [per-minute]
    sink: {files: {path: out/counts, format: jsonl}}
  - name: by-minute
    inputs: [clicked]
    keyBy: [user]
    processor: compared_code:ByMinute
    timeMode: EventTime
    outputSchema: "user string, clicks bigint, until timestamp"
  - name: ended
    inputs: [by-minute]
    sink: {files: {path: out/ended, format: jsonl}}
"""
)
CODE = '''
from datetime import UTC, datetime

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Remind(StatefulProcessor):
    """A running total in steps of a row, and a timer that is due at once for each third one."""

    def init(self, handle):
        self.handle = handle
        self.total = handle.getValueState("total", "n bigint")
        self.seen = handle.getMapState("seen", "n bigint", "times bigint")

    def handleInputRows(self, key, rows, timerValues):
        total = (self.total.get() or (0,))[0]
        for row in rows:
            total += row.n
            times = (self.seen.getValue((row.n,)) or (0,))[0] + 1
            self.seen.updateValue((row.n,), (times,))
            yield Row(user=key[0], what=f"{row.n} for the {times}", n=total)
            if row.n % 3 == 0:
                self.handle.registerTimer(row.n)
        self.total.update((total,))

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(user=key[0], what="timer", n=expiredTimerInfo.getExpiryTimeInMs())

    def close(self):
        pass


class ByMinute(StatefulProcessor):
    """Clicks of each minute, whichever rows come together."""

    def init(self, handle):
        self.handle = handle
        self.clicks = handle.getListState("clicks", "at timestamp")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            self.clicks.appendValue((row.at,))
            self.handle.registerTimer((int(row.at.timestamp()) // 60 + 1) * 60_000)
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        until = datetime.fromtimestamp(expiredTimerInfo.getExpiryTimeInMs() / 1000, UTC)
        clicks = [at for (at,) in self.clicks.get()]
        later = [(at,) for at in clicks if at.replace(tzinfo=UTC) >= until]
        yield Row(user=key[0], clicks=len(clicks) - len(later), until=until)
        if later:
            self.clicks.put(later)
        else:
            self.clicks.clear()

    def close(self):
        pass
'''
Lines = Mapping[str, list[str]]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _module() -> Iterator[None]:
    yield
    sys.modules.pop("compared_code", None)


def by_kit(folder: Path, lines: Lines, sinks: Iterable[str], at_once: int) -> dict[str, list[str]]:
    """What comes out of each sink, fed some rows of each source in turn."""
    with TopologyTest.of(folder / "topology.yaml") as test:
        longest = max(map(len, lines.values()))
        for start in range(0, longest, at_once):
            for source, of in lines.items():
                test.feed_json(source, of[start : start + at_once])
        test.restart()
        test.end()
        return {sink: told(test.rows(sink)) for sink in sinks}


def by_run(folder: Path, runs: list[Run], sinks: Iterable[str]) -> dict[str, list[str]]:
    run = Run(folder / "topology.yaml", folder / "state")
    runs.append(run)
    run.start()
    assert run.finish() == 0, run.output
    return {sink: told(read_rows(folder / "out" / sink)) for sink in sinks}


def told(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows without an order, as the files of a sink have them."""
    return sorted(
        json.dumps({name: _text(value) for name, value in row.items() if value is not None}, sort_keys=True)
        for row in rows
    )


def _text(value: object) -> object:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return value


def written(folder: Path, manifest: str, lines: Lines) -> None:
    (folder / "topology.yaml").write_text(manifest)
    (folder / "compared_code.py").write_text(CODE)
    (folder / "rows").mkdir()
    for source, of in lines.items():
        (folder / "rows" / f"{source}.jsonl").write_text("".join(f"{line}\n" for line in of))


def test_a_processor_with_timers_gives_the_same_rows(tmp_path: Path, runs: list[Run]) -> None:
    lines = {"lines": [json.dumps({"user": f"u{n % 7}", "n": n % 11}) for n in range(400)]}
    written(tmp_path, REMINDERS, lines)
    kit = by_kit(tmp_path, lines, ("out",), at_once=400)
    run = by_run(tmp_path, runs, ("out",))
    # A timer that is set twice in one batch fires once: which rows share a batch is open in a run.
    assert without_timers(kit["out"]) == without_timers(run["out"])
    assert set(kit["out"]) == set(run["out"])
    assert len(without_timers(kit["out"])) == 400


def without_timers(rows: Iterable[str]) -> list[str]:
    return [row for row in rows if '"timer"' not in row]


LATER = pytest.mark.slow(held_by="test_windows_joins_and_timers_by_event_time_give_the_same_rows")


@pytest.mark.parametrize("at_once", [1000, pytest.param(1, marks=LATER)])
def test_windows_joins_and_timers_by_event_time_give_the_same_rows(
    tmp_path: Path, runs: list[Run], at_once: int
) -> None:
    def line(n: int, behind_s: int) -> str:
        second = n + behind_s
        at = f"2026-01-01T12:{second // 60:02}:{second % 60:02}Z"
        return json.dumps({"user": f"u{n % 5}", "ad": f"a{n % 3}", "at": at})

    # In order of time: none is late, whatever a run reads first.
    lines = {
        "shown": [line(n, 0) for n in range(0, 300, 2)],
        "clicked": [line(n, 4) for n in range(0, 300, 6)],
    }
    written(tmp_path, BY_EVENT_TIME, lines)
    sinks = ("pairs", "counts", "ended")
    kit = by_kit(tmp_path, lines, sinks, at_once)
    assert {sink: bool(rows) for sink, rows in kit.items()} == dict.fromkeys(sinks, True)
    assert kit == by_run(tmp_path, runs, sinks)
