"""`TopologyTest`: a manifest with its code is fed, time and event time pass, and what comes out is read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from house import ROOT
from penstock.manifest.faults import InvalidManifest
from penstock.testing import Misuse, TopologyTest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: clicks}
spec:
  code: {module: tested_clicks}
  operators:
  - name: clicks
    source: {files: {glob: "*.jsonl", format: jsonl, schema: "page string, at timestamp"}}
    eventTime: {column: at, idleAfter: 30s}
  - name: upper
    inputs: [clicks]
    map: tested_clicks:upper
    outputSchema: "page string, at timestamp, tags map<string,array<bigint>>"
  - name: counts
    inputs: [upper]
    keyBy: [page]
    window: {tumbling: 1m}
    aggregate: [{as: clicks, function: count}]
  - name: written
    inputs: [counts]
    sink: {kafka: {bootstrapServers: "nowhere:9092", topic: counts}}
  - name: shown
    inputs: [upper]
    sink: {console: {}}
  - name: tables
    inputs: [upper]
    sink: {foreachBatch: {call: tested_clicks:never}}
"""
CODE = """
def upper(row):
    if row.page == "bad":
        raise KeyError(row.page)
    return [(row.page.upper(), row.at, {"n": [1, 2]})]


def never(df, batch_id):
    raise AssertionError("nothing outside is called")
"""

KEPT = """
  - name: keep
    inputs: [upper]
    keyBy: [page]
    processor: tested_clicks:Keep
    outputSchema: "page string, tries bigint"
    onError: {policy: Retry, attempts: 5, backoff: 10s, then: Fail}
  - name: kept
    inputs: [keep]
    sink: {console: {}}
"""
KEPT_CODE = """

from pyspark.sql.streaming import StatefulProcessor


class Keep(StatefulProcessor):
    def init(self, handle):
        self.tries = {}

    def handleInputRows(self, key, rows, timerValues):
        tries = self.tries[key] = self.tries.get(key, 0) + 1
        if key == ("HOME",) and tries < 3:
            raise ValueError("not yet")
        yield (key[0], tries)

    def close(self):
        pass
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "tested_clicks.py").write_text(CODE)
    yield tmp_path / "topology.yaml"
    sys.modules.pop("tested_clicks", None)


def at(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_rows_of_sinks_and_of_every_other_operator_are_read(manifest: Path) -> None:
    with TopologyTest.of(manifest) as test:
        test.feed("clicks", [("home", at(1)), ("shop", at(2))])
        row = {"page": "HOME", "at": at(1), "tags": {"n": [1, 2]}}
        assert test.rows("shown")[0] == test.rows("upper")[0] == test.rows("tables")[0] == row
        assert test.rows("clicks") == [{"page": "home", "at": at(1)}, {"page": "shop", "at": at(2)}]
        assert test.rows("written") == []


def test_a_window_closes_when_event_time_has_passed_it(manifest: Path) -> None:
    with TopologyTest.of(manifest) as test:
        test.feed("clicks", [("home", at(1)), ("home", at(59))])
        test.feed("clicks", [("shop", at(60))])
        assert test.watermark("counts") == test.watermark("clicks") == at(60)
        assert test.rows("written") == []
        test.feed("clicks", [("shop", at(61))])
        assert test.rows("written") == [
            {"page": "HOME", "windowStart": NOON, "windowEnd": at(60), "clicks": 2}
        ]
        test.feed("clicks", [("home", at(0))])
        assert [row["at"] for row in test.late_rows("counts")] == [NOON]


def test_a_partition_without_rows_holds_event_time_back_until_it_is_idle(manifest: Path) -> None:
    with TopologyTest.of(manifest, partitions={"clicks": 2}) as test:
        test.feed("clicks", [("home", at(1))], partition=1)
        test.feed("clicks", [("home", at(100))])
        assert test.watermark("counts") == at(1)
        test.advance(seconds=29)
        assert test.watermark("counts") == at(1)
        test.feed("clicks", [("home", at(101))])
        test.advance(seconds=2)
        assert test.watermark("counts") == at(101)
        with pytest.raises(Misuse, match=r"has 2 partitions, and no partition 2; .*\{'clicks': 3\}"):
            test.feed("clicks", [], partition=2)


def test_the_end_of_input_is_that_of_a_run(manifest: Path) -> None:
    with TopologyTest.of(manifest, partitions={"clicks": 2}) as test:
        test.feed("clicks", [("home", at(1))])
        test.feed("clicks", [("shop", at(100))], partition=1)
        assert test.rows("written") == []
        test.end()
        assert test.take("written") == [
            {"page": "HOME", "windowStart": NOON, "windowEnd": at(60), "clicks": 1}
        ]
        with pytest.raises(Misuse, match="has ended; feed it before"):
            test.feed("clicks", [("home", at(1))])


def test_rows_are_fed_as_json_too(manifest: Path) -> None:
    with TopologyTest.of(manifest) as test:
        test.feed_json("clicks", ['{"page": "home", "at": "2026-01-01T12:00:05Z"}'])
        assert test.rows("clicks") == [{"page": "home", "at": at(5)}]
        with pytest.raises(Misuse, match="source clicks, line 2"):
            test.feed_json("clicks", ['{"page": "home"}', '{"page": "home", "at": 1.5'])


def test_what_a_step_raises_is_raised_as_it_was(manifest: Path) -> None:
    test = TopologyTest.of(manifest)
    with pytest.raises(KeyError, match="bad") as raised:
        test.feed("clicks", [("bad", at(1))])
    assert raised.traceback[-1].path == manifest.with_name("tested_clicks.py")


def test_tries_of_a_row_that_fails_follow_in_the_tests_time(manifest: Path) -> None:
    manifest.write_text(
        MANIFEST.replace("  - name: counts\n", KEPT + "  - name: counts\n").replace(
            "metadata: {name: clicks}", "metadata: {name: kept}"
        )
    )
    manifest.with_name("tested_clicks.py").write_text(CODE + KEPT_CODE)
    with TopologyTest.of(manifest, start=NOON) as test:
        test.feed("clicks", [("home", at(1)), ("shop", at(2))])
        assert test.rows("keep") == [{"page": "SHOP", "tries": 1}]
        test.advance(seconds=9)
        assert len(test.rows("keep")) == 1
        test.advance(minutes=5)
        assert test.rows("keep")[1:] == [{"page": "HOME", "tries": 3}]


def test_all_faults_of_a_manifest_and_its_code_are_listed(manifest: Path) -> None:
    manifest.write_text(MANIFEST.replace("tested_clicks:upper", "tested_clicks:uper"))
    with pytest.raises(InvalidManifest, match=r"\(upper\).map: .*'uper'"):
        TopologyTest.of(manifest)
    manifest.write_text(MANIFEST)
    with TopologyTest.of(manifest, ["counts.shards=3"]) as test:
        test.feed("clicks", [("home", at(1))])


def test_names_that_are_not_there_are_told_with_those_that_are(manifest: Path) -> None:
    with TopologyTest.of(manifest) as test:
        with pytest.raises(Misuse, match=r"no source is called 'click' \(did you mean clicks\?\)"):
            test.feed("click", [])
        with pytest.raises(Misuse, match=r"no operator is called 'count' \(did you mean counts\?\)"):
            test.rows("count")
        with pytest.raises(Misuse, match="no processor is called 'counts'"):
            test.state("counts", key="HOME")
    with pytest.raises(Misuse, match="operator 'counts' has no initialState"):
        TopologyTest.of(manifest, initial={"counts": []})


def test_code_of_the_same_name_in_another_folder_is_not_taken_for_this_one(
    manifest: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with TopologyTest.of(manifest):
        other = tmp_path_factory.mktemp("other")
        for name in ("topology.yaml", "tested_clicks.py"):
            (other / name).write_text(manifest.with_name(name).read_text())
        with pytest.raises(Misuse, match=r"'tested_clicks' was imported from .* Give them two names"):
            TopologyTest.of(other / "topology.yaml")


def test_a_lot_of_rows_goes_through_full_inboxes() -> None:
    with TopologyTest.of(ROOT / "examples/word-count/topology.yaml") as test:
        test.feed("lines", [" ".join(f"w{(n * 7 + at) % 997}" for at in range(50)) for n in range(4_000)])
        totals = {row["word"]: row["total"] for row in test.rows("totals")}
        assert sum(totals.values()) == 200_000
        assert len(totals) == 997
