"""A generator of records with zipf-distributed keys: the workload of Elasticutor, section 5.

Columns: `key bigint, payload string, service_time_us bigint, number bigint`, and where one is asked for, a
timestamp: when the row was due. `number` counts over all partitions: partition p of n has p, p + n, p + 2n
and so on. But for that time a row is a function of (seed, partition, index) alone, so a position is an
index. Keys are ranked by their number at first; each shuffle permutes the ranks, at the same record in all
partitions. Service times follow the paper's normal distribution with mean m and variance m / 2 (in
milliseconds), cut at 0 and at 2 m so that the mean stays.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.partitions import part_of
from penstock.dataflow.rate_trace import RateTrace
from penstock.errors import PermanentError
from penstock.store.stamps import Stamps
from penstock_worker.sources.pace import AnyPace, pace_of, rate_of
from penstock_worker.sources.reader import SourceBatch
from penstock_worker.values.rows import WireRow

if TYPE_CHECKING:
    from penstock_worker.sources.zipf_columns import ZipfColumns

BLOCK_ROWS = 4096
_SHUFFLES_KEPT = 2
_ROW_BYTES = 24
"""About what a row takes besides its payload."""
_ROWS_STREAM, _SHUFFLES_STREAM = 0, 1
"""What random numbers are drawn for; keeps the two kinds apart under one seed."""

Row = tuple[Any, ...]


@dataclass(slots=True)
class _Block:
    """Keys, service times and numbers of some rows; these rows, once they were asked for."""

    keys: NDArray[np.int64]
    times_us: NDArray[np.int64]
    numbers: NDArray[np.int64]
    made: list[Row] | None = None

    def rows(self, payload: str) -> list[Row]:
        if self.made is None:
            columns = self.keys.tolist(), repeat(payload), self.times_us.tolist(), self.numbers.tolist()
            self.made = list(zip(*columns))  # noqa: B905 - the payload has no end
        return self.made


@dataclass(slots=True)
class _Partition:
    """One open shard. `block` is a cache: the `block_number`-th 4096 rows."""

    number: int
    pace: AnyPace | None
    block_number: int = -1
    block: _Block | None = None


class ZipfReader:
    """Generates the partitions of one source. `base_dir` is where a relative rate trace begins.

    Raises PermanentError for shuffles without a rate, and for a trace that cannot be read.
    """

    def __init__(self, operator: str, source: ZipfSource, base_dir: Path = Path()) -> None:
        self._rate = rate_of(operator, source, base_dir)
        if source.shuffles_per_minute > 0 and self._rate is None:
            raise PermanentError(
                f"source {operator}: shufflesPerMinute counts minutes of the stream, which has none without "
                "a rate; give ratePerSecond or rateTrace"
            )
        self._source = source
        self._partitions: dict[str, _Partition] = {}
        self._ranks = _cumulative(source.keys, source.exponent)
        self._shuffles: OrderedDict[int, NDArray[np.int64]] = OrderedDict()
        self._payload = _payload(source.record_bytes)
        self._columns: ZipfColumns | None = None
        self._columns_from: Callable[[], int] = int

    def give_columns(self, rows_min: Callable[[], int]) -> bool:
        from penstock_worker.sources.zipf_columns import ZipfColumns

        self._columns_from = rows_min
        self._columns = ZipfColumns(self._source.schema, self._payload)
        return True

    @property
    def paced(self) -> bool:
        return self._rate is not None

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        number = int(part_of(shard))
        pace = None
        if self._rate is not None:
            pace = pace_of(self._rate, self._source.partitions, number, _index(position), now_us)
        self._partitions[shard] = _Partition(number, pace)

    def release(self, shard: str) -> None:
        self._partitions.pop(shard, None)

    def grew(self, shard: str, position: bytes) -> bool:
        """By a rate trace that was made longer."""
        return self._records(self._partitions[shard]) > _index(position)

    def close(self) -> None:
        self._partitions.clear()

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        partition = self._partitions[shard]
        pace = partition.pace
        index = _index(position)
        rows_max = min(rows_max, max(1, bytes_max // (self._source.record_bytes + _ROW_BYTES)))
        if pace is not None:
            rows_max = min(rows_max, pace.due_rows(index, now_us))
        left = max(0, self._records(partition) - index)  # below 0: a trace that was cut short since
        count = int(min(rows_max, left))
        finished = count == left
        after = index + count
        rows: Sequence[WireRow]
        due_us: Sequence[int]
        if self._columns is not None and count >= self._columns_from():
            if pace is None:
                stamps = Stamps.uniform(now_us, count)
            else:
                stamps = Stamps(pace.times_us(np.arange(index, after)))
            rows, due_us = self._columns.rows(self._spans(partition, index, count), stamps), stamps
        else:
            due_us = [now_us] * count if pace is None else pace.timestamps_us(index, count)
            rows = self._rows(partition, index, count)
            if self._source.time_column is not None:
                rows = [(*row, at_us) for row, at_us in zip(rows, due_us, strict=True)]
        return SourceBatch(
            rows=rows,
            timestamps_us=due_us,
            position=msgspec.msgpack.encode(after) if count else position,
            finished=finished,
            next_due_us=None if pace is None or finished else pace.due_us(after),
        )

    def _records(self, partition: _Partition) -> float:
        """How many rows a partition has; they differ by one at most."""
        most = partition.pace.rows if partition.pace is not None else math.inf
        if self._source.records is None:
            return most
        return min(most, -((partition.number - self._source.records) // self._source.partitions))

    def _spans(self, partition: _Partition, index: int, count: int) -> Iterator[tuple[_Block, int, int]]:
        """So many rows from `index` on: blocks, and from which to which of their rows."""
        end = index + count
        while index < end:
            number, begin = divmod(index, BLOCK_ROWS)
            if partition.block is None or partition.block_number != number:
                partition.block = self._block(partition.number, number)
                partition.block_number = number
            stop = min(BLOCK_ROWS, begin + end - index)
            yield partition.block, begin, stop
            index += stop - begin

    def _rows(self, partition: _Partition, index: int, count: int) -> list[Row]:
        rows: list[Row] = []
        for block, begin, stop in self._spans(partition, index, count):
            rows += block.rows(self._payload)[begin:stop]
        return rows

    def _block(self, partition: int, block: int) -> _Block:
        """The rows `block` * 4096 to the next 4096 of a partition."""
        random = np.random.default_rng((_ROWS_STREAM, self._source.seed, partition, block))
        ranks = np.searchsorted(self._ranks, random.random(BLOCK_ROWS), side="right")
        first = block * BLOCK_ROWS * self._source.partitions + partition
        numbers = first + self._source.partitions * np.arange(BLOCK_ROWS, dtype=np.int64)
        keys = self._keys(ranks, numbers)
        mean_ms = self._source.service_time_us / 1000
        times_ms = random.normal(mean_ms, math.sqrt(mean_ms / 2), BLOCK_ROWS).clip(0, 2 * mean_ms)
        times_us = np.rint(times_ms * 1000).astype(np.int64)
        return _Block(keys, times_us, numbers)

    def _keys(self, ranks: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ranks through the permutation that holds at each record."""
        if self._source.shuffles_per_minute == 0:
            return ranks
        shuffles = self._shuffles_before(numbers)
        keys = np.empty_like(ranks)
        for shuffle in np.unique(shuffles).tolist():
            now = shuffles == shuffle
            keys[now] = self._permutation(shuffle)[ranks[now]]
        return keys

    def _shuffles_before(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often the ranks were shuffled when each record is due, counted from the stream's beginning."""
        match self._rate:
            case None:
                return np.zeros_like(numbers)
            case RateTrace() as trace:
                due_us = trace.due_us(numbers.astype(np.float64))
                due_us[np.isinf(due_us)] = 0  # a block may hold records that are never due
                return (due_us // (60e6 / self._source.shuffles_per_minute)).astype(np.int64)
            case rate_per_s:
                records_per_shuffle = rate_per_s * 60 / self._source.shuffles_per_minute
                return (numbers // records_per_shuffle).astype(np.int64)

    def _permutation(self, shuffle: int) -> NDArray[np.int64]:
        """Key of each rank after so many shuffles."""
        if shuffle not in self._shuffles:
            random = np.random.default_rng((_SHUFFLES_STREAM, self._source.seed, shuffle))
            keys = np.arange(self._source.keys)
            self._shuffles[shuffle] = random.permutation(keys) if shuffle else keys
            if len(self._shuffles) > _SHUFFLES_KEPT:
                self._shuffles.popitem(last=False)
        return self._shuffles[shuffle]


def _index(position: bytes) -> int:
    return msgspec.msgpack.decode(position, type=int) if position else 0


def _cumulative(keys: int, exponent: float) -> NDArray[np.float64]:
    """P(rank <= k), k = 0, 1, ...; the last is 1, so that every draw finds a rank."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    cumulative: NDArray[np.float64] = np.cumsum(weights)
    cumulative /= cumulative[-1]
    return cumulative


def _payload(record_bytes: int) -> str:
    return (ascii_lowercase * (record_bytes // len(ascii_lowercase) + 1))[:record_bytes]
