"""A step and a processor of a user's, behind the sources of `users_sources`: numbers get one of seven words,
and each word is counted. Called as a module beside a manifest, as a user's is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


def named(row: Row) -> list[tuple[str, int]]:
    return [(f"w{row.number % 7}", row.number)]


class Count(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("state", "n bigint")

    def handleInputRows(  # noqa: N802 - the signature is pyspark's
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        n = self.state.get()[0] if self.state.exists() else 0
        for _ in rows:
            n += 1
            yield Row(word=key[0], n=n)
        self.state.update((n,))

    def close(self) -> None:
        """Nothing is held open."""
