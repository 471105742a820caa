"""The form of a processor is found out from its hints and its source, and never guessed."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from penstock_worker.user_code.form_signs import FormUnclear, form_of

HEAD = """
from collections.abc import Iterator
import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

class Made(StatefulProcessor):
    def init(self, handle): pass
"""


def form(tmp_path: Path, source: str, said: str = "") -> str:
    """What a class with this `handleInputRows` is taken for."""
    path = tmp_path / "form_code.py"
    path.write_text(HEAD + "\n".join(f"    {line}" for line in source.splitlines()))
    module = types.ModuleType("form_code")
    sys.modules["form_code"] = module
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    return form_of(module.Made, said)


PANDAS, ROWS = "Pandas", "Rows"
FRAMES, TABLE = "Iterator[pd.DataFrame]", "table = pd.DataFrame(list(rows))"


def method(*body: str, rows: str = "", returns: str = "") -> str:
    """`handleInputRows` with these hints, where they are not empty."""
    hint, arrow = rows and f": {rows}", returns and f" -> {returns}"
    return "\n    ".join([f"def handleInputRows(self, key, rows{hint}, times){arrow}:", *body])


@pytest.mark.parametrize(
    ("expected", "source"),
    [
        (PANDAS, method("return self.made_of(rows)", returns=FRAMES)),
        (PANDAS, method("yield self.made_of(rows)", rows=FRAMES)),
        (PANDAS, method("yield 5", rows="'Iterator[PandasDataFrameLike]'")),
        (PANDAS, method("yield pd.DataFrame({'a': [1]})")),
        (PANDAS, method("out = pd.DataFrame({'a': [1]})", "yield out")),
        (PANDAS, method("return iter([pd.DataFrame({'a': [1]})])")),
        (PANDAS, method("for f in rows:", "    self.put(f.shape)", "return iter([])")),
        (PANDAS, method("return self.made_of(pd.concat(rows))")),
        (ROWS, method(TABLE, "return self.made_of(table)", returns="Iterator[Row]")),
        (ROWS, method(TABLE, "yield from self.made_of(table)", rows="Iterator[Row]")),
        (ROWS, method(TABLE, "yield Row(n=len(table))")),
        (ROWS, method("yield key[0], 5")),
        (ROWS, method("yield from self.made_of(rows)")),
        (ROWS, method("yield from ()")),
        (ROWS, method("for row in rows:", "    yield Row(n=row.shape)")),
        (ROWS, "handleInputRows = len"),
        (ROWS, "handleInputRows = lambda self, key, rows, times: iter([Row(n=1)])"),
    ],
)
def test_hints_and_source_say_the_form(tmp_path: Path, expected: str, source: str) -> None:
    assert form(tmp_path, source) == expected


UNCLEAR = [
    method("yield Row(n=1)", "yield pd.DataFrame()"),
    method("yield 5", rows=FRAMES, returns="Iterator[Row]"),
    method("return self.made_of(pd.Series([1]), rows)"),
]


@pytest.mark.parametrize("source", UNCLEAR)
def test_what_is_unclear_is_refused_and_may_be_said(tmp_path: Path, source: str) -> None:
    with pytest.raises(FormUnclear, match=r"`form: Rows` .* or `form: Pandas`"):
        form(tmp_path, source)
    assert form(tmp_path, source, PANDAS) == PANDAS
    assert form(tmp_path, source, ROWS) == ROWS
