"""Processors of the pandas form, most of them twins of the row ones. They travel by value too."""

# ruff: noqa: N802, N803 - pyspark's own names
from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor


class TellingInPandas(StatefulProcessor):
    """What these have in common: `tell` gives lines of text, which become a DataFrame."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        texts = [str(text) for text in self.tell(key, rows)]
        yield pd.DataFrame({"key": str(key[0]), "number": range(len(texts)), "text": texts})

    def tell(self, key: Any, rows: Iterator[pd.DataFrame]) -> Iterator[Any]:
        raise NotImplementedError


class PandasTotals(StatefulProcessor):
    """Sums by pandas; numpy's numbers go into state."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n bigint, sum double")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        n, total = self.total.get() if self.total.exists() else (0, 0.0)
        for frame in rows:
            n, total = n + frame["n"].count(), total + frame["x"].sum()
        self.total.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "sum": [total]})


class PandasLists(TellingInPandas):
    def init(self, handle: Any) -> None:
        self.items = handle.getListState("items", "n bigint, word string")

    def tell(self, key: Any, rows: Iterator[pd.DataFrame]) -> Iterator[Any]:
        for frame in rows:
            self.items.appendList(list(frame[["n", "word"]].itertuples(index=False, name=None)))
        yield list(self.items.get())
        if len(list(self.items.get())) > 3:
            self.items.clear()
        yield self.items.exists()


class PandasMaps(TellingInPandas):
    def init(self, handle: Any) -> None:
        self.words = handle.getMapState("words", "word string", "n bigint")

    def tell(self, key: Any, rows: Iterator[pd.DataFrame]) -> Iterator[Any]:
        for frame in rows:
            for word, count in frame["word"].value_counts().items():
                before = self.words.getValue((word,))
                self.words.updateValue((word,), ((before[0] if before else 0) + count,))
        for (word,), (n,) in self.words.iterator():
            if n % 2:
                self.words.removeKey((word,))
        yield sorted(self.words.iterator())


class PandasStateTypes(TellingInPandas):
    """What pandas has for times, numbers and texts, in state."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState(
            "value", "at timestamp, there timestamp_ntz, day date, price decimal(10,2), f float, flag boolean"
        )

    def tell(self, key: Any, rows: Iterator[pd.DataFrame]) -> Iterator[Any]:
        for frame in rows:
            for row in frame.itertuples():
                at = pd.Timestamp("2024-01-01") + pd.Timedelta(minutes=int(row.n))
                price = decimal.Decimal(int(row.n)) / 4
                self.value.update((at, at, at.date(), price, np.float32(row.n / 10), np.bool_(row.n % 2)))
                yield self.value.get()


class PandasEdges(TellingInPandas):
    """NaN and NaT as pandas has them, both zeros and infinity, in values, elements and keys of a map."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "x double, n bigint")
        self.items = handle.getListState("items", "x double")
        self.map = handle.getMapState("map", "x double", "n bigint")

    def tell(self, key: Any, rows: Iterator[pd.DataFrame]) -> Iterator[Any]:
        for frame in rows:
            for n in frame["n"]:
                for x in (np.nan, np.float64(0.0), -0.0, np.inf, None):
                    self.value.update((x, n))
                    yield self.value.get()
                self.items.appendList([(np.nan,), (np.float32(0.5),), (None,)])
                for x in (np.nan, np.inf, np.float64(n)):
                    self.map.updateValue((x,), (n,))
        yield [str(x) for (x,) in self.items.get()], sorted(map(str, self.map.iterator()))


class PandasManyVariables(TellingInPandas):
    """Several variables; some are emptied each time."""

    def init(self, handle: Any) -> None:
        self.values = [handle.getValueState(f"value{i}", "n bigint") for i in range(3)]
        self.list = handle.getListState("list", "raw binary, price decimal(10,2)")
        self.maps = [handle.getMapState(f"map{i}", "word string", "n bigint") for i in range(2)]

    def tell(self, key: Any, rows: Iterator[pd.DataFrame]) -> Iterator[Any]:
        self.maps[1].clear()
        for frame in rows:
            for n, word in zip(frame["n"], frame["word"], strict=True):
                self.values[n % 3].update((n,))
                self.list.appendValue((bytes([n]), decimal.Decimal(int(n)) / 4))
                self.maps[n % 2].updateValue((word,), (n,))
        yield [value.get() for value in self.values], list(self.list.get())
        yield [sorted(one.iterator()) for one in self.maps], [one.exists() for one in self.maps]
        self.values[0].clear()
        self.list.clear()


class PandasChunks(TellingInPandas):
    """More rows of one key than a DataFrame has; how each of them is numbered."""

    def init(self, handle: Any) -> None:
        pass

    def tell(self, key: Any, rows: Iterator[pd.DataFrame]) -> Iterator[Any]:
        for frame in rows:
            yield len(frame), frame.index.tolist()[:3], frame["n"].sum(), list(frame.columns)


class PandasIgnores(TellingInPandas):
    """Reads none of its rows."""

    def init(self, handle: Any) -> None:
        self.calls = handle.getValueState("calls", "n bigint")

    def tell(self, key: Any, rows: Iterator[pd.DataFrame]) -> Iterator[Any]:
        calls = (self.calls.get() or (0,))[0] + 1
        self.calls.update((calls,))
        yield calls


class PandasOutputs(StatefulProcessor):
    """DataFrames of all dtypes: nulls in all forms, columns that nobody knows, none at all."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        for frame in rows:
            n = frame["n"]
            yield pd.DataFrame()
            yield self.all_of(key, n, items=[[int(i), None] for i in n], flag=n % 2 == 0, x=n / 4)
            yield self.all_of(
                key, n, items=[np.array([int(i)]) for i in n], x=np.float32(0.1), nobody="knows"
            )
            yield self.all_of(key, n, n=n.astype("Int64").where(n % 2 == 0), x=n.where(n % 2 == 0))
            yield self.all_of(key, n, n=n.astype("float64"), word=pd.Categorical(["a"] * len(n)))
            at = pd.Timestamp("2024-02-29 01:02:03")
            yield self.all_of(key, n, at=at, there=at, day=at.date())
            yield self.all_of(key, n, at=at.tz_localize("Europe/Berlin"), there=pd.NaT, day=None)
            yield self.all_of(key, n, at=datetime.datetime(2024, 1, 1), there=None)  # noqa: DTZ001
            yield self.all_of(key, n, price=decimal.Decimal("2.50"), raw=b"\x00\xff", word=pd.NA)
            yield self.all_of(key, n, word=pd.array(["a"] * len(n), dtype="string"), flag=pd.NA)
            pair = [{"a": int(i), "b": None} for i in n]
            yield self.all_of(key, n, pair=pair, by=[{"a": 1.5, "b": None}] * len(n))
            yield self.all_of(key, n, pair=[(1, "x")] * len(n), pairs=[[{"a": 1, "b": "y"}]] * len(n))
            nan = float("nan")
            yield self.all_of(key, n, by=[{"a": nan}] * len(n), pairs=[[None, (None, "x")]] * len(n))
            yield self.all_of(key, n, n=n.map(str), x="1.5", flag=n.mod(2), price=None)
            yield self.all_of(key, n, n=n % 2 == 0, x=n % 2 == 0)
            yield self.all_of(key, n, at=pd.Timestamp("1960-01-01 00:00:00.123456789").floor("ms"))
            yield self.all_of(key, n, x=float("inf")).head(1)
            yield self.all_of(key, n).head(0)

    def all_of(self, key: Any, numbers: Any, **given: Any) -> pd.DataFrame:
        columns = dict.fromkeys(
            ["n", "x", "word", "flag", "at", "there", "day", "price", "raw", "items", "pair", "pairs", "by"]
        )
        return pd.DataFrame({"key": [key[0]] * len(numbers), **columns, **given})


class PandasKeysSeen(StatefulProcessor):
    """How keys of all types come, and that equal ones share a state."""

    def init(self, handle: Any) -> None:
        self.calls = handle.getValueState("calls", "rows bigint")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        count = (self.calls.get() or (0,))[0] + sum(len(frame) for frame in rows)
        self.calls.update((count,))
        yield pd.DataFrame({"text": [repr(key)], "rows": [count]})


class PandasTypesSeen(StatefulProcessor):
    """How columns of all types come."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        for frame in rows:
            for name in frame.columns[1:]:
                values = [(type(value).__name__, repr(value)) for value in frame[name]]
                yield pd.DataFrame({"text": [f"{name}: {frame[name].dtype} {values}"], "rows": [len(frame)]})
