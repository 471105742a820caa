"""Processors of the row form. Each tells in its rows what it saw; `SAMPLE_COLUMNS` are those of their input.

They travel to Spark's workers by value: nothing of Penstock and no other module of the tests is used here.
"""

# ruff: noqa: N802, N803 - pyspark's own names and signatures
from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

PLAIN_COLUMNS = "key string, n bigint, x double, word string"
TOLD = "key string, number bigint, text string"


class Telling(StatefulProcessor):
    """What these have in common: `tell` gives lines of text, and each becomes a row."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for number, text in enumerate(self.tell(key, rows)):
            yield Row(key=str(key[0]), number=number, text=str(text))

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        raise NotImplementedError


class Totals(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n bigint, sum double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n, total = self.total.get() if self.total.exists() else (0, 0.0)
        for row in rows:
            n, total = n + 1, total + (row.x or 0.0)
        self.total.update((n, total))
        yield Row(key=key[0], n=n, sum=total)


class Cleared(Telling):
    """A value that is cleared and set again within one call, and between calls."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "v string")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            yield self.value.get()
            if row.n % 3 == 0:
                self.value.clear()
                yield self.value.exists()
            else:
                self.value.update((row.word,))
                self.value.update((f"{row.word}!",))


class ListEmptied(Telling):
    def init(self, handle: Any) -> None:
        self.items = handle.getListState("items", "n bigint")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            self.items.appendValue((row.n,))
        yield self.items.exists(), list(self.items.get())
        if len(list(self.items.get())) > 3:
            self.items.clear()
            yield self.items.exists(), list(self.items.get())


class ListPut(Telling):
    """All calls of a list; two iterators at once."""

    def init(self, handle: Any) -> None:
        self.items = handle.getListState("items", "n bigint, word string")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        pairs = [(row.n, row.word) for row in rows]
        yield list(self.items.get())
        self.items.appendList(pairs)
        yield [(a, b) for a, b in zip(self.items.get(), self.items.get(), strict=True)]
        self.items.put(sorted(self.items.get(), reverse=True)[:3])
        yield list(self.items.get())


class ListChangedWhileRead(Telling):
    def init(self, handle: Any) -> None:
        self.items = handle.getListState("items", "n bigint")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        self.items.appendList([(row.n,) for row in rows])
        seen = []
        for (n,) in self.items.get():
            seen.append(n)
            if n < 1000:
                self.items.appendValue((n + 1000,))
        yield seen
        yield list(self.items.get())


class MapChangedWhileIterated(Telling):
    def init(self, handle: Any) -> None:
        self.words = handle.getMapState("words", "word string", "n bigint")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            before = self.words.getValue((row.word,))
            self.words.updateValue((row.word,), ((before[0] if before else 0) + 1,))
        for (word,), (n,) in self.words.iterator():
            if n % 2:
                self.words.removeKey((word,))
            else:
                self.words.updateValue((f"again {word}",), (n,))
        yield sorted(self.words.iterator())
        yield sorted(self.words.keys()), sorted(self.words.values())


class MapCleared(Telling):
    def init(self, handle: Any) -> None:
        self.words = handle.getMapState("words", "word string", "n bigint")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            self.words.updateValue((row.word,), (row.n,))
            yield self.words.containsKey((row.word,)), self.words.containsKey(("never",))
        if len(list(self.words.keys())) > 2:
            self.words.clear()
        yield self.words.exists(), tuple(self.words.getValue(("ash",)) or ())


class TextsForTuples(Telling):
    """A text is a sequence of letters: one of a single letter passes for the tuple of it."""

    def init(self, handle: Any) -> None:
        self.words = handle.getMapState("words", "letter string", "n bigint, last string")
        self.last = handle.getValueState("last", "letter string")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            letter = str(row.n % 3)
            yield self.words.containsKey(letter), self.words.getValue(letter)
            self.words.updateValue(letter, (row.n, letter))
            self.last.update(letter)
        yield sorted(self.words.iterator()), self.last.get()
        self.words.removeKey("1")
        yield sorted(self.words.keys())


class MapOfNulls(Telling):
    def init(self, handle: Any) -> None:
        self.map = handle.getMapState("map", "word string", "n bigint, x double")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            self.map.updateValue((row.word,), (None, row.x))
        for (word,) in sorted(self.map.keys()):
            yield word, self.map.containsKey((word,)), self.map.getValue((word,))


class ManyVariables(Telling):
    def init(self, handle: Any) -> None:
        self.values = [handle.getValueState(f"value{i}", "n bigint") for i in range(4)]
        self.lists = [handle.getListState(f"list{i}", "word string") for i in range(2)]
        self.maps = [handle.getMapState(f"map{i}", "word string", "n bigint") for i in range(2)]

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            self.values[row.n % 4].update((row.n,))
            self.lists[row.n % 2].appendValue((row.word,))
            self.maps[row.n % 2].updateValue((row.word,), (row.n,))
        yield [value.get() for value in self.values]
        yield [list(items.get()) for items in self.lists]
        yield [sorted(map_.iterator()) for map_ in self.maps]


class Decimals(Telling):
    """Rounded behind the scale, as Spark's state does."""

    def init(self, handle: Any) -> None:
        self.price = handle.getValueState("price", "price decimal(12,2), wide decimal(38,18)")
        self.prices = handle.getMapState("prices", "price decimal(5,1)", "price decimal(20,0)")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            price = decimal.Decimal(row.n) / 8
            self.price.update((price, price / 3))
            self.prices.updateValue((price.quantize(decimal.Decimal("0.1")),), (price * 8,))
            yield self.price.get()
        yield sorted(self.prices.iterator())


class NestedStructs(Telling):
    SCHEMA = StructType(
        [
            StructField("tags", ArrayType(StringType())),
            StructField(
                "events",
                ArrayType(
                    StructType(
                        [
                            StructField("n", LongType()),
                            StructField("by", MapType(StringType(), ArrayType(IntegerType()))),
                            StructField("price", DecimalType(10, 2)),
                        ]
                    )
                ),
            ),
        ]
    )

    def init(self, handle: Any) -> None:
        self.nested = handle.getValueState("nested", self.SCHEMA)

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        before = self.nested.get()
        tags, events = before or ([], [])
        for row in rows:
            tags = [*tags, row.word]
            event = Row(n=row.n, by={row.word: [int(row.n), None]}, price=decimal.Decimal("1.25"))
            events = [*events, event]
        self.nested.update((tags, events))
        yield self.nested.get()


class Times(Telling):
    """Dates, and times with and without a zone, in values, lists and keys of maps."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "day date, at timestamp, there timestamp_ntz")
        self.list = handle.getListState("list", StructType([StructField("there", TimestampNTZType())]))
        self.map = handle.getMapState("map", "at timestamp", "there timestamp_ntz")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            there = datetime.datetime(2020, 1, 1, 12) + datetime.timedelta(minutes=row.n)  # noqa: DTZ001
            at = there.replace(tzinfo=datetime.UTC)
            self.value.update((there.date(), at, there if row.n % 2 else None))
            self.list.appendValue((there,))
            self.map.updateValue((at,), (there,))
        yield self.value.get()
        yield list(self.list.get())
        yield sorted(self.map.iterator())


class SmallTypes(Telling):
    def init(self, handle: Any) -> None:
        self.value = handle.getValueState(
            "value", "t tinyint, s smallint, i int, f float, d double, b boolean, raw binary"
        )

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            yield self.value.get()
            n = int(row.n)
            flag = None if n % 5 == 0 else n % 2 == 0
            self.value.update((n % 100, -n, n * 1000, 0.1, row.x, flag, bytes([n % 256, 0])))
        yield self.value.get()


class Edges(Telling):
    """NaN, both zeros and infinity, as values and as keys of a map."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "x double")
        self.map = handle.getMapState("map", "x double", "n bigint")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            for x in (float("nan"), 0.0, -0.0, float("inf"), None):
                self.value.update((x,))
                yield self.value.get()
            for x in (float("nan"), 0.0, float("inf"), row.x):
                self.map.updateValue((x,), (row.n,))
        yield sorted(map(str, self.map.iterator()))


class StructKeys(Telling):
    """Keys of a map with several columns, a struct among them."""

    def init(self, handle: Any) -> None:
        self.map = handle.getMapState("map", "pair struct<a:bigint,b:string>, word string", "n bigint")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            self.map.updateValue((Row(a=row.n % 3, b=row.word), row.word), (row.n,))
        yield sorted(map(str, self.map.iterator()))
        yield self.map.containsKey((Row(a=0, b="ash"), "ash"))


class NeverNull(Telling):
    """Columns that are declared as never null."""

    def init(self, handle: Any) -> None:
        fields = [StructField("n", LongType(), nullable=False), StructField("word", StringType())]
        self.value = handle.getValueState("value", StructType(fields))
        self.list = handle.getListState("list", "n bigint NOT NULL")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            self.value.update((row.n, None))
            self.list.appendValue((row.n,))
        yield self.value.get()
        yield list(self.list.get())


class AllKindsOfState(Telling):
    """Decimals, dates, times with and without a zone, and binary: in values, elements, keys and entries."""

    TYPES = "price decimal(10,2), day date, at timestamp, there timestamp_ntz, raw binary, x double"

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", self.TYPES)
        self.list = handle.getListState("list", self.TYPES)
        self.map = handle.getMapState("map", self.TYPES, self.TYPES)

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            at = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999 - int(row.n), tzinfo=datetime.UTC)
            price, raw = decimal.Decimal(-row.n) / 4, bytes([row.n % 256, 0, 255])
            values = (price, at.date(), at, at.replace(tzinfo=None), raw, row.x)
            self.value.update(values)
            self.list.appendList([values, (None, at.date(), None, None, b"", float("inf"))])
            self.map.updateValue(values, values)
            yield self.map.containsKey(values), self.map.getValue(values)
        yield self.value.get()
        yield list(self.list.get())
        yield sorted(map(str, self.map.iterator()))


class ExistsAndClear(Telling):
    """What never was, what is cleared twice, and what comes back within one call."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n bigint")
        self.items = handle.getListState("items", "n bigint")
        self.words = handle.getMapState("words", "word string", "n bigint")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        yield self.all_state()
        self.words.removeKey(("never",))
        for state in (self.value, self.items, self.words, self.value, self.items, self.words):
            state.clear()
        yield self.all_state()
        for row in rows:
            self.value.update((row.n,))
            self.items.put([(row.n,)])
            self.words.updateValue((row.word,), (row.n,))
            yield self.all_state()
            self.words.removeKey((row.word,))
            self.items.clear()
            self.items.appendValue((-1,))
            if row.n % 2:
                self.value.clear()
            yield self.all_state()

    def all_state(self) -> Any:
        states = (self.value, self.items, self.words)
        found = self.value.get(), list(self.items.get()), sorted(self.words.iterator())
        return [state.exists() for state in states], found, self.words.containsKey(("ash",))


class NullsInState(Telling):
    """A value whose columns are all null is there; so are an element and an entry."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n bigint, pair struct<a:bigint,b:string>")
        self.items = handle.getListState("items", "word string")
        self.map = handle.getMapState("map", "word string, n bigint", "items array<bigint>")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        yield self.value.exists(), self.items.exists(), self.map.exists()
        for row in rows:
            self.value.update((None, None if row.n % 2 else Row(a=None, b=None)))
            self.items.appendList([(None,), ("",)])
            self.map.updateValue((None, None), (None,))
            self.map.updateValue((row.word, None), ([None],))
            yield self.value.exists(), self.value.get(), self.map.containsKey((None, None))
        yield list(self.items.get()), sorted(map(str, self.map.iterator()))


class IteratorsSideBySide(Telling):
    """Several iterators at once, some of them left where they are."""

    def init(self, handle: Any) -> None:
        self.items = handle.getListState("items", "n bigint")
        self.words = handle.getMapState("words", "n bigint", "word string")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            self.items.appendValue((row.n,))
            self.words.updateValue((row.n,), (row.word,))
        left = self.items.get()
        yield next(left)
        pairs = [(a, b) for a in self.words.keys() for b in self.words.values()]  # noqa: SIM118 - a MapState
        yield sorted(pairs)
        yield next(left), next(self.words.iterator())[0] in set(self.words.keys())
        yield [sum(n for (n,) in self.items.get()) for _ in self.items.get()]


class OneZero(Telling):
    """NaN and zero, each set again and again as keys of a map."""

    def init(self, handle: Any) -> None:
        self.map = handle.getMapState("map", "x double", "n bigint")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            for x in (float("nan"), 0.0, -float("inf")):
                before = self.map.getValue((x,)) or (0,)
                self.map.updateValue((x,), (before[0] + row.n,))
            self.map.removeKey((-float("inf"),))
        yield sorted(map(str, self.map.iterator())), self.map.containsKey((float("nan"),))


class DeletesWhatNeverWas(Telling):
    def init(self, handle: Any) -> None:
        handle.deleteIfExists("never")
        self.value = handle.getValueState("value", "n bigint")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            self.value.update((row.n,))
        yield self.value.get()


class DeletesWhatItDeclared(Telling):
    """As Spark's own SimpleStatefulProcessor does."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n bigint")
        self.gone = handle.getValueState("gone", "n bigint")
        handle.deleteIfExists("gone")
        self.list = handle.getListState("list", "n bigint")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            self.value.update(((self.value.get() or (0,))[0] + row.n,))
            self.list.appendValue((row.n,))
        yield self.value.get(), [value for (value,) in self.list.get()]
        for use in (self.gone.exists, self.gone.get, self.gone.clear, lambda: self.gone.update((1,))):
            try:
                use()
            except PySparkRuntimeError as error:
                yield str(error).partition(":")[0]


class Large(Telling):
    """10 MB under one key: one value, one list, one map."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "text string")
        self.list = handle.getListState("list", "raw binary")
        self.map = handle.getMapState("map", "n bigint", "text string")

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            n = int(row.n)
            if not self.value.exists():
                self.value.update(("é" * 2_000_000,))
                self.list.appendList([(bytes([i]) * 300_000,) for i in range(10)])
                for i in range(10):
                    self.map.updateValue((i,), (str(i) * 300_000,))
            self.list.appendValue((bytes([n % 256]),))
            self.map.updateValue((n,), ("x",))
        yield len(self.value.get()[0])
        yield [(len(raw), raw[:1]) for (raw,) in self.list.get()]
        yield sorted((k, len(text), text[:1]) for (k,), (text,) in self.map.iterator())


class Ignores(StatefulProcessor):
    """Reads only the first of its rows, after it has put one out."""

    def init(self, handle: Any) -> None:
        self.calls = handle.getValueState("calls", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        calls = (self.calls.get() or (0,))[0] + 1
        yield Row(key=key[0], n=calls, word=None)
        self.calls.update((calls,))
        yield Row(key=key[0], n=calls, word=next(rows).word)


class Bursts(StatefulProcessor):
    """Nothing at all, or very many rows."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if key[0] == "sea":
            for number in range(3000):
                yield Row(key=key[0], number=number)


class Outputs(StatefulProcessor):
    """Rows with columns left out, in another order, of every type."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getListState("seen", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        at = datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.UTC)
        yield Row(word="names decide", key=key[0])
        yield Row(key=key[0], nobody="knows", day=at.date(), at=at, there=at.replace(tzinfo=None))
        yield Row(key=key[0], price=decimal.Decimal("2.50"), raw=b"\x00\xff", share=0.1, flag=True)
        yield Row(key=key[0], items=[1, None], by={"a": None, "b": 2.5}, pair=Row(a=1, b="x"))
        yield Row(key=key[0], pairs=[Row(a=2, b=None), {"b": "y"}], small=-128)
        for row in rows:
            self.seen.appendValue((row.n,))
        yield Row(key=key[0], items=[n for (n,) in self.seen.get()])


class Sessions(StatefulProcessor):
    """Gathers what came until a gap; a map for what is open, a list for what is closed."""

    def init(self, handle: Any) -> None:
        self.open = handle.getMapState("open", "word string", "first bigint, last bigint")
        self.closed = handle.getListState("closed", "word string, first bigint, last bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            session = self.open.getValue((row.word,))
            if session is not None and row.n - session.last > 40:
                self.closed.appendValue((row.word, session.first, session.last))
                self.open.removeKey((row.word,))
                yield Row(key=key[0], word=row.word, first=session.first, last=session.last)
                session = None
            self.open.updateValue((row.word,), (row.n if session is None else session.first, row.n))
        yield Row(key=key[0], word="closed", first=len(list(self.closed.get())), last=None)


class BeforeChange(Telling):
    """State whose schemas become those of `AfterChange`."""

    NAME = "Changing"
    SCHEMAS = ("id int, name string, gone double, f float", "n int, word string", "n int")

    def init(self, handle: Any) -> None:
        value, items, entries = self.SCHEMAS
        self.value = handle.getValueState("value", value)
        self.items = handle.getListState("items", items)
        self.map = handle.getMapState("map", "word string", entries)

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        for row in rows:
            n = int(row.n)
            self.value.update((n, row.word, 0.5, 0.25))
            self.items.appendValue((n, row.word))
            self.map.updateValue((row.word,), (n,))
        yield self.value.get()


class AfterChange(BeforeChange):
    """Fields are added, removed, reordered and widened; what is there is told before it is rewritten."""

    SCHEMAS = (
        "more date, name string, id bigint, f double",
        "word string, n bigint",
        "tags array<int>, n double",
    )

    def tell(self, key: Any, rows: Iterator[Row]) -> Iterator[Any]:
        yield self.value.get()
        yield list(self.items.get())
        yield sorted(map(str, self.map.iterator()))
        for row in rows:
            self.value.update((None, row.word, 1 << 40, 0.1))
            self.items.appendValue((row.word, 1 << 40))
            self.map.updateValue((row.word,), ([1], 0.5))
        yield self.value.get()
        yield list(self.items.get())
        yield sorted(map(str, self.map.iterator()))


class KeysSeen(StatefulProcessor):
    """How keys of all types come, and that equal ones share a state."""

    def init(self, handle: Any) -> None:
        self.calls = handle.getValueState("calls", "rows bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count = (self.calls.get() or (0,))[0] + sum(1 for _ in rows)
        self.calls.update((count,))
        text = repr(key).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
        yield Row(text=text, rows=count)


class TypesSeen(StatefulProcessor):
    """How values of all types come."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            text = repr(row).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
            yield Row(text=text, rows=len(row))
