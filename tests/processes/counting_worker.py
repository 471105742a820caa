"""A worker for tests that counts rows: all its shards in one thread, or in a process of its own.

`src` reads numbered rows of a few keys, `mid` counts them by key and passes each on, `end` counts again. A
row that is lost, doubled or out of order shows at once (`faults`), or in the counts at the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import overload

import msgspec

from penstock.errors import PenstockError
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import (
    Answer,
    Assignment,
    Claim,
    Claimed,
    Commit,
    Enroll,
    Fetch,
    FetchedShard,
    Load,
    Measure,
    Output,
    Owner,
    StateWrite,
    WaitReady,
)
from penstock.store.redis.store import RedisStore

UID = "state-1"

Row = tuple[str, str, int]
"""Source shard, key, number of the row in its source."""


def row_of(source: str, number: int) -> Row:
    """Rows are numbered from 1 on, and of twelve keys."""
    return source, str(number * 7 % 12), number


class EndlessRows(Sequence[Row]):
    """A source that never ends."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __len__(self) -> int:
        return 1 << 40

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, int):
            return row_of(self._source, at + 1)
        return [row_of(self._source, n + 1) for n in range(*at.indices(len(self)))]


class CountingWorker:
    """All tasks of one worker in one thread: it claims what is assigned, and works."""

    def __init__(
        self,
        name: str,
        store_url: str,
        rows: Mapping[str, Sequence[Row]],
        targets: Mapping[str, Sequence[str]],
        attempt: int = 0,
    ) -> None:
        self.name = name
        self.uid = f"uid-{name}"
        self.faults: list[str] = []
        """Rows that came when another was due."""
        self.losses: list[str] = []
        """Commits that were refused, and how: a shard is another owner's, or may be."""
        self.before_commit: Callable[[Commit], None] = lambda _: None
        self.step_s = 0.0
        self.part = 1.0
        """How much of each source is let through."""
        self._attempt = attempt
        self._store = RedisStore(store_url, UID)
        self._rows = rows
        self._targets = targets
        self._owned: dict[str, OwnedShard] = {}
        self._look_at_s = 0.0
        self._version = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(10)
        self._store.close()

    def run(self) -> None:
        """Until stopped."""
        while not self._stopped.is_set():
            try:
                self._step()
            except PenstockError:
                self._owned.clear()
                self._look_at_s = 0.0
                self._stopped.wait(0.02)

    def _step(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + 0.05
            self._look()
        if not self._store.call(WaitReady(self.name, 20)):
            return
        for one in self._store.call(Fetch(self.name, 64 << 10, 16)).shards:
            owned = self._owned.get(one.shard)
            if owned is None or owned.epoch != one.epoch:
                continue
            try:
                self._work(owned, one)
            except OwnershipLost as lost:
                self.losses.append(str(lost))
                self._owned.pop(one.shard, None)
        if self.step_s:
            self._stopped.wait(self.step_s)

    def _look(self) -> None:
        """Claim what the maps assign, and claim again what is stranded."""
        if self._store.call(Enroll(self.name, self.uid, 1, self._attempt)) is not Answer.OK:
            return
        seen = self._store.call(Assignment(self.name))
        assigned = {
            shard: (executor.executor, executor.version)
            for executor in seen.executors
            for shard in executor.shards
        }
        for shard in self._owned.keys() - assigned.keys():
            del self._owned[shard]
        held = tuple(self._owned)
        for shard, counters in zip(held, self._store.call(Measure(held)), strict=True):
            owned = self._owned[shard]
            if counters is None or (counters.epoch, counters.generation) != (owned.epoch, owned.generation):
                del self._owned[shard]
        for shard, (executor, version) in assigned.items():
            if shard not in self._owned:
                owner = Owner(executor, f"{self.uid}/1/{self._attempt}", self.name)
                claimed = self._store.call(Claim(shard, owner, version))
                if isinstance(claimed, Claimed):
                    self._owned[shard] = OwnedShard(shard, claimed)

    def _work(self, owned: OwnedShard, one: FetchedShard) -> None:
        operator = one.shard.split("/")[0]
        if operator == "src":
            rows = self._rows[one.shard]
            start = int(owned.position or b"0")
            batch = rows[start : min(start + 5, int(self.part * len(rows)))]
            end = start + len(batch)
            commit = owned.commit(
                time.time_ns() // 1000,
                position=b"%d" % end,
                finished=end == len(rows),
                again=True,
                state=(StateWrite(b"", b"read", b"%d" % end),),
                outputs=self._outputs("mid", batch),
            )
        else:
            batch = [
                row for entry in one.entries for row in msgspec.msgpack.decode(entry.payload, type=list[Row])
            ]
            commit = owned.commit(
                time.time_ns() // 1000,
                entries=one.entries,
                rows=len(batch),
                state=self._counted(owned, batch),
                outputs=self._outputs("end", batch) if operator == "mid" else (),
            )
        self.before_commit(commit)
        owned.settle(commit, self._store.call(commit))

    def _outputs(self, operator: str, rows: Sequence[Row]) -> tuple[Output, ...]:
        by_target: dict[str, list[Row]] = {}
        targets = self._targets[operator]
        for row in rows:
            by_target.setdefault(targets[int(row[1]) % len(targets)], []).append(row)
        return tuple(
            Output(target, msgspec.msgpack.encode(sent), len(sent)) for target, sent in by_target.items()
        )

    def _counted(self, owned: OwnedShard, rows: Sequence[Row]) -> tuple[StateWrite, ...]:
        names = list(dict.fromkeys(f"{kind} {name}" for row in rows for kind, name in _fields(row)))
        fields = tuple(name.encode() for name in names)
        load = Load(owned.shard, owned.generation, owned.epoch, b"", fields)
        values = self._store.call(load)
        if isinstance(values, Answer):
            raise OwnershipLost(owned.shard, values)
        state = {name: int(value or b"0") for name, value in zip(names, values, strict=True)}
        for row in rows:
            source, key, number = row
            if number <= state[f"last {source}:{key}"]:
                self.faults.append(f"{owned.shard}: row {row} after {state[f'last {source}:{key}']}")
            state[f"last {source}:{key}"] = number
            state[f"count {key}"] += 1
        return tuple(StateWrite(b"", name.encode(), b"%d" % value) for name, value in state.items())


def _fields(row: Row) -> tuple[tuple[str, str], tuple[str, str]]:
    source, key, _ = row
    return ("last", f"{source}:{key}"), ("count", key)
