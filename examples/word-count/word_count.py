"""The user code of the word count: plain PySpark, nothing of Penstock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

WORD = re.compile(r"\w+")


def split(line: Row) -> list[str]:
    """The words of a line, in small letters; a word is a longest run of letters, digits and underscores."""
    return WORD.findall(line.value.lower())


class Count(StatefulProcessor):
    """Rows (word) in; (word, how often it came so far) out, once for each batch of the same word."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(  # the signature is pyspark's
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._total.get()
        total = (0 if before is None else before[0]) + sum(1 for _ in rows)
        self._total.update((total,))
        yield Row(word=key[0], total=total)

    def close(self) -> None:
        """Nothing is held open."""
