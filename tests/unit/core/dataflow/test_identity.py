"""What state depends on: of the whole plan in words, of one stage as a digest, by the same rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.connectors.files import FilesSource, JsonlSink
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.identity import differences, identity_of, stage_digest
from penstock.dataflow.plan import EventTime, Fanout, KeyedEdge, Plan, Processor, Stage, Step, Tasks
from penstock.dataflow.schema import Column, Schema
from penstock.dataflow.window import Aggregate, Tumbling, WindowAggregation

LINE = Schema((Column("value", "string"),))
WORD = Schema((Column("word", "string"), Column("at", "bigint")))
TOTAL = Schema((Column("word", "string"), Column("total", "bigint")))
SINK = JsonlSink("totals", "out/")
ZIPF = ZipfSource(100, 0.5, 128, 0, 10.0, 1000, 2.0, 4, 7)


def plan_of(
    source: FilesSource | ZipfSource = FilesSource("texts/*.txt", "text", None),  # noqa: B008 - frozen
    processor: Processor = Processor("m:Count", WORD, (0,), 8),  # noqa: B008 - frozen
    *,
    function: str = "m:split",
    words: Schema = WORD,
    totals: Schema = TOTAL,
    sink: JsonlSink = SINK,
    tasks: int = 1,
) -> Plan:
    step = Step("words", function, Fanout(words, (), (), (KeyedEdge("count", (0,), 8),)))
    lines = Stage("lines", source, Tasks(1, 8, tasks), Fanout(LINE, (step,), (), ()))
    count = Stage("count", processor, Tasks(1, 8, tasks), Fanout(totals, (), (sink,), ()))
    return Plan("t", "m", "Process", 1, 1 << 30, (lines, count))


def timed(column: int) -> Processor:
    late = (JsonlSink("count-late", "late/"),)
    return Processor("m:Count", WORD, (0,), 8, time_mode="EventTime", event_column=column, late_sinks=late)


def digests(plan: Plan) -> dict[str, str]:
    return {stage.operator: stage_digest(stage) for stage in plan.stages}


def test_code_rates_and_tasks_are_no_part_of_it() -> None:
    other = plan_of(
        FilesSource("texts/*.txt", "text", 9.0),
        Processor("n:Count", WORD, (0,), 8),
        function="n:split",
        tasks=4,
    )
    assert identity_of(other) == identity_of(plan_of())
    assert digests(other) == digests(plan_of())


@pytest.mark.parametrize("change", [{"rate_per_s": 1.0}, {"rate_trace": "r.csv"}, {"service_time_us": 9}])
def test_the_pace_of_a_generator_is_no_part_of_it(change: dict[str, object]) -> None:
    other = plan_of(replace(ZIPF, **change))  # type: ignore[arg-type]
    assert digests(other) == digests(plan_of(ZIPF))


@pytest.mark.parametrize(
    ("other", "stage", "told"),
    [
        (plan_of(FilesSource("more/*.txt", "text", None)), "lines", "lines.source.files"),
        (plan_of(processor=Processor("m:Count", WORD, (1,), 8)), "count", "count.keyBy"),
        (plan_of(processor=Processor("m:Count", WORD, (0,), 9)), "count", "count.shards"),
        (plan_of(processor=Processor("m:Count", LINE, (0,), 8)), "count", "count.input schema"),
        (
            plan_of(processor=Processor("m:Count", WORD, (0,), 8, time_mode="ProcessingTime")),
            "count",
            "count.timeMode",
        ),
        (plan_of(processor=timed(0)), "count", "count.input event time"),
        (plan_of(processor=timed(1)), "count", "count.lateTo"),
        (plan_of(words=TOTAL), "lines", "words.outputSchema"),
        (plan_of(totals=WORD), "count", "count.outputSchema"),
        (plan_of(sink=JsonlSink("totals", "elsewhere/")), "count", "totals.sink"),
        (plan_of(sink=JsonlSink("sums", "out/")), "count", "sums.inputs"),
    ],
)
def test_what_differs_is_told_in_words_and_in_the_digest_of_its_stage(
    other: Plan, stage: str, told: str
) -> None:
    before, now = identity_of(plan_of()), identity_of(other)
    assert any(line.startswith(f"{told}: was ") for line in differences(before, now))
    changed = {name for name, digest in digests(other).items() if digest != digests(plan_of())[name]}
    assert stage in changed


def test_what_a_window_keeps_is_part_of_it_and_which_quantiles_are_asked_for_is_not() -> None:
    def windowed(size_ms: int, *quantiles: float) -> Plan:
        quantile = Aggregate("q", "approxQuantiles", "n", quantiles)
        window = WindowAggregation(Tumbling(size_ms), "at", (quantile,))
        return plan_of(processor=replace(timed(1), target="", window=window))

    assert digests(windowed(1000, 0.5)) == digests(windowed(1000, 0.5, 0.9))
    assert differences(identity_of(windowed(1000, 0.5)), identity_of(windowed(2000, 0.5))) == [
        "count.window: was tumbling 1000 ms, offset 0 ms, of at: approxQuantiles(n), "
        "is tumbling 2000 ms, offset 0 ms, of at: approxQuantiles(n)"
    ]


def test_where_a_watermark_begins_is_part_of_it_and_how_far_it_is_behind_is_not() -> None:
    def begun(event_time: EventTime | None) -> Plan:
        lines, count = plan_of().stages
        return replace(
            plan_of(), stages=(replace(lines, out=replace(lines.out, event_time=event_time)), count)
        )

    plan, slower = begun(EventTime(0, 10, 100)), begun(EventTime(0, 500, 900))
    assert digests(plan) == digests(slower)
    assert differences(identity_of(begun(None)), identity_of(plan)) == [
        "lines.eventTime.column: was nothing, is value"
    ]
    assert digests(begun(None))["lines"] != digests(plan)["lines"]


@pytest.mark.parametrize(
    "change",
    [
        {"keys": 99}, {"exponent": 0.6}, {"record_bytes": 64}, {"records": None},
        {"shuffles_per_minute": 0.0}, {"partitions": 5}, {"seed": 8},
        {"time_column": "at"},
    ],
)  # fmt: skip
def test_what_a_generator_makes_is_part_of_it(change: dict[str, object]) -> None:
    other = plan_of(replace(ZIPF, **change))  # type: ignore[arg-type]
    assert identity_of(other) != identity_of(plan_of(ZIPF))
    assert digests(other)["lines"] != digests(plan_of(ZIPF))["lines"]
