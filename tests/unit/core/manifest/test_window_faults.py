"""What a manifest may say of windows, what the plan has of them, and in which words the rest is refused."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from house import ROOT
from penstock.api.compile import compile_topology
from penstock.api.load import parse_manifest
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import Processor, Stage
from penstock.dataflow.window import Aggregate, Session, Sliding, Tumbling, Window, WindowAggregation
from scenes.manifest_texts import faults_of

BIDS = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: bids}
spec:
  operators:
  - name: bids
    source:
      files: {glob: "bids/*.jsonl", format: jsonl, schema: "auction bigint, price decimal(9,2), at timestamp"}
    eventTime: {column: at, allowedDelay: 10s}
  - name: minutes
    inputs: [bids]
    keyBy: [auction]
    window: {tumbling: 1m}
    aggregate:
    - {as: bids, function: count}
    - {as: total, function: sum, column: price}
    lateTo: {files: {path: out/late}}
  - name: hours
    inputs: [minutes]
    keyBy: [auction]
    window: {tumbling: 1h}
    aggregate: [{as: bids, function: sum, column: bids}]
  - name: results
    inputs: [hours]
    sink: {files: {path: out/results}}
"""
MINUTES = "spec.operators[1] (minutes)"
CUT = "    window: {tumbling: 1m}\n"
TOTAL = "    - {as: total, function: sum, column: price}\n"


def changed(*replacements: tuple[str, str]) -> str:
    text = BIDS
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def stage_of(name: str, *replacements: tuple[str, str]) -> Stage:
    return compile_topology(parse_manifest(changed(*replacements)).topology).stage(name)


def head_of(name: str, *replacements: tuple[str, str]) -> Processor:
    head = stage_of(name, *replacements).head
    assert isinstance(head, Processor)
    return head


def test_a_window_needs_no_code_and_is_a_keyed_stage_by_event_time() -> None:
    assert faults_of(BIDS) == []
    assert faults_of(BIDS, runtime="cluster") == []
    stage, head = stage_of("minutes"), head_of("minutes")
    computed = (Aggregate("bids", "count"), Aggregate("total", "sum", "price"))
    assert head.window == WindowAggregation(Tumbling(60_000), "at", computed)
    assert (head.target, head.form, head.time_mode) == ("", "Rows", "EventTime")
    assert (head.key_columns, head.shards, head.event_column, head.producers) == ((0,), 64, 2, ("bids",))
    assert [sink.name for sink in head.late_sinks] == ["minutes-late"]
    assert stage.out.schema == parse_schema(
        "auction bigint, windowStart timestamp, windowEnd timestamp, bids bigint, total decimal(19,2)"
    )


def test_a_window_behind_a_window_goes_by_where_that_ended() -> None:
    head = head_of("hours")
    assert head.window is not None
    assert head.window.event_time == "windowEnd"
    assert head.producers == ("minutes",)
    assert stage_of("minutes").tells_watermark


@pytest.mark.parametrize(
    ("given", "window"),
    [
        ("{tumbling: 1500ms}", Tumbling(1500)),
        ("{sliding: {size: 1m, every: 10s}}", Sliding(60_000, 10_000)),
        ("{session: {gap: 30s}}", Session(30_000)),
    ],
)
def test_windows_tumble_slide_and_are_sessions(given: str, window: Window) -> None:
    head = head_of("minutes", (CUT, f"    window: {given}\n"))
    assert head.window is not None
    assert head.window.window == window


def test_the_type_of_an_aggregator_of_ones_own_is_said_and_it_needs_code() -> None:
    own = (TOTAL, "    - {as: best, function: 'own:Best', type: long}\n")
    assert faults_of(changed(own)) == [
        "spec.code: is missing; give {module: NAME}, the module that holds the code of minutes"
    ]
    code = ("  operators:\n", "  code: {module: own}\n  operators:\n")
    assert stage_of("minutes", own, code).out.schema.columns[-1].type == "bigint"


def test_the_class_of_an_aggregator_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("class Best:\n    pass\n\ndef best():\n    pass\n")
    code = ("  operators:\n", "  code: {module: own}\n  operators:\n")
    for function, says in {
        "own:Best": [],
        "own:Bets": [
            f"{MINUTES}.aggregate[1].function: own has no 'Bets' (did you mean Best?); its classes are Best"
        ],
        "own:best": [
            f"{MINUTES}.aggregate[1].function: 'best' is a function; an aggregator is a class with zero, "
            "reduce, merge and finish"
        ],
    }.items():
        own = (TOTAL, f"    - {{as: best, function: '{function}', type: bigint}}\n")
        assert faults_of(changed(own, code), code_dir=tmp_path) == says


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            CUT,
            "    window: {sliding: {size: 10s, every: 1m}}\n",
            "window.sliding: a sliding window of 10000 ms begins every 60000 ms, so that rows between would "
            "be in none; let it begin at least as often as it is long",
        ),
        (
            CUT,
            "    window: {tumbling: 1m, session: {gap: 1m}}\n",
            "window: has tumbling and session; give exactly one of tumbling, sliding and session",
        ),
        (
            CUT,
            "    window: {}\n",
            "window: is empty; give exactly one of tumbling, sliding and session",
        ),
        (
            CUT,
            "    window: {tumbling: 500us}\n",
            "window.tumbling: '500us' is no whole number of milliseconds above 0; give 1m, 250ms or the like",
        ),
        (
            CUT,
            "",
            "window: is missing; give {tumbling: 1m}, {sliding: {size: 1m, every: 10s}} or "
            "{session: {gap: 30s}}",
        ),
        (
            "column: price",
            "column: prise",
            "aggregate[1].column: its input has no column 'prise' (did you mean price?); columns are auction "
            "bigint, price decimal(9,2), at timestamp",
        ),
        (
            "column: price",
            "column: at",
            "aggregate[1]: aggregate 'total': there is no sum of timestamp ('at')",
        ),
        (
            ", column: price",
            "",
            "aggregate[1]: aggregate 'total': sum needs a column",
        ),
        (
            "sum, column: price",
            "summ, column: price",
            "aggregate[1].function: 'summ' is not one of count, sum, min, max, mean, approxCountDistinct, "
            "approxQuantile, approxQuantiles, or 'module:Class'",
        ),
        (
            "sum, column: price",
            "approxQuantile, column: price",
            "aggregate[1]: aggregate 'total': approxQuantile takes one quantile, got 0",
        ),
        (
            "sum, column: price",
            "sum, column: price, type: bigint",
            "aggregate[1]: aggregate 'total': the type of sum follows from its column; leave it out",
        ),
        (
            "as: total",
            "as: Auction",
            "aggregate: column 'Auction' comes out twice (case does not count); rename one",
        ),
        (
            CUT,
            f"{CUT}    timeMode: EventTime\n",
            "timeMode: a window has none: it goes by event time always; leave it out",
        ),
        (
            CUT,
            f"{CUT}    eventTime: {{column: windowEnd}}\n",
            "eventTime: a window has none: that of its rows is windowEnd; leave it out",
        ),
        (
            CUT,
            f'{CUT}    outputSchema: "auction bigint"\n',
            "outputSchema: a window has none: its columns are those of keyBy, windowStart, windowEnd and "
            "those of aggregate; leave it out",
        ),
        (
            CUT,
            f"{CUT}    form: Rows\n",
            "form: a window has none: only a processor takes Rows or Pandas; leave it out",
        ),
        (
            CUT,
            f"{CUT}    tasks: {{min: 0}}\n",
            "tasks.min: 0 leaves no task that fires timers; for a window give 1 or more",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_at_its_place_with_a_sentence(old: str, new: str, says: str) -> None:
    assert faults_of(changed((old, new))) == [f"{MINUTES}.{says}"]


def test_the_window_that_is_explained_is_valid() -> None:
    section = (ROOT / "docs/topology.md").read_text(encoding="utf-8").split("\n## Windows\n")[1]
    (explained,) = re.findall(r"^```yaml\n(.*?)^```$", section.split("\n## ")[0], re.MULTILINE | re.DOTALL)
    head, _, rest = BIDS.partition("  - name: minutes\n")
    tail = "  - name: results" + rest.partition("  - name: results")[2].replace("[hours]", "[per-minute]")
    assert faults_of(head + textwrap.indent(explained, "  ") + tail) == []


def test_a_window_needs_an_event_time_on_every_path() -> None:
    (fault,) = faults_of(changed(("    eventTime: {column: at, allowedDelay: 10s}\n", "")))
    assert fault == (
        f"{MINUTES}.window: a window needs an event time on every path here: source 'bids' has none; give it "
        "eventTime: {column: at}"
    )


def test_an_sla_may_name_a_window() -> None:
    sla = """
---
apiVersion: penstock.dev/v1alpha1
kind: LatencySLA
metadata: {name: quick}
spec: {topology: bids, operator: minutes, latency: 250ms}
"""
    assert faults_of(BIDS + sla) == []


def test_aggregate_is_a_windows_alone() -> None:
    (fault,) = faults_of(
        changed(("    sink: {files: {path: out/results}}\n",
                 "    sink: {console: {}}\n    aggregate: [{as: n, function: count}]\n"))
    )  # fmt: skip
    assert fault == (
        "spec.operators[3] (results).aggregate: a sink has none: only a window computes without code; leave "
        "it out"
    )
