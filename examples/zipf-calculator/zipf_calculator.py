"""The calculator of Elasticutor's micro-benchmark: works as long as each record asks, and counts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

DIGEST_BYTES = 1024


class Calculator(StatefulProcessor):
    """Rows (key, payload, service_time_us, number) in; (key, records of this key so far) out."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(  # the signature is pyspark's
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        records = 0
        for row in rows:
            work(row.service_time_us, row.payload.encode())
            records += 1
        before = self._total.get()
        total = records + (before[0] if before else 0)
        self._total.update((total,))
        yield Row(key=key[0], total=total)

    def close(self) -> None:
        pass


def work(service_time_us: int, payload: bytes) -> bytes:
    """Compute for so many microseconds of CPU time: what others take from this core does not count."""
    until_ns = time.thread_time_ns() + service_time_us * 1000
    digest = payload
    while time.thread_time_ns() < until_ns:
        digest = hashlib.sha256(digest * (DIGEST_BYTES // max(1, len(digest)))).digest()
    return digest
