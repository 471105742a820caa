"""What is fused behind a stage: map steps, routing, entries within bounds."""

from __future__ import annotations

import sys
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.console import ConsoleSink
from penstock.connectors.files import JsonlSink
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import Fanout, KeyedEdge, Step
from penstock.dataflow.routing import Router
from penstock.store.codec import decode_batch
from penstock.store.fragments import Gathering
from penstock.store.port import Bounds, Output
from penstock_worker.outputs.output_batch import OutputBatch, OutputRefused
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.user_code.running import UserCodeError, UserCodeMissing
from penstock_worker.values.held import HELD_ROWS_MAX, ONE_ROW, ROWS_OUT_MAX, Held, TooMuch

LINES = parse_schema("value string")
WORDS = parse_schema("word string")
CODE = """
from pyspark.sql import Row

def split(row):
    return row.value.split()

def split_slowly(row):
    for word in row.value.split():
        yield Row(word=word)

def shout(row):
    return [(row.word.upper(), len(row.word))]

def nothing(row):
    return []

def broken(row):
    return [1 / len(row.value)]

def not_rows(row):
    return row.value

def spoil(row):
    row.values.append(9)
    return [(len(row.values),)]

def endless(row):
    while True:
        yield "x"

made_calls = []

def keep_longer(row, least, *, most=9):
    return [row] if least <= len(row.word) <= most else []

def keeper(least):
    made_calls.append(least)
    return lambda row: [row] if len(row.word) >= least else []

class Keeper:
    def __init__(self, least):
        self.least = least
    def __call__(self, row):
        return [row] if len(row.word) >= self.least else []

def no_maker(least):
    return least

def spoilt(row, least):
    return row.word

grow_calls = []

def grow(row):
    grow_calls.append(1)
    assert len(grow_calls) < 20
    return ["x" * (4 << 20)]

CONSTANT = 5
"""


@pytest.fixture(scope="module")
def code_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    (folder / "step_code.py").write_text(CODE)
    return folder


def fanout(schema: Any, *, steps: Any = (), sinks: Any = (), edges: Any = ()) -> Fanout:
    return Fanout(schema, tuple(steps), tuple(sinks), tuple(edges))


def run(
    code_dir: Path,
    behind: Fanout,
    rows: list[Any],
    stamps: list[int] | None = None,
    bounds: Bounds | None = None,
) -> tuple[dict[str, list[tuple[int, list[Any]]]], dict[str, int], tuple[Output, ...]]:
    """Target -> [(timestamp, row), ...]; rows out by step; the outputs."""
    outputs = OutputBatch(bounds or Bounds(), "src/0", ONE_ROW)
    counts = FanoutRunner(behind, code_dir).feed(rows, stamps or list(range(len(rows))), outputs)
    drained = outputs.drain()
    by_target: dict[str, list[tuple[int, list[Any]]]] = defaultdict(list)
    for output in drained:
        batch = decode_batch(output.payload)
        assert len(batch.rows) == len(batch.deltas_us) == output.rows
        by_target[output.target] += [
            (batch.base_us + delta, list(row)) for delta, row in zip(batch.deltas_us, batch.rows, strict=True)
        ]
    return dict(by_target), counts, drained


def test_rows_of_a_key_go_to_the_shard_of_the_router_with_their_timestamps(code_dir: Path) -> None:
    schema = parse_schema("n long, word string, day date")
    edge = KeyedEdge("count", (1, 2), 16)
    rows = [(n, f"w{n % 7}", n % 3) for n in range(100)]
    by_target, counts, drained = run(
        code_dir, fanout(schema, edges=[edge]), rows, [n * 10 for n in range(100)]
    )
    router = Router(["string", "date"], 16)
    for target, given in by_target.items():
        for stamp, (n, word, day) in given:
            assert stamp == n * 10
            assert target == f"count/{router.route((word, day))}"
        numbers = [row[0] for _, row in given]
        assert numbers == sorted(numbers)
    assert sum(map(len, by_target.values())) == 100
    assert counts == {}
    assert not any(output.external for output in drained)


@pytest.mark.parametrize("function", ["split", "split_slowly"])
def test_a_step_makes_rows_as_old_as_the_row_they_came_from(code_dir: Path, function: str) -> None:
    words = Step("words", f"step_code:{function}", fanout(WORDS, sinks=[JsonlSink("out", "out/")]))
    by_target, counts, drained = run(
        code_dir, fanout(LINES, steps=[words]), [("a b",), ("",), ("c",)], [5, 6, 7]
    )
    assert by_target == {"out": [(5, ["a"]), (5, ["b"]), (7, ["c"])]}
    assert counts == {"words": 3, "out": 3}
    assert all(output.external for output in drained)


def test_a_row_goes_to_every_member_of_a_fanout(code_dir: Path) -> None:
    shouted = Step(
        "shouted",
        "step_code:shout",
        fanout(parse_schema("word string, n int"), sinks=[ConsoleSink("loud")]),
    )
    words = Step(
        "words",
        "step_code:split",
        fanout(
            WORDS, steps=[shouted], sinks=[JsonlSink("plain", "out/")], edges=[KeyedEdge("count", (0,), 1)]
        ),
    )
    none = Step("none", "step_code:nothing", fanout(WORDS, sinks=[ConsoleSink("silent")]))
    by_target, counts, _ = run(code_dir, fanout(LINES, steps=[words, none]), [("a bc",)])
    assert by_target == {
        "plain": [(0, ["a"]), (0, ["bc"])],
        "count/0": [(0, ["a"]), (0, ["bc"])],
        "loud": [(0, ["A", 1]), (0, ["BC", 2])],
    }
    assert counts == {"words": 2, "shouted": 2, "none": 0, "plain": 2, "loud": 2}


def test_a_decimal_key_is_routed_as_a_number(code_dir: Path) -> None:
    edge = KeyedEdge("count", (0,), 64)
    by_target, _, _ = run(
        code_dir, fanout(parse_schema("a decimal(6,2)"), edges=[edge]), [("1.50",), (None,)]
    )
    router = Router(["decimal(6,2)"], 64)
    assert by_target[f"count/{router.route((Decimal('1.5'),))}"] == [(0, ["1.50"])]
    assert by_target[f"count/{router.route((None,))}"] == [(1, [None])]


def test_what_a_step_does_to_a_list_in_its_row_stays_with_it(code_dir: Path) -> None:
    spoil = Step("spoil", "step_code:spoil", fanout(parse_schema("n int"), sinks=[ConsoleSink("n")]))
    behind = fanout(parse_schema("values array<int>"), steps=[spoil], sinks=[ConsoleSink("whole")])
    by_target, _, _ = run(code_dir, behind, [([1, 2],)])
    assert by_target == {"whole": [(0, [[1, 2]])], "n": [(0, [3])]}


def test_no_rows_make_no_outputs(code_dir: Path) -> None:
    words = Step("words", "step_code:broken", fanout(WORDS, sinks=[ConsoleSink("out")]))
    assert run(code_dir, fanout(LINES, steps=[words]), []) == ({}, {}, ())


@pytest.mark.parametrize(
    ("function", "messages"),
    [
        (
            "broken",
            [
                "operator words: step_code:broken raised on Row(value='')",
                'step_code.py", line 18, in broken',
                "return [1 / len(row.value)]",
                "ZeroDivisionError",
            ],
        ),
        (
            "not_rows",
            [
                "operator words: step_code:not_rows, on Row(value='')",
                "return an iterable of rows",
                'step_code.py", line 20, in not_rows',
            ],
        ),
    ],
)
def test_a_step_that_raises_is_named_with_its_row(code_dir: Path, function: str, messages: list[str]) -> None:
    step = Step("words", f"step_code:{function}", fanout(WORDS))
    with pytest.raises(UserCodeError) as raised:
        run(code_dir, fanout(LINES, steps=[step]), [("",)])
    for message in messages:
        assert message in str(raised.value)


def test_a_step_that_yields_another_type_is_named_with_the_column(code_dir: Path) -> None:
    step = Step("shouted", "step_code:shout", fanout(parse_schema("word string, n string")))
    with pytest.raises(UserCodeError, match=r"(?s)operator shouted: .*column 'n' \(2 of 2\) expects string"):
        run(code_dir, fanout(WORDS, steps=[step]), [("a",)])


def test_a_step_that_is_no_function_is_refused(code_dir: Path) -> None:
    with pytest.raises(UserCodeMissing, match="is int, no function"):
        FanoutRunner(fanout(LINES, steps=[Step("words", "step_code:CONSTANT", fanout(WORDS))]), code_dir)


@pytest.mark.parametrize("function", ["keep_longer", "keeper", "Keeper"])
def test_a_step_is_called_with_its_arguments_or_made_by_them(code_dir: Path, function: str) -> None:
    behind = fanout(WORDS, sinks=[ConsoleSink("out")])
    step = Step("long", f"step_code:{function}", behind, arguments='{"least": 2}')
    runner = FanoutRunner(fanout(WORDS, steps=[step]), code_dir)
    for _ in range(2):
        outputs = OutputBatch(Bounds(), "src/0", ONE_ROW)
        assert runner.feed([("a",), ("ab",), ("abc",)], [1, 2, 3], outputs) == {"long": 2, "out": 2}
    if function == "keeper":
        assert sys.modules["step_code"].made_calls == [2]


def test_a_step_whose_arguments_do_not_fit_is_refused_in_the_task(code_dir: Path) -> None:
    for function, arguments, told in [
        ("keep_longer", "", "lacks 'least'; give args: {least: ...}"),
        ("keep_longer", '{"least": 2, "mots": 3}', r"has no 'mots' \(did you mean most\?\)"),
        ("no_maker", '{"least": 2}', "takes no row, was called once and returned int 2, no function; a map"),
    ]:
        step = Step("long", f"step_code:{function}", fanout(WORDS), arguments=arguments)
        with pytest.raises(UserCodeMissing, match=told):
            FanoutRunner(fanout(WORDS, steps=[step]), code_dir)


def test_a_step_with_arguments_that_gives_no_rows_is_named_with_its_place(code_dir: Path) -> None:
    step = Step("long", "step_code:spoilt", fanout(WORDS), arguments='{"least": 2}')
    with pytest.raises(
        UserCodeError, match=r'(?s)return an iterable of rows.*step_code.py", line \d+, in spoilt'
    ):
        run(code_dir, fanout(WORDS, steps=[step]), [("a",)])


# --- entries ----------------------------------------------------------------------------------------


def test_entries_keep_within_their_bound_and_the_order_of_rows(code_dir: Path) -> None:
    bounds = Bounds(entry_bytes_max=1000)
    rows = [("x" * (n % 90),) for n in range(500)]
    by_target, _, drained = run(code_dir, fanout(WORDS, sinks=[JsonlSink("out", "out/")]), rows, None, bounds)
    assert len(drained) > 20
    assert all(len(output.payload) <= 1000 for output in drained)
    assert [tuple(row) for _, row in by_target["out"]] == rows
    assert [stamp for stamp, _ in by_target["out"]] == list(range(500))


def test_an_entry_for_a_shard_has_few_rows_and_one_for_a_sink_as_many_as_fit() -> None:
    batch = OutputBatch(Bounds(), "src/0", ONE_ROW)
    columns = ("name",)
    given = (("count/0", batch.target("count/0", columns)), ("totals", batch.external("totals", columns)))
    for name, lists in given:
        lists[0].extend(range(1_000))
        lists[1].extend((name,) for _ in range(1_000))
    rows = [(output.target, output.rows) for output in batch.drain()]
    assert rows == [("count/0", 256), ("count/0", 256), ("count/0", 256), ("count/0", 232), ("totals", 1_000)]


def test_a_row_that_fits_no_entry_goes_in_fragments_in_its_place(code_dir: Path) -> None:
    bounds = Bounds(entry_bytes_max=1000)
    rows = [("a",), ("x" * 5000,), ("b",)]
    outputs = OutputBatch(bounds, "src/0", ONE_ROW)
    FanoutRunner(fanout(WORDS, sinks=[JsonlSink("out", "out/")]), code_dir).feed(rows, [1, 2, 3], outputs)
    drained = outputs.drain()
    assert all(len(output.payload) <= 1000 and output.external for output in drained)
    assert [output.rows for output in drained] == [1, 0, 0, 0, 0, 0, 1, 1]
    whole = list(Gathering().whole(enumerate((output.payload for output in drained), 1)))
    assert [number for number, _ in whole] == [1, 7, 8]
    assert [tuple(decode_batch(payload).rows[0]) for _, payload in whole] == rows
    assert [decode_batch(payload).base_us for _, payload in whole] == [1, 2, 3]


def test_a_row_beyond_what_a_row_may_have_is_refused(code_dir: Path) -> None:
    bounds = Bounds(entry_bytes_max=1000, row_bytes_max=3000)
    refused = r"a row for out takes 50\d\d bytes; 3000 are the most for one row. Put out several smaller ones"
    with pytest.raises(OutputRefused, match=refused):
        run(code_dir, fanout(WORDS, sinks=[JsonlSink("out", "out/")]), [("a",), ("x" * 5000,)], None, bounds)


def test_a_step_that_puts_out_without_end_is_stopped_early(code_dir: Path) -> None:
    step = Step("words", "step_code:endless", fanout(WORDS, sinks=[JsonlSink("out", "out/")]))
    runner = FanoutRunner(fanout(LINES, steps=[step]), code_dir)
    for alone, most in ((False, HELD_ROWS_MAX), (True, ROWS_OUT_MAX)):
        with pytest.raises(TooMuch, match=f"puts out more than {most} rows"):
            runner.feed([("a",)], [1], OutputBatch(Bounds(), "src/0", Held(Bounds(), alone=alone)))


def test_large_rows_of_many_small_ones_are_stopped_before_they_fill_the_memory(code_dir: Path) -> None:
    step = Step("words", "step_code:grow", fanout(WORDS, sinks=[JsonlSink("out", "out/")]))
    runner = FanoutRunner(fanout(LINES, steps=[step]), code_dir)
    with pytest.raises(TooMuch, match="puts out about"):
        runner.feed([("a",)] * 256, [1] * 256, OutputBatch(Bounds(), "s", Held(Bounds(), alone=False)))


def test_a_text_that_is_no_unicode_is_refused_by_target(code_dir: Path) -> None:
    with pytest.raises(OutputRefused, match=r"a row for out: column 'word' \(1 of 1\) .* no Unicode"):
        run(code_dir, fanout(WORDS, sinks=[JsonlSink("out", "out/")]), [("\ud800",)])


def test_a_drained_batch_is_empty() -> None:
    outputs = OutputBatch(Bounds(), "src/0", ONE_ROW)
    stamps, rows = outputs.target("count/0", ("n",))
    stamps.append(1)
    rows.append(("a",))
    assert len(outputs.drain()) == 1
    assert outputs.drain() == ()


def test_code_of_the_manifests_folder_is_on_the_path(code_dir: Path) -> None:
    FanoutRunner(fanout(LINES, steps=[Step("words", "step_code:split", fanout(WORDS))]), code_dir)
    assert str(code_dir) in sys.path
