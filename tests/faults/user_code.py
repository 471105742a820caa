"""The user code of every drawn topology; `topology` copies it beside the manifest. Plain PySpark.

A row says where it comes from (`via`, and `step` there: the row's place among those of its `via`), so that
whoever reads the sinks sees by the rows alone what was lost, doubled or brought out of order. Kept in state
by key: a count (value), the last few rows (list), the last step of each `via` (map).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

KEYS = 16
GROUPS = 8
RECENT = 5


def parse(line: Row) -> Iterator[Row]:
    """ "SOURCE PARTITION NUMBER FACTOR" -> FACTOR rows."""
    source, partition, number, factor = line.value.split(" ")
    for copy in range(int(factor)):
        yield Row(
            via=f"{source}.{partition}",
            step=int(number) * int(factor) + copy,
            key=f"k{(int(number) * 7 + int(partition) * 5 + copy) % KEYS}",
            grp=f"g{(int(number) * 3 + int(partition)) % GROUPS}",
            line=f"{source}.{partition}.{number}.{copy}",
            trail=source,
            before="",
            recent=0,
            late=False,
        )


def stamp(row: Row) -> list[Row]:
    """A step behind a keyed stage: the same row, one step further."""
    return [Row(**{**row.asDict(), "trail": f"{row.trail}+"})]


class Follow(StatefulProcessor):
    """Each row goes on as number so and so of its key. `late`: its `via` had been further already."""

    NAME = ""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")
        self._recent = handle.getListState("recent", "hash long")
        self._last = handle.getMapState("last", "via string", "step long")

    def handleInputRows(  # noqa: N802 - the signature is pyspark's
        self,
        key: tuple[str, ...],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        count = self._count.get()[0] if self._count.exists() else 0
        for row in rows:
            count += 1
            self._recent.appendValue((zlib.crc32(row.line.encode()),))
            recent = list(self._recent.get())
            if len(recent) > RECENT:
                recent = recent[-RECENT:]
                self._recent.put(recent)
            late = self._last.containsKey((row.via,)) and self._last.getValue((row.via,))[0] >= row.step
            self._last.updateValue((row.via,), (row.step,))
            yield Row(
                via=f"{self.NAME}:{'/'.join(key)}",
                step=count,
                key=row.key,
                grp=row.grp,
                line=row.line,
                trail=f"{row.trail}>{self.NAME}",
                before=f"{row.via}#{row.step}",
                recent=sum(hashed for (hashed,) in recent),
                late=late,
            )
        self._count.update((count,))

    def close(self) -> None:
        """Nothing is held open."""


class A(Follow):
    NAME = "a"


class B(Follow):
    NAME = "b"


class C(Follow):
    NAME = "c"
