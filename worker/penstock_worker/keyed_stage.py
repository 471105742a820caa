"""A keyed stage's work: entries -> groups by key -> the user's processor -> one commit.

Rows of one key are handed over together and in the order of the inbox. Outputs are as old as the
oldest row of the group they came from, so that latency is never flattered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from penstock.dataflow.plan import Processor
from penstock.store.codec import decode_batch
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Entry, FetchedShard, Load
from penstock_worker.clock import Clock
from penstock_worker.stage_work import Rest, Work, WorkFailed
from penstock_worker.state.cache import ShardState, StateCache, StateTooLarge
from penstock_worker.steps import FanoutRunner, OutputBatch, OutputRefused
from penstock_worker.user_code import ProcessorRunner, UserCodeError

Key = tuple[Any, ...]


class Group:
    """Rows of one key in one batch, oldest source timestamp beside them."""

    __slots__ = ("oldest_us", "rows")

    def __init__(self, oldest_us: int) -> None:
        self.oldest_us = oldest_us
        self.rows: list[Any] = []


def key_getter(columns: Sequence[int], types: Sequence[str]) -> Callable[[Any], Key]:
    """Row -> key tuple. NaN becomes one object, so that NaN keys group together as in Spark."""
    if any(types[column] in ("double", "float") for column in columns):

        def floats(row: Any) -> Key:
            values = (row[column] for column in columns)
            return tuple(math.nan if value != value else value for value in values)

        return floats
    if len(columns) == 1:
        column = columns[0]
        return lambda row: (row[column],)
    return itemgetter(*columns)


class Grouped:
    """A batch: groups by key in order of first appearance, and all its source timestamps.

    `rows_placed_us` is the sum over rows of when they were placed in the inbox.
    """

    __slots__ = ("groups", "rows_placed_us", "timestamps_us")

    def __init__(self, groups: dict[Key, Group], timestamps_us: list[int], rows_placed_us: int) -> None:
        self.groups = groups
        self.timestamps_us = timestamps_us
        self.rows_placed_us = rows_placed_us


class KeyedStage:
    """`runner` holds the user's processor; `cache` the state of the shards that the task owns."""

    def __init__(
        self,
        operator: str,
        head: Processor,
        runner: ProcessorRunner,
        cache: StateCache,
        fanout: FanoutRunner,
        bounds: Bounds,
        clock: Clock,
    ) -> None:
        self._operator = operator
        self._runner = runner
        self._cache = cache
        self._fanout = fanout
        self._bounds = bounds
        self._clock = clock
        self._key_of = key_getter(head.key_columns, [column.type for column in head.input.columns])
        self._states: dict[str, ShardState] = {}
        self._grouped: dict[str, Grouped] = {}

    def adopt(self, owned: OwnedShard) -> None:
        self._states[owned.shard] = self._cache.shard(owned)

    def release(self, shard: str) -> None:
        self._states.pop(shard, None)
        self._grouped.pop(shard, None)
        self._cache.drop(shard)

    def wanted(self, owned: OwnedShard, fetched: FetchedShard) -> Load | None:
        grouped = self._grouped[owned.shard] = self._group(fetched.entries)
        return self._states[owned.shard].missing(grouped.groups)

    def _group(self, entries: Sequence[Entry]) -> Grouped:
        groups: dict[Key, Group] = {}
        timestamps: list[int] = []
        rows_placed_us = 0
        key_of = self._key_of
        for entry in entries:
            batch = decode_batch(entry.payload)
            rows_placed_us += entry.placed_us * len(batch.rows)
            base_us = batch.base_us
            for delta_us, row in zip(batch.deltas_us, batch.rows, strict=True):
                timestamp_us = base_us + delta_us
                timestamps.append(timestamp_us)
                key = key_of(row)
                group = groups.get(key)
                if group is None:
                    group = groups[key] = Group(timestamp_us)
                elif timestamp_us < group.oldest_us:
                    group.oldest_us = timestamp_us
                group.rows.append(row)
        return Grouped(groups, timestamps, rows_placed_us)

    def loaded(self, owned: OwnedShard, load: Load, answer: object) -> None:
        self._states[owned.shard].loaded(load, answer)

    def work(self, owned: OwnedShard, fetched: FetchedShard) -> Work | Rest:
        grouped = self._grouped.pop(owned.shard)
        entries = fetched.entries
        while True:
            try:
                return self._work(owned, entries, grouped)
            except (OutputRefused, StateTooLarge) as refused:
                self._states[owned.shard].rollback()
                if len(entries) < 2:
                    raise WorkFailed(f"operator {self._operator}: {refused}") from refused
                # The rest stays in the inbox: a commit with fewer entries puts out and changes less.
                entries = entries[: len(entries) // 2]
                grouped = self._group(entries)
            except UserCodeError as error:
                self._states[owned.shard].rollback()
                raise WorkFailed(str(error)) from error

    def _work(self, owned: OwnedShard, entries: Sequence[Entry], grouped: Grouped) -> Work:
        began_us = self._clock.monotonic_us()
        now_us = self._clock.now_us()
        state = self._states[owned.shard]
        out_rows: list[Any] = []
        out_stamps: list[int] = []
        run = self._runner.run
        for key, group in grouped.groups.items():
            produced = run(state, key, group.rows, now_us // 1000)
            if produced:
                out_rows.extend(produced)
                out_stamps.extend([group.oldest_us] * len(produced))
        outputs = OutputBatch(self._bounds)
        rows_out = self._fanout.feed(out_rows, out_stamps, outputs)
        # Drained first: what it refuses can still be rolled back.
        drained = outputs.drain()
        commit = owned.commit(
            now_us,
            entries=entries,
            rows=len(grouped.timestamps_us),
            in_hand=bool(entries),
            state=state.take_writes(),
            outputs=drained,
        )
        rows_out[self._operator] = len(out_rows)
        waited_us = max(0, now_us * len(grouped.timestamps_us) - grouped.rows_placed_us)
        return Work(commit, grouped.timestamps_us, rows_out, self._clock.monotonic_us() - began_us, waited_us)

    def settled(self, owned: OwnedShard, work: Work) -> None:
        """The writes are durable: the cache may let clean keys go now."""
        self._states[owned.shard].committed()

    def close(self) -> None:
        self._runner.close()
