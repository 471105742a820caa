"""Processors give the same rows in Spark's own transformWithState and in Penstock's runner over a real store.

Spark reads each example's input as three files, one for each micro-batch; Penstock works the same three
batches, and another owner takes every shard between them, so that state comes from the store. Beside
that each example runs whole, by `penstock run` with two workers, and what its sink wrote is compared. The
last test asks both for the answers of single state calls, and how keys and rows look to a processor.
"""

from __future__ import annotations

import datetime
import decimal
import importlib
import itertools
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

from backends.store_fixtures import RedisBackend
from conformance.in_penstock import SHARDS, InPenstock
from conformance.in_spark import run_query
from house import ROOT
from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import Processor
from penstock.dataflow.schema import Schema
from penstock.store.port import Bounds
from penstock_worker.values.spark_types import struct_type
from processes.run_harness import Run, read_rows
from scenes.store_scenario import Scene

pytestmark = pytest.mark.integration

EXAMPLES = ROOT / "examples" / "processors"
WORD_COUNT = EXAMPLES.parent / "word-count"
ZIPF_CALCULATOR = EXAMPLES.parent / "zipf-calculator"
BATCHES = 3


@dataclass(frozen=True)
class Example:
    """A processor of `examples/processors`; schemas are those of its topology."""

    folder: str
    processor: str
    input: str
    key: tuple[str, ...]
    output: str


EXAMPLE_PROCESSORS = [
    Example(
        "running-totals",
        "RunningTotals",
        "number long, user string, category string, amount long",
        ("user",),
        "user string, number long, category string, total long, categories int",
    ),
    Example(
        "last-values",
        "LastValues",
        "number long, sensor int, celsius double",
        ("sensor",),
        "sensor int, number long, mean double, highest double, readings int",
    ),
    Example(
        "first-seen",
        "FirstSeen",
        "number long, host string, status int, day date",
        ("host", "status"),
        "host string, status int, number long, first long, day date, hits long, new boolean",
    ),
]


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisBackend]:
    backend = RedisBackend(tmp_path_factory.mktemp("stores"))
    yield backend
    backend.stop()


@pytest.fixture
def scene(backend: RedisBackend) -> Scene:
    """Two shards in a real store, claimed."""
    backend.empty()
    return Scene(backend.open_store(bounds=Bounds())).set_up(*SHARDS)


# --- the two sides ----------------------------------------------------------------------------------


def in_spark(
    stream: DataFrame, key: Sequence[str], processor: StatefulProcessor, output: Schema, folder: Path
) -> list[list[Row]]:
    """The rows that come out of each micro-batch that has any."""
    return [rows for rows in run_query(stream, key, processor, output, folder) if rows]


def both_sides(
    module: Any,
    processor: type[StatefulProcessor],
    given: Schema,
    key: Sequence[str],
    output: Schema,
    batches: list[list[str]],
    scene: Scene,
    streaming: SparkSession,
    folder: Path,
) -> tuple[list[list[str]], list[list[str]]]:
    """What Penstock and Spark make of batches of comma-separated lines, batch by batch, in order."""
    penstock = InPenstock(scene, processor, given, key, output)
    readers = [str if column.type == "string" else int for column in given.columns]
    ours = [
        penstock.batch([tuple(r(v) for r, v in zip(readers, line.split(","), strict=True)) for line in batch])
        for batch in batches
    ]
    stream = stream_of(batches, module, given, streaming, folder / "input")
    theirs = in_spark(stream, key, processor(), output, folder)
    return list(map(in_order, ours)), list(map(in_order, theirs))


def stream_of(
    batches: list[list[str]], module: Any, given: Schema, streaming: SparkSession, folder: Path
) -> DataFrame:
    """Batches of comma-separated lines, each of them a micro-batch; Spark's workers are given `module`."""
    write_batches(batches, folder)
    cloudpickle.register_pickle_by_value(module)
    reader = streaming.readStream.schema(struct_type(given))
    return reader.option("maxFilesPerTrigger", 1).csv(str(folder))


def module_of(example: Example) -> Any:
    return module_at(EXAMPLES / example.folder, example.folder.replace("-", "_"))


def module_at(folder: Path, name: str) -> Any:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def in_order(rows: list[Row]) -> list[str]:
    return sorted(repr(row) for row in rows)


# --- the examples -----------------------------------------------------------------------------------

OTHERS = pytest.mark.slow(
    held_by="test_an_example_gives_the_same_rows_in_spark_in_the_runner_and_in_a_whole_run"
)
"""One of them is whole in `make test`, the one whose state has most forms."""
EXAMPLES_TO_RUN = [
    pytest.param(example, id=example.folder, marks=[] if example.folder == "running-totals" else [OTHERS])
    for example in EXAMPLE_PROCESSORS
]


@pytest.fixture
def whole_run(example: Example, tmp_path: Path) -> Iterator[Run]:
    """`penstock run` of the example, which goes on beside the test."""
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLES / example.folder, folder, ignore=shutil.ignore_patterns("out", ".penstock"))
    run = Run(folder / "topology.yaml", tmp_path / "state", ("--workers", "2"))
    run.start()
    yield run
    run.abandon()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("example", EXAMPLES_TO_RUN)
def test_an_example_gives_the_same_rows_in_spark_in_the_runner_and_in_a_whole_run(
    example: Example, whole_run: Run, streaming: SparkSession, scene: Scene, tmp_path: Path
) -> None:
    module = module_of(example)
    processor = getattr(module, example.processor)
    given, output = parse_schema(example.input), parse_schema(example.output)
    batches = batches_of(next((EXAMPLES / example.folder / "input").iterdir()))

    penstock = InPenstock(scene, processor, given, example.key, output)
    ours = []
    for lines in batches:
        parsed = itertools.chain.from_iterable(module.parse(Row(value=line)) for line in lines)
        ours.append(penstock.batch(list(parsed)))

    stream = stream_of(batches, module, given, streaming, tmp_path / "input")
    theirs = in_spark(stream, example.key, processor(), output, tmp_path)

    assert len(theirs) == BATCHES
    assert list(map(in_order, ours)) == list(map(in_order, theirs))
    assert sum(map(len, ours)) == sum(map(len, batches))

    assert whole_run.finish() == 0, whole_run.output
    written = [json.dumps(row) for row in read_rows(whole_run.manifest.parent / "out")]
    rows = [row for batch in theirs for row in batch]
    wanted = streaming.createDataFrame(rows, struct_type(output)).toJSON().collect()
    assert sorted(written) == sorted(json.dumps(json.loads(row)) for row in wanted)


# --- the stock exchange -----------------------------------------------------------------------------

STOCK_EXCHANGE = EXAMPLES.parent / "stock-exchange"
ORDER_COLUMNS = (
    "number long, stock string, account long, side string, price long, volume long, cancels long, at_ms long"
)
TRADE_COLUMNS = (
    "stock string, trade long, price long, volume long, buy_order long, sell_order long, buyer long, "
    "seller long, at_ms long"
)
EXCHANGE_PROCESSORS = {
    "ContinuousAuction": (ORDER_COLUMNS, TRADE_COLUMNS),
    "Turnover": (
        TRADE_COLUMNS,
        "stock string, trades long, price long, low long, high long, volume long, turnover long",
    ),
    "MovingAverage": (TRADE_COLUMNS, "stock string, trade long, price long, mean double"),
    "Alarms": (TRADE_COLUMNS, "stock string, trade long, price long, reference long"),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", EXCHANGE_PROCESSORS)
def test_the_stock_exchange_gives_the_same_rows_in_spark_and_in_penstock(
    name: str, streaming: SparkSession, scene: Scene, tmp_path: Path
) -> None:
    exchange, compare, generator = (
        module_at(STOCK_EXCHANGE, found) for found in ("stock_exchange", "compare", "generate_orders")
    )
    generator.write(generator.draw(seed=5, orders=900, stocks=12, seconds=5), tmp_path, files=1)
    given, output = map(parse_schema, EXCHANGE_PROCESSORS[name])
    if given == parse_schema(ORDER_COLUMNS):
        lines = (tmp_path / "orders" / "orders-1.csv").read_text(encoding="utf-8").splitlines()
    else:
        stocks = compare.run_auction(tmp_path / "orders")
        trades = [trade for stock in stocks.values() for trade in stock.trades]
        trades.sort(key=lambda trade: (trade["at_ms"], trade["stock"], trade["trade"]))
        lines = [",".join(str(value) for value in trade.values()) for trade in trades]
    ours, theirs = both_sides(
        exchange, getattr(exchange, name), given, ("stock",), output, split(lines), scene, streaming, tmp_path
    )

    assert theirs
    assert [rows for rows in ours if rows] == theirs


# --- the word count and the calculator --------------------------------------------------------------


def words() -> list[str]:
    """Some words often, most seldom; with letters that need more than a byte."""
    rng = random.Random(7)
    vocabulary = ["ash", "Größe", "sea", "中文", "été", *(f"w{n}" for n in range(60))]
    return rng.choices(vocabulary, [1 / (rank + 1) for rank in range(len(vocabulary))], k=900)


def generated_records() -> list[str]:
    """As the generator makes them, with so little work that its time does not count."""
    rng = random.Random(8)
    return [f"{rng.randrange(30)},{'x' * 16},{rng.randrange(5)},{number}" for number in range(900)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("folder", "operator", "lines"),
    [(WORD_COUNT, "count", words), (ZIPF_CALCULATOR, "calculator", generated_records)],
    ids=["word-count", "zipf-calculator"],
)
def test_the_examples_that_count_give_the_same_rows_in_spark_and_in_penstock(
    folder: Path,
    operator: str,
    lines: Callable[[], list[str]],
    streaming: SparkSession,
    scene: Scene,
    tmp_path: Path,
) -> None:
    stage = compile_topology(load_topology(folder / "topology.yaml")).stage(operator)
    assert isinstance(stage.head, Processor)
    given, output = stage.head.input, stage.out.schema
    module, _, name = stage.head.target.partition(":")
    code = module_at(folder, module)
    key = [given.names[column] for column in stage.head.key_columns]
    ours, theirs = both_sides(
        code, getattr(code, name), given, key, output, split(lines()), scene, streaming, tmp_path
    )

    assert len(theirs) == BATCHES
    assert ours == theirs


def batches_of(path: Path) -> list[list[str]]:
    return split(path.read_text(encoding="utf-8").splitlines())


def split(lines: list[str]) -> list[list[str]]:
    size = -(-len(lines) // BATCHES)
    return [lines[start : start + size] for start in range(0, len(lines), size)]


def write_batches(batches: list[list[str]], folder: Path) -> None:
    """One file each; Spark takes them by age."""
    folder.mkdir()
    for number, lines in enumerate(batches):
        path = folder / f"{number}.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))


# --- single calls -----------------------------------------------------------------------------------

PROBE_INPUT = (
    "word string, n bigint, day date, price decimal(10,2), raw binary, numbers array<int>, "
    "byword map<string,int>, pair struct<x:int,y:string>, share float"
)
PROBE_ROW = (
    "k1",
    7,
    datetime.date(2020, 1, 2),
    decimal.Decimal("1.5"),
    b"\x00\xff",
    [1, None],
    {"a": 1},
    (1, "z"),
    0.1,
)


class Probe(StatefulProcessor):
    """Tells what single calls on state answer, as (number, text)."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "a bigint, b double, c string")
        self.typed = handle.getValueState(
            "typed",
            "d date, m decimal(10,2), n binary, l array<int>, p map<string,int>, s struct<x:int,y:string>, "
            "h boolean, t tinyint, f float",
        )
        self.items = handle.getListState("items", "x bigint")
        self.map = handle.getMapState("map", "k string", "v bigint")
        self.floats = handle.getMapState("floats", "k double", "v bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - pyspark's
        rows = list(rows)
        told = [
            ("key", lambda: key),
            ("row", lambda: tuple(rows[0])),
            ("times", lambda: timerValues.getCurrentWatermarkInMs()),
            *self.values(),
            *self.lists(),
            *self.maps(),
        ]
        for number, (call, ask) in enumerate(told):
            yield Row(number=number, text=f"{call}: {self.answer(ask)}")

    @staticmethod
    def answer(ask: Callable[[], Any]) -> str:
        try:
            answer = ask()
        except Exception as error:  # noqa: BLE001 - that it raises is the answer
            return f"raises {'TypeError' if isinstance(error, TypeError) else 'an error'}"
        return f"{answer!r} {type(answer).__name__}"

    def values(self) -> list[tuple[str, Callable[[], Any]]]:
        value, typed = self.value, self.typed
        given = (
            datetime.date(1960, 2, 29),
            decimal.Decimal("1.255"),
            bytearray(b"\x00\xff"),
            (1, None),
            {"a": None},
            (1, "q"),
            True,
            -128,
            1.1,
        )
        return [
            ("exists", value.exists),
            ("get", value.get),
            ("update", lambda: value.update((1, 2.0, "x"))),
            ("get", value.get),
            ("update nulls", lambda: value.update((None, None, None))),
            ("get", value.get),
            ("exists", value.exists),
            ("update by list", lambda: value.update([7, 2.0, "x"])),
            ("update by row", lambda: value.update(Row(a=8, b=2.5, c="x"))),
            ("get", value.get),
            ("clear", value.clear),
            ("get", value.get),
            ("exists", value.exists),
            ("clear again", value.clear),
            ("update types", lambda: typed.update(given)),
            ("get types", typed.get),
            ("update null types", lambda: typed.update((None,) * len(given))),
            ("get null types", typed.get),
        ]

    def lists(self) -> list[tuple[str, Callable[[], Any]]]:
        items = self.items

        def changed_while_read() -> list[Any]:
            seen = []
            for row in items.get():
                seen.append(row)
                items.appendValue((100 + row[0],))
            return seen

        def changed_before_read() -> list[Any]:
            rows = items.get()
            items.appendValue((200,))
            return list(rows)

        return [
            ("exists", items.exists),
            ("get", lambda: list(items.get())),
            ("append", lambda: items.appendValue((1,))),
            ("append list", lambda: items.appendList([(2,), (3,)])),
            ("get", lambda: list(items.get())),
            ("exists", items.exists),
            ("change while read", changed_while_read),
            ("get", lambda: list(items.get())),
            ("change before read", changed_before_read),
            ("put", lambda: items.put([(None,), (9,)])),
            ("get", lambda: list(items.get())),
            ("two at once", lambda: list(zip(items.get(), items.get(), strict=True))),
            ("clear", items.clear),
            ("exists", items.exists),
            ("append after clear", lambda: items.appendValue((4,))),
            ("get", lambda: list(items.get())),
        ]

    def maps(self) -> list[tuple[str, Callable[[], Any]]]:
        map_, floats = self.map, self.floats

        def changed_while_read() -> list[Any]:
            seen = []
            for (key,), value in map_.iterator():
                seen.append((key, value))
                map_.updateValue((f"new {key}",), (1,))
                map_.removeKey((key,))
            return seen

        def removed() -> None:
            for key in list(map_.keys()):
                map_.removeKey(key)

        return [
            ("exists", map_.exists),
            ("get absent", lambda: map_.getValue(("a",))),
            ("contains absent", lambda: map_.containsKey(("a",))),
            ("iterate nothing", lambda: list(map_.iterator())),
            ("remove absent", lambda: map_.removeKey(("a",))),
            *[
                (f"update {key}", lambda key=key: map_.updateValue((key,), (len(key),)))
                for key in ("b", "a", "zz", "", "B")
            ],
            ("get", lambda: map_.getValue(("a",))),
            ("contains", lambda: map_.containsKey(("a",))),
            ("iterate", lambda: list(map_.iterator())),
            ("keys", lambda: list(map_.keys())),
            ("values", lambda: list(map_.values())),
            ("change while read", changed_while_read),
            ("iterate", lambda: list(map_.iterator())),
            ("null value", lambda: map_.updateValue(("n",), (None,))),
            ("get null value", lambda: map_.getValue(("n",))),
            ("contains null value", lambda: map_.containsKey(("n",))),
            ("null key", lambda: map_.updateValue((None,), (1,))),
            ("contains null key", lambda: map_.containsKey((None,))),
            ("remove all", removed),
            ("exists", map_.exists),
            *[
                (f"update {key}", lambda key=key: floats.updateValue((key,), (7,)))
                for key in (0.0, -0.0, float("nan"))
            ],
            ("how many", lambda: len(list(floats.keys()))),
            ("nan", lambda: floats.containsKey((float("nan"),))),
            ("clear", floats.clear),
            ("exists", floats.exists),
        ]


@pytest.mark.timeout(240)
def test_single_calls_answer_as_sparks_do(streaming: SparkSession, scene: Scene, tmp_path: Path) -> None:
    given, output = parse_schema(PROBE_INPUT), parse_schema("number int, text string")
    key = ("word", "n", "day", "price", "raw")
    (frame_path, stream_schema) = (str(tmp_path / "input"), struct_type(given))
    streaming.createDataFrame([PROBE_ROW], stream_schema).coalesce(1).write.parquet(frame_path)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    (theirs,) = in_spark(
        streaming.readStream.schema(stream_schema).parquet(frame_path), key, Probe(), output, tmp_path
    )
    ours = InPenstock(scene, Probe, given, key, output).batch([PROBE_ROW])
    assert [row.text for row in sorted(ours)] == [row.text for row in sorted(theirs)]
