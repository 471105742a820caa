"""What a manifest may say of event time, and in which words the rest is refused."""

from __future__ import annotations

import pytest

from penstock.api.load import parse_manifest
from scenes.manifest_texts import faults_of

CLICKS = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: clicks}
spec:
  code: {module: clicks}
  operators:
  - name: clicks
    source: {files: {glob: "clicks/*.jsonl", format: jsonl, schema: "user string, at timestamp"}}
    eventTime: {column: at, allowedDelay: 10s, idleAfter: 2s}
  - name: known
    inputs: [clicks]
    map: clicks:known
    outputSchema: "user string, at timestamp, score int"
  - name: sessions
    inputs: [known]
    keyBy: [user]
    processor: clicks:Sessions
    timeMode: EventTime
    eventTime: {column: ended}
    lateTo: {files: {path: out/late}}
    outputSchema: "user string, ended timestamp_ntz, clicks bigint"
  - name: days
    inputs: [sessions]
    keyBy: [user]
    processor: clicks:Days
    timeMode: EventTime
    outputSchema: "user string, clicks bigint"
  - name: totals
    inputs: [days]
    sink: {files: {path: out/totals}}
"""

BEGINNING = "    eventTime: {column: at, allowedDelay: 10s, idleAfter: 2s}\n"
MODE = "    timeMode: EventTime\n    eventTime: {column: ended}\n"
KNOWN_SCHEMA = '"user string, at timestamp, score int"'
NEEDS = "EventTime needs an event time on every path here: "


def changed(*replacements: tuple[str, str]) -> str:
    text = CLICKS
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def the_fault(*replacements: tuple[str, str]) -> str:
    (fault,) = faults_of(changed(*replacements))
    return fault


def test_event_time_goes_from_a_source_through_maps_and_processors() -> None:
    assert faults_of(CLICKS) == []
    assert faults_of(CLICKS, runtime="cluster") == []


def test_event_time_may_begin_at_a_map() -> None:
    map_ = "    map: clicks:known\n"
    assert faults_of(changed((BEGINNING, ""), (map_, map_ + BEGINNING))) == []


def test_on_one_path_one_watermark_begins() -> None:
    map_ = "    map: clicks:known\n"
    assert the_fault((map_, f"{map_}    eventTime: {{column: at}}\n")) == (
        "spec.operators[1] (known).eventTime: a watermark begins at clicks already; "
        "keep one eventTime on each path"
    )


def test_no_watermark_begins_behind_a_processor() -> None:
    ended = """
  - name: ended
    inputs: [sessions]
    map: clicks:ended
    eventTime: {column: ended}
    outputSchema: "user string, ended timestamp"
  - {name: more, inputs: [ended], sink: {console: {}}}
"""
    assert faults_of(CLICKS + ended) == [
        "spec.operators[5] (ended).eventTime: a map behind sessions has none: a processor hands its "
        "watermark "
        "on; leave it out, and keep the column's name"
    ]


def test_a_sink_has_no_event_time_and_no_late_rows() -> None:
    sink = "    sink: {files: {path: out/totals}}\n"
    assert the_fault((sink, f"{sink}    eventTime: {{column: at}}\n")) == (
        "spec.operators[4] (totals).eventTime: a sink has none: nothing comes behind it that could go by it; "
        "leave it out"
    )
    assert the_fault((sink, f"{sink}    lateTo: {{console: {{}}}}\n")) == (
        "spec.operators[4] (totals).lateTo: a sink has none: only a processor and a window go by event time; "
        "leave it out"
    )


# --- the column ----------------------------------------------------------------------------------


def test_an_event_time_column_that_is_not_there_lists_the_columns() -> None:
    assert the_fault(("{column: at, ", "{column: att, ")) == (
        "spec.operators[0] (clicks).eventTime.column: its rows have no column 'att' (did you mean at?); "
        "columns are user string, at timestamp"
    )
    assert the_fault(("{column: ended}", "{column: endet}")) == (
        "spec.operators[2] (sessions).eventTime.column: its rows have no column 'endet' (did you mean "
        "ended?); "
        "columns are user string, ended timestamp_ntz, clicks bigint"
    )


def test_an_event_time_column_is_a_time() -> None:
    assert the_fault(("{column: at, ", "{column: user, ")) == (
        "spec.operators[0] (clicks).eventTime.column: column 'user' is string; event time is of type "
        "timestamp or timestamp_ntz"
    )


def test_an_event_time_without_its_column_is_named_once() -> None:
    assert the_fault(("{column: at, allowed", "{allowed")) == (
        "spec.operators[0] (clicks).eventTime.column: is missing; give text of 1 to 128 characters"
    )


@pytest.mark.parametrize("word", ["eventtime", "eventTimes", "event_time"])
def test_a_misspelt_event_time_is_named_once(word: str) -> None:
    assert the_fault((BEGINNING, BEGINNING.replace("eventTime", word))) == (
        f"spec.operators[0] (clicks).{word}: unknown field (did you mean eventTime?)"
    )
    assert the_fault((MODE, MODE.replace("eventTime", word))) == (
        f"spec.operators[2] (sessions).{word}: unknown field (did you mean eventTime?)"
    )


@pytest.mark.parametrize("mode", ["timeMode: eventTime", "timemode: EventTime"])
def test_a_misspelt_time_mode_is_named_once(mode: str) -> None:
    assert the_fault((MODE, MODE.replace("timeMode: EventTime", mode))).startswith(
        f"spec.operators[2] (sessions).{mode.partition(':')[0]}: "
    )


# --- delays --------------------------------------------------------------------------------------


def test_delay_and_idleness_have_bounds() -> None:
    assert faults_of(changed(("10s", "0s"), ("2s", "100ms"))) == []
    assert the_fault(("idleAfter: 2s", "idleAfter: 99ms")) == (
        "spec.operators[0] (clicks).eventTime.idleAfter: must be at least 100ms: partitions pause that long "
        "now and then"
    )
    assert the_fault(("10s", "-1s")) == (
        "spec.operators[0] (clicks).eventTime.allowedDelay: '-1s' is not a duration such as 500us, 250ms "
        "or 1.5s"
    )


def test_a_processor_hands_its_watermark_on_as_it_is() -> None:
    faults = faults_of(changed(("{column: ended}", "{column: ended, allowedDelay: 1s, idleAfter: 1s}")))
    assert faults == [
        f"spec.operators[2] (sessions).eventTime.{name}: a processor hands its input's watermark on as it "
        "is; "
        "give it with clicks, or leave it out"
        for name in ("allowedDelay", "idleAfter")
    ]


# --- every path ----------------------------------------------------------------------------------


def test_a_source_without_event_time_is_told_which_of_its_columns_could_be() -> None:
    assert the_fault((BEGINNING, "")) == (
        f"spec.operators[2] (sessions).timeMode: {NEEDS}source 'clicks' has none; "
        "give it eventTime: {column: at}"
    )


def test_a_source_without_a_time_leaves_it_to_a_map() -> None:
    lines = (', format: jsonl, schema: "user string, at timestamp"', "")
    assert the_fault((BEGINNING, ""), lines) == (
        f"spec.operators[2] (sessions).timeMode: {NEEDS}source 'clicks' has none; give a map behind it, "
        "whose "
        "rows have such a column, eventTime: {column: NAME}"
    )


def test_a_map_that_loses_the_column_is_named() -> None:
    for schema in ('"user string, score int"', '"user string, at bigint"'):
        assert the_fault((KNOWN_SCHEMA, schema)) == (
            f"spec.operators[2] (sessions).timeMode: {NEEDS}map 'known' has no column 'at' of type "
            "timestamp or "
            "timestamp_ntz; add that to its outputSchema, or give eventTime to known instead of clicks"
        )


def test_a_map_that_loses_a_processors_column_can_add_it_only() -> None:
    renamed = """
  - {name: renamed, inputs: [sessions], map: "clicks:r", outputSchema: "user string, at timestamp"}
"""
    text = changed(
        ("  - name: days\n    inputs: [sessions]", f"{renamed}  - name: days\n    inputs: [renamed]")
    )
    assert faults_of(text) == [
        f"spec.operators[4] (days).timeMode: {NEEDS}map 'renamed' has no column 'ended' of type timestamp or "
        "timestamp_ntz; add that to its outputSchema"
    ]


def test_a_processor_without_event_time_has_none_behind_it() -> None:
    late = ("    lateTo: {files: {path: out/late}}\n", "")
    for mode, name in (("", "None"), ("    timeMode: ProcessingTime\n", "ProcessingTime")):
        assert the_fault((MODE, mode), late) == (
            f"spec.operators[3] (days).timeMode: {NEEDS}there is none behind processor 'sessions', whose "
            f"timeMode is {name}; give it timeMode: EventTime and eventTime: {{column: NAME}}"
        )


def test_a_processor_says_which_column_of_its_rows_goes_on() -> None:
    assert the_fault(("    eventTime: {column: ended}\n", "")) == (
        f"spec.operators[3] (days).timeMode: {NEEDS}processor 'sessions' names no column of its rows; "
        "give it eventTime: {column: NAME}"
    )


def test_every_path_is_told_of_by_who_is_in_its_way() -> None:
    more = """
  - name: old
    source: {files: {glob: "old/*.jsonl", format: jsonl, schema: "user string, at timestamp"}}
"""
    text = changed(
        ("  - name: known\n    inputs: [clicks]", f"{more}  - name: known\n    inputs: [clicks, old]")
    )
    assert faults_of(text) == [
        f"spec.operators[3] (sessions).timeMode: {NEEDS}source 'old' has none; give it eventTime: "
        f"{{column: at}}"
    ]


def test_inputs_agree_about_their_event_time() -> None:
    schema = '"user string, at timestamp, then timestamp"'
    more = f"""
  - name: old
    source: {{files: {{glob: "old/*.jsonl", format: jsonl, schema: {schema}}}}}
    eventTime: {{column: then}}
"""
    text = changed(
        ("  - name: known\n    inputs: [clicks]", f"{more}  - name: known\n    inputs: [clicks, old]"),
        ('"user string, at timestamp"}', f"{schema}}}"),
    )
    assert faults_of(text) == [
        "spec.operators[2] (known).inputs[1]: the event time of 'old' is its column 'then', that of "
        "'clicks' is "
        "'at'; all inputs of an operator need the same"
    ]


def test_event_time_that_nobody_goes_by_is_no_fault() -> None:
    plain = [(MODE, ""), ("    lateTo: {files: {path: out/late}}\n", ""), ("    timeMode: EventTime\n", "")]
    assert faults_of(changed(*plain)) == []


def test_a_processor_has_an_event_time_with_that_mode_only() -> None:
    late = ("    lateTo: {files: {path: out/late}}\n", "")
    mode = (MODE, MODE.replace("EventTime\n", "ProcessingTime\n"))
    assert the_fault(mode, late) == (
        "spec.operators[2] (sessions).eventTime: a processor has one with timeMode: EventTime only; "
        "give that, or leave it out"
    )


# --- late rows -----------------------------------------------------------------------------------


def test_rows_are_late_by_event_time_only() -> None:
    processor = "    processor: clicks:Days\n    timeMode: EventTime\n"
    fault = the_fault((processor, "    processor: clicks:Days\n    lateTo: {console: {}}\n"))
    assert fault == (
        "spec.operators[3] (days).lateTo: rows are late by event time only; give timeMode: EventTime, "
        "or leave it out"
    )


def test_late_rows_go_to_one_kind_of_sink() -> None:
    late = "lateTo: {files: {path: out/late}}"
    assert the_fault((late, "lateTo: {files: {path: out/late}, console: {}}")) == (
        "spec.operators[2] (sessions).lateTo: has files and console; give exactly one of "
        "files, console, kafka, dataSource, foreach and foreachBatch"
    )
    assert the_fault((late, "lateTo: {}")) == (
        "spec.operators[2] (sessions).lateTo: is empty; give exactly one of "
        "files, console, kafka, dataSource, foreach and foreachBatch"
    )
    assert the_fault((late, "lateTo: {files: {paht: out/late}}")).endswith(
        "lateTo.files.paht: unknown field (did you mean path?)"
    )
    assert the_fault((late, "lateTo: {foreachBatch: {call: 'clicks:write'}}")) == (
        "spec.operators[2] (sessions).lateTo.foreachBatch: is no place for late rows: it is a stage, and "
        "they do not leave theirs; give foreach or files"
    )


def test_late_rows_have_a_folder_of_their_own() -> None:
    assert the_fault(("path: out/late", "path: ./out/totals")) == (
        "spec.operators[4] (totals).sink.files.path: sessions-late writes into this folder already; "
        "give each sink one of its own"
    )
    second = "    processor: clicks:Days\n    lateTo: {files: {path: out/late/}}\n"
    assert the_fault(("    processor: clicks:Days\n", second)) == (
        "spec.operators[3] (days).lateTo.files.path: sessions-late writes into this folder already; "
        "give each sink one of its own"
    )


def test_the_name_of_a_sink_of_late_rows_is_free() -> None:
    faults = faults_of(CLICKS + "\n  - {name: sessions-late, inputs: [days], sink: {console: {}}}\n")
    assert faults == [
        "spec.operators[2] (sessions).lateTo: its sink is called 'sessions-late', as spec.operators[5] "
        "(sessions-late) is already; rename that operator"
    ]


def test_the_name_of_a_sink_of_late_rows_is_short_enough() -> None:
    name = "s" * 36
    text = CLICKS.replace("name: sessions", f"name: {name}").replace("[sessions]", f"[{name}]")
    assert faults_of(text) == [
        f"spec.operators[2] ({name}).lateTo: its sink is called '{name}-late', which is too long: give the "
        "operator a name of at most 35 characters"
    ]
    assert faults_of(text.replace(name, "s" * 35)) == []


def test_nobody_reads_a_sink_of_late_rows() -> None:
    assert faults_of(CLICKS + "\n  - {name: more, inputs: [sessions-late], sink: {console: {}}}\n") == [
        "spec.operators[5] (more).inputs[0]: no operator is called 'sessions-late' (did you mean sessions?); "
        "there are clicks, known, sessions, days"
    ]


def test_overrides_reach_event_time_and_late_rows() -> None:
    overrides = ["clicks.eventTime.allowedDelay=1m", "sessions.lateTo.files.path=elsewhere"]
    operators = parse_manifest(CLICKS, overrides).topology.spec.operators
    assert operators[0].event_time is not None
    assert operators[0].event_time.allowed_delay == "1m"
    assert operators[2].late_to is not None
    assert operators[2].late_to.files is not None
    assert operators[2].late_to.files.path == "elsewhere"
