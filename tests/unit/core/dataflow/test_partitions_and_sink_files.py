"""Names of parts, shards and sink files: complete, sorted, and never the same for two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.connectors.console import ConsoleSink
from penstock.connectors.files import FilesSource, JsonlSink
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.outline import ConsoleTarget, console_targets, outline, sink_files
from penstock.dataflow.partitions import shards_of
from penstock.dataflow.plan import Fanout, Plan, Processor, Stage, Step, Tasks
from penstock.dataflow.schema import Column, Schema
from penstock.dataflow.sink_files import earlier_files, sink_file_name, sink_folders

SCHEMA = Schema((Column("value", "string"),))
NOTHING = Fanout(SCHEMA, (), (), ())


def stage(head: FilesSource | ZipfSource | Processor, out: Fanout = NOTHING) -> Stage:
    return Stage("op", head, Tasks(1, 1, 1), out)


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")


def test_shards_are_named_by_number_or_file(tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "b.txt")
    zipf = ZipfSource(10, 0.5, 8, 0, None, None, 0.0, 3, 1)
    assert shards_of(stage(zipf), tmp_path) == ("op/0", "op/1", "op/2")
    assert shards_of(stage(Processor("m:P", SCHEMA, (0,), 2)), tmp_path) == ("op/0", "op/1")
    assert shards_of(stage(FilesSource("*.txt", "text", None)), tmp_path) == ("op/a.txt", "op/b.txt")


def test_a_sinks_file_says_what_it_holds() -> None:
    assert sink_file_name("totals", "count", "17") == "totals-count-17.jsonl"
    assert sink_file_name("words", "lines", "docs/a b.txt") == "words-lines-docs%2Fa%20b.txt.jsonl"


names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
triples = st.tuples(names, names, names)


@given(triples, triples)
@example(("a-b", "c", "1"), ("a", "b-c", "1"))
@example(("a", "b", "c/d"), ("a", "b", "c%2Fd"))
@example(("a", "b", "x" * 300), ("a", "b", "x" * 301))
@example(("a", "b", "~"), ("a", "b", "%7E"))
def test_two_sink_files_never_share_a_name(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (sink_file_name(*one) == sink_file_name(*other)) == (one == other)


@given(names.map(lambda text: text * 40))
def test_a_sinks_file_name_fits_a_file_system(part: str) -> None:
    name = sink_file_name("sink", "operator", part)
    assert len(name.encode()) <= 255
    assert "/" not in name


def test_files_of_earlier_runs_are_found_for_every_file_sink(tmp_path: Path) -> None:
    inner = Fanout(SCHEMA, (), (JsonlSink("deep", "out/deep"),), ())
    out = Fanout(SCHEMA, (Step("s", "m:f", inner),), (JsonlSink("flat", "out"), ConsoleSink("con")), ())
    keyed = stage(Processor("m:P", SCHEMA, (0,), 2), out)
    plan = Plan("t", "m", "Process", 1, 1 << 30, (keyed, replace(keyed, operator="other", out=NOTHING)))
    assert earlier_files(plan, tmp_path) == []
    put(tmp_path, "out/flat-op-0.jsonl", "out/flat-op-99.jsonl", "out/deep/deep-op-1.jsonl")
    put(tmp_path, "out/flat-op-1.txt", "out/flat-other-0.jsonl", "out/mine.jsonl", "out/con-op-0.jsonl")
    assert [path.name for path in earlier_files(plan, tmp_path)] == [
        "deep-op-1.jsonl",
        "flat-op-0.jsonl",
        "flat-op-99.jsonl",
    ]


def test_sinks_of_late_rows_have_files_and_folders_as_others(tmp_path: Path) -> None:
    late = (JsonlSink("op-late", "late"), ConsoleSink("shown"))
    keyed = stage(Processor("m:P", SCHEMA, (0,), 2, late_sinks=late))
    plan = Plan("t", "m", "Process", 1, 1 << 30, (keyed,))
    put(tmp_path, "late/op%2Dlate-op-1.jsonl")
    assert [path.name for path in earlier_files(plan, tmp_path)] == ["op%2Dlate-op-1.jsonl"]
    assert sink_folders(plan, tmp_path) == {tmp_path / "late": "op-late"}
    assert [path.name for path in sink_files(plan, {"op": ["op/0"]}, tmp_path)] == ["op%2Dlate-op-0.jsonl"]
    assert console_targets(plan) == (ConsoleTarget("shown", "op", SCHEMA),)
    assert [(one.name, one.kind, one.stage) for one in outline(plan)] == [
        ("op", "keyed", "op"),
        ("op-late", "sink", "op"),
        ("shown", "sink", "op"),
    ]
