"""A Topology becomes a Plan: stages in order, stateless operators fused into every stage that they read."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.api.compile import compile_topology
from penstock.api.topology import Topology
from penstock.connectors.console import ConsoleSink
from penstock.connectors.files import FilesSource, JsonlSink
from penstock.connectors.foreach import ForeachSink
from penstock.connectors.foreach_batch import ForeachBatchSink
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.outline import outline
from penstock.dataflow.plan import (
    Calls,
    EventTime,
    Fanout,
    KeyedEdge,
    Plan,
    Processor,
    Stage,
    Step,
    Tasks,
    Transform,
    WorkerRange,
)
from penstock.dataflow.schema import Column, Schema
from penstock.manifest.faults import InvalidManifest

TEXT = Schema((Column("value", "string"),))
WORD = Schema((Column("word", "string"),))
WORDS = "word string"

LINES = {"name": "lines", "source": {"files": {"glob": "*.txt"}}}
MORE = {"name": "more", "source": {"files": {"glob": "*.log", "ratePerSecond": 5}}}
OUT = {"name": "out", "sink": {"console": {}}}


def step(name: str, *inputs: str, schema: str = WORDS) -> dict[str, Any]:
    return {"name": name, "inputs": list(inputs), "map": f"code:{name}", "outputSchema": schema}


def keyed(name: str, *inputs: str, key: tuple[str, ...] = ("word",), **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "inputs": list(inputs),
        "keyBy": list(key),
        "processor": f"code:{name.title()}",
        "outputSchema": WORDS,
        **more,
    }


def sink(name: str, *inputs: str) -> dict[str, Any]:
    return {"name": name, "inputs": list(inputs), "sink": {"files": {"path": f"out/{name}"}}}


def topology(*operators: dict[str, Any], **spec: Any) -> Topology:
    return Topology.model_validate(
        {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": "t"},
            "spec": {"code": {"module": "code"}, "operators": operators, **spec},
        }
    )


def compiled(*operators: dict[str, Any], **spec: Any) -> Plan:
    return compile_topology(topology(*operators, **spec))


def test_word_count_has_two_stages_with_its_steps_fused() -> None:
    plan = compiled(
        LINES,
        step("words", "lines"),
        keyed("count", "words", shards=16, tasks={"min": 2, "max": 4, "initial": 3}),
        sink("totals", "count"),
        workers={"initial": 2, "max": 3, "memory": "512Mi"},
    )
    to_count = Fanout(WORD, (), (), (KeyedEdge("count", (0,), 16),))
    assert plan == Plan(
        topology="t",
        module="code",
        durability="Process",
        workers_initial=2,
        memory_bytes=512 << 20,
        stages=(
            Stage(
                "lines",
                FilesSource("*.txt", "text", None),
                Tasks(1, 8, 1),
                Fanout(TEXT, (Step("words", "code:words", to_count),), (), ()),
            ),
            Stage(
                "count",
                Processor("code:Count", WORD, (0,), 16),
                Tasks(2, 4, 3),
                Fanout(WORD, (), (JsonlSink("totals", "out/totals"),), ()),
            ),
        ),
        workers=WorkerRange(least=1, most=3, warm=0, tasks_each=4),
    )


def test_a_processor_has_the_time_mode_that_is_given_and_none_without() -> None:
    timed, plain = keyed("timed", "words", timeMode="ProcessingTime"), keyed("plain", "words")
    plan = compiled(LINES, step("words", "lines"), timed, plain, sink("out", "timed", "plain"))
    heads = [plan.stage(name).head for name in ("timed", "plain")]
    assert [(head.time_mode, head.has_timers) for head in heads if isinstance(head, Processor)] == [
        ("ProcessingTime", True),
        ("None", False),
    ]


def test_steps_on_columns_stand_in_the_plan_by_their_form() -> None:
    arrow = {**step("words", "lines"), "mapInArrow": "code:arrow", "args": {"n": 1}}
    frames = {**step("more", "words"), "mapInPandas": "code:frames"}
    del arrow["map"], frames["map"]
    plan = compiled(LINES, arrow, frames, {**OUT, "inputs": ["more"]})
    (words,) = plan.stages[0].out.steps
    (more,) = words.out.steps
    assert (words.function, words.arguments, words.form) == ("code:arrow", '{"n": 1}', "Arrow")
    assert (more.function, more.arguments, more.form) == ("code:frames", "", "Pandas")


def test_a_transform_is_a_stage_of_one_shard_without_key() -> None:
    made = {
        "name": "made", "inputs": ["lines"], "transform": "code:made", "args": {"n": 1},
        "every": "200ms", "outputSchema": WORDS,
    }  # fmt: skip
    plan = compiled(LINES, made, {**OUT, "inputs": ["made"]})
    assert plan.stages[0].out.edges == (KeyedEdge("made", (), 1),)
    head = plan.stage("made").head
    assert isinstance(head, Processor)
    assert head.transform == Transform("code:made", '{"n": 1}', 50_000, 200)
    assert plan.stage("made").takes_batches
    assert plan.stage("made").out.schema == WORD


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"keyBy": ["value"]}, "a transform has none: only a processor and a window have a key"),
        ({"eventTime": {"column": "at"}}, "no watermark goes through a Spark job"),
        ({"maxRows": 5}, "maxRows"),
    ],
)
def test_what_a_transform_has_not_is_refused(fields: dict[str, Any], said: str) -> None:
    made = {"name": "made", "inputs": ["lines"], "transform": "code:made", "outputSchema": WORDS, **fields}
    with pytest.raises((InvalidManifest, ValidationError), match=said):
        compiled(LINES, made, {**OUT, "inputs": ["made"]})


def test_calls_of_an_async_map_stand_in_the_plan() -> None:
    given = {"concurrent": 3, "timeout": "1.5s", "retries": 2}
    plan = compiled(LINES, {**step("words", "lines"), "calls": given}, {**OUT, "inputs": ["words"]})
    assert plan.stages[0].out.steps[0].calls == Calls(3, 1500, 2, 100)
    arrow = {"name": "words", "inputs": ["lines"], "mapInArrow": "code:f", "outputSchema": WORDS, "calls": {}}
    with pytest.raises((InvalidManifest, ValidationError), match="only a map"):
        compiled(LINES, arrow, {**OUT, "inputs": ["words"]})


def test_calls_of_an_async_processor_fit_its_time_limit() -> None:
    given = {"concurrent": 3, "timeout": "1s", "retries": 2, "retryAfter": "100ms"}
    count, out = keyed("count", "lines", key=("value",), calls=given), {**OUT, "inputs": ["count"]}
    plan = compiled(LINES, {**count, "processorTimeout": "3400ms"}, out)
    head = plan.stage("count").head
    assert isinstance(head, Processor)
    assert head.calls == Calls(3, 1000, 2, 100)
    said = "3300ms is no longer than one call may take, 3300 ms with its retries and pauses"
    with pytest.raises(InvalidManifest, match=said):
        compiled(LINES, {**count, "processorTimeout": "3300ms"}, out)


def test_filter_and_select_stand_in_the_plan_with_the_schema_that_follows() -> None:
    kept = {"name": "kept", "inputs": ["lines"], "filter": "length(value) > 3"}
    made = {
        "name": "made",
        "inputs": ["kept"],
        "filter": "value <> 'x'",
        "select": ["*", "length(value) * 2L AS twice"],
    }
    plan = compiled(LINES, kept, made, {**OUT, "inputs": ["made"]})
    (first,) = plan.stages[0].out.steps
    (second,) = first.out.steps
    assert first.out.schema == TEXT
    assert second.out.schema == Schema((Column("value", "string"), Column("twice", "bigint")))
    assert first.columns is not None
    assert second.columns is not None
    assert (first.function, first.columns.filter_text) == ("", "length(value) > 3")
    assert second.columns.kept is not None
    assert outline(plan)[1].kind == "step"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"filter": "lenght(value) > 3"}, ".filter: 'lenght(value) > 3': function lenght is not among those"),
        ({"select": ["value", "valu AS x"]}, ".select: [1] 'valu AS x': there is no column 'valu' (did you"),
        ({"select": ["length(value)"]}, "has no name; write length(value) AS name"),
        ({"filter": "value"}, "a filter takes booleans, got string; compare it with something"),
        ({"filter": "true", "map": "code:f"}, "has map and filter; keep exactly one of"),
        ({"select": ["value"], "outputSchema": WORDS}, "a select has none: its columns are those of select"),
        ({"select": ["value", "'x' AS VALUE"]}, "column 'VALUE' comes twice"),
    ],
)
def test_expressions_that_are_not_taken_are_told_with_their_place(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidManifest) as refused:
        compiled(LINES, {"name": "kept", "inputs": ["lines"], **fields}, {**OUT, "inputs": ["kept"]})
    assert said in str(refused.value)


def test_a_map_with_two_inputs_is_fused_into_both() -> None:
    plan = compiled(LINES, MORE, step("words", "lines", "more"), {**OUT, "inputs": ["words"]})
    fused = Fanout(TEXT, (Step("words", "code:words", Fanout(WORD, (), (ConsoleSink("out"),), ())),), (), ())
    assert [(stage.operator, stage.out) for stage in plan.stages] == [("lines", fused), ("more", fused)]


def test_rows_fan_out_to_steps_sinks_and_processors() -> None:
    plan = compiled(
        LINES,
        step("words", "lines"),
        step("upper", "words"),
        keyed("count", "words"),
        keyed("seen", "words", shards=2),
        sink("raw", "words"),
        sink("all", "upper", "count", "seen"),
    )
    (words,) = plan.stage("lines").out.steps
    assert [inner.name for inner in words.out.steps] == ["upper"]
    assert words.out.sinks == (JsonlSink("raw", "out/raw"),)
    assert words.out.edges == (KeyedEdge("count", (0,), 64), KeyedEdge("seen", (0,), 2))
    # A sink with several upstream stages is fused into each of them.
    for stage in ("count", "seen"):
        assert plan.stage(stage).out.sinks == (JsonlSink("all", "out/all"),)


def test_a_processor_with_several_upstreams_gets_an_edge_from_each() -> None:
    plan = compiled(
        LINES, MORE, step("a", "lines"), step("b", "more"), keyed("count", "a", "b"), sink("out", "count")
    )
    edge = (KeyedEdge("count", (0,), 64),)
    assert plan.stage("lines").out.steps[0].out.edges == edge
    assert plan.stage("more").out.steps[0].out.edges == edge


def test_a_processor_may_follow_a_processor_directly() -> None:
    plan = compiled(LINES, step("w", "lines"), keyed("a", "w"), keyed("b", "a"), sink("out", "b"))
    assert plan.stage("a").out.edges == (KeyedEdge("b", (0,), 64),)


def test_stages_stand_behind_those_that_feed_them() -> None:
    plan = compiled(LINES, step("w", "lines"), keyed("a", "w"), keyed("b", "a"), sink("out", "b"))
    assert [stage.operator for stage in plan.stages] == ["lines", "a", "b"]


def test_an_operator_that_may_have_no_task_starts_with_one() -> None:
    plan = compiled(LINES, step("w", "lines"), keyed("a", "w", tasks={"min": 0}), sink("out", "a"))
    assert plan.stage("a").tasks == Tasks(0, 8, 1)


def test_key_columns_keep_the_order_of_key_by() -> None:
    plan = compiled(
        LINES,
        step("pairs", "lines", schema="a string, b int, c date"),
        keyed("count", "pairs", key=("c", "a")),
        sink("out", "count"),
    )
    assert plan.stage("lines").out.steps[0].out.edges == (KeyedEdge("count", (2, 0), 64),)
    head = plan.stage("count").head
    assert isinstance(head, Processor)
    assert head.key_columns == (2, 0)
    assert head.input.names == ("a", "b", "c")


def test_a_zipf_source_brings_its_schema_and_its_defaults() -> None:
    plan = compiled(
        {"name": "gen", "source": {"zipf": {"keys": 10, "serviceTime": "1.5ms", "partitions": 3}}},
        keyed("work", "gen", key=("key",)),
        sink("out", "work"),
    )
    assert plan.stage("gen").head == ZipfSource(
        keys=10,
        exponent=0.5,
        record_bytes=128,
        service_time_us=1500,
        rate_per_s=None,
        records=None,
        shuffles_per_minute=0.0,
        partitions=3,
        seed=0,
    )
    schema = plan.stage("gen").out.schema
    assert schema.ddl() == "`key` bigint, `payload` string, `service_time_us` bigint, `number` bigint"


def test_a_zipf_source_may_say_when_each_record_was_due() -> None:
    plan = compiled(
        {
            "name": "gen",
            "source": {"zipf": {"keys": 10, "timeColumn": "at"}},
            "eventTime": {"column": "at"},
        },
        sink("out", "gen"),
    )
    assert plan.stage("gen").out.schema.ddl().endswith("`number` bigint, `at` timestamp")


def test_a_topology_without_user_code_needs_none() -> None:
    plan = compile_topology(
        Topology.model_validate(
            {
                "apiVersion": "penstock.dev/v1alpha1",
                "kind": "Topology",
                "metadata": {"name": "copy"},
                "spec": {"operators": [LINES, {**OUT, "inputs": ["lines"]}]},
            }
        )
    )
    assert plan.module == ""


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ({}, Tasks(1, 8, 1)),
        ({"min": 3}, Tasks(3, 8, 3)),
        ({"min": 10}, Tasks(10, 10, 10)),
        ({"initial": 9}, Tasks(1, 9, 9)),
        ({"max": 2}, Tasks(1, 2, 1)),
    ],
)
def test_tasks_left_out_are_filled_in(tasks: dict[str, int], expected: Tasks) -> None:
    plan = compiled({**LINES, "tasks": tasks}, sink("out", "lines"))
    assert plan.stage("lines").tasks == expected


def test_durability_is_process_locally_and_disk_in_a_cluster() -> None:
    copy = topology(LINES, sink("out", "lines"))
    assert compile_topology(copy).durability == "Process"
    assert compile_topology(copy, "cluster").durability == "Disk"
    chosen = topology(LINES, sink("out", "lines"), durability="Disk")
    assert compile_topology(chosen).durability == "Disk"


def test_unequal_schemas_into_one_processor_are_refused() -> None:
    with pytest.raises(InvalidManifest, match=r"\(count\)\.inputs\[1\]: 'b' gives \(word bigint\)"):
        compiled(
            LINES,
            step("a", "lines"),
            step("b", "lines", schema="word bigint"),
            keyed("count", "a", "b"),
            sink("out", "count"),
        )


def test_the_compiler_lists_all_faults_of_a_valid_model() -> None:
    with pytest.raises(InvalidManifest) as caught:
        compiled(LINES, keyed("count", "lines"), sink("out", "cuont"))
    assert [fault.path for fault in caught.value.faults] == [
        "spec.operators[2] (out).inputs[0]",
        "spec.operators[1] (count).keyBy[0]",
    ]


# --- event time ----------------------------------------------------------------------------------

TIMES = "word string, at timestamp"
CLICKS = {
    "name": "clicks",
    "source": {"files": {"glob": "*.jsonl", "format": "jsonl", "schema": TIMES}},
    "eventTime": {"column": "at", "allowedDelay": "1.5s"},
}


def timed(name: str, *inputs: str, **more: Any) -> dict[str, Any]:
    return keyed(name, *inputs, **{"timeMode": "EventTime", "outputSchema": TIMES, **more})


def processor(plan: Plan, name: str) -> Processor:
    head = plan.stage(name).head
    assert isinstance(head, Processor)
    return head


def test_a_watermark_begins_at_a_source_and_is_handed_on_by_processors() -> None:
    plan = compiled(
        CLICKS,
        step("known", "clicks", schema="score int, at timestamp, word string"),
        timed("first", "known", eventTime={"column": "at"}, lateTo={"files": {"path": "out/late"}}),
        timed("second", "first"),
        sink("out", "second"),
    )
    assert plan.stage("clicks").out.event_time == EventTime(1, 1500, 60_000)
    assert plan.stage("clicks").out.steps[0].out.event_time is None
    assert plan.stage("first").out.event_time is None
    first, second = processor(plan, "first"), processor(plan, "second")
    assert (first.by_event_time, first.has_timers, first.event_column) == (True, True, 1)
    assert (first.producers, second.producers) == (("clicks",), ("first",))
    assert second.event_column == 1
    assert [stage.tells_watermark for stage in plan.stages] == [True, True, False]
    timed_by = {one.name: one.timed_by for one in outline(plan)}
    assert timed_by == {
        "clicks": ("clicks",), "known": (), "first": ("clicks",), "first-late": (),
        "second": ("first",), "out": (),
    }  # fmt: skip
    late = JsonlSink("first-late", "out/late")
    assert (first.late_sinks, second.late_sinks) == ((late,), ())
    assert list(plan.stage("first").all_sinks()) == [(late, first.input)]
    assert [sink.name for sink, _ in plan.stage("second").all_sinks()] == ["out"]


def test_a_watermark_may_begin_at_a_map_of_several_sources() -> None:
    begun = {"column": "at", "allowedDelay": "1us", "idleAfter": "250ms"}
    plan = compiled(
        LINES,
        MORE,
        {**step("parsed", "more", "lines", schema=TIMES), "eventTime": begun},
        step("known", "parsed", schema=TIMES),
        timed("count", "known", "parsed"),
        sink("raw", "parsed"),
        sink("out", "count"),
    )
    for name in ("lines", "more"):
        stage = plan.stage(name)
        assert stage.tells_watermark
        assert stage.out.event_time is None
        assert stage.out.steps[0].out.event_time == EventTime(1, 1, 250)
    assert set(processor(plan, "count").producers) == {"lines", "more"}


def test_stages_whose_rows_reach_nobody_by_event_time_tell_no_watermark() -> None:
    plan = compiled(
        CLICKS,
        {**CLICKS, "name": "others"},
        timed("count", "clicks"),
        keyed("plain", "others", "clicks"),
        sink("out", "count"),
        sink("words", "plain"),
    )
    assert {stage.operator: stage.tells_watermark for stage in plan.stages} == {
        "clicks": True,
        "others": False,
        "count": False,
        "plain": False,
    }
    assert processor(plan, "plain") == Processor("code:Plain", parse_schema(TIMES), (0,), 64)


def test_no_graph_makes_the_compiler_fail_otherwise_than_in_words() -> None:
    def an_operator(rng: random.Random, number: int) -> dict[str, Any]:
        above = [f"o{other}" for other in range(number)]
        inputs = rng.sample(above, min(len(above), rng.randint(1, 2)))
        schema = rng.choice(["word string, at timestamp", "word string, at timestamp, to timestamp"])
        role = rng.choice(["source", "map", "map", "keyed", "keyed", "keyed"]) if number > 1 else "source"
        event_time: dict[str, Any] = {"column": rng.choice(["at", "at", "at", "to"])}
        if rng.random() < 0.1:
            event_time["idleAfter"] = "2s"
        more = {"eventTime": event_time} if rng.random() < 0.7 else {}
        if role == "source":
            files = {"glob": "*", "format": "jsonl", "schema": schema}
            return {"name": f"o{number}", "source": {"files": files}, **more}
        if role == "map":
            more = more if rng.random() < 0.2 else {}
            return {**step(f"o{number}", *inputs, schema=schema), **more}
        if rng.random() < 0.2:
            more["lateTo"] = {"files": {"path": f"late/{rng.randrange(4)}"}}
        mode = rng.choice(["EventTime", "EventTime", "EventTime", "ProcessingTime"])
        return keyed(f"o{number}", *inputs, timeMode=mode, outputSchema=schema, **more)

    rng = random.Random(7)
    told = 0
    for _ in range(2000):
        operators = [an_operator(rng, number) for number in range(rng.randint(2, 5))]
        try:
            plan = compiled(*operators, *(sink(f"s-{one['name']}", one["name"]) for one in operators))
        except InvalidManifest:
            continue
        for stage in plan.stages:
            if isinstance(stage.head, Processor) and stage.head.by_event_time:
                told += 1
                assert stage.head.event_column is not None
                assert stage.head.producers
                assert all(plan.stage(name).tells_watermark for name in stage.head.producers)
    assert told > 100


def test_a_sink_that_numbers_shards_knows_its_feeding_stages_by_name_in_whatever_order_they_stand() -> None:
    code = {"foreach": {"call": "code:each"}}
    a, b = keyed("a", "words"), keyed("b", "words")
    upper = step("upper", "a")
    for listed in (
        (LINES, step("words", "lines"), a, b, upper),
        (LINES, step("words", "lines"), b, a, upper),
    ):
        plan = compiled(*listed, {"name": "out", "inputs": ["b", "upper"], "sink": code})
        for stage in plan.stages[1:]:
            ((sink_there, _),) = stage.all_sinks()
            assert isinstance(sink_there, ForeachSink)
            assert sink_there.feeders == ("a", "b")


def test_the_sink_of_late_rows_is_fed_by_its_operator() -> None:
    timed = {**LINES, "source": {"zipf": {"keys": 3, "ratePerSecond": 5.0, "timeColumn": "at"}}}
    timed["eventTime"] = {"column": "at"}
    late = keyed(
        "late", "lines", key=("key",), timeMode="EventTime", lateTo={"foreach": {"call": "code:each"}}
    )
    plan = compiled(timed, late, sink("out", "late"))
    sinks = [each for each, _ in plan.stage("late").all_sinks() if isinstance(each, ForeachSink)]
    assert [(each.name, each.feeders) for each in sinks] == [("late-late", ("late",))]


def test_a_sink_with_batches_is_a_stage_of_one_shard_that_all_rows_go_to() -> None:
    written = {"name": "out", "inputs": ["count", "upper"], "sink": {"foreachBatch": {"call": "code:write"}}}
    plan = compiled(
        LINES, step("words", "lines"), keyed("count", "words"), step("upper", "count"), written,
        sink("beside", "count"),
    )  # fmt: skip
    out, count = plan.stages[-1], plan.stage("count")
    assert (out.operator, out.tasks, out.is_sink, out.is_source) == ("out", Tasks(1, 1, 1), True, False)
    assert isinstance(out.head, Processor)
    assert out.head.batches_to == ForeachBatchSink("out", "code:write")
    assert (out.head.input, out.head.key_columns, out.head.fixed_parts) == (WORD, (), ("0",))
    edge = KeyedEdge("out", (), 1)
    assert count.out.edges == count.out.steps[0].out.edges == (edge,)
    assert [each.name for each in count.out.sinks] == ["beside"]
    assert [(each.name, each.kind) for each in outline(plan) if each.is_stage] == [
        ("lines", "source"), ("count", "keyed"), ("out", "sink"),
    ]  # fmt: skip


def test_a_source_alone_may_lead_to_a_sink_with_batches() -> None:
    written = {"name": "out", "inputs": ["lines"], "sink": {"foreachBatch": {"call": "code:write"}}}
    assert [stage.operator for stage in compiled(LINES, written).stages] == ["lines", "out"]
