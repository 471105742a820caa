"""The port of a sink: what a task writes a shard's committed outputs through.

What is to be written is committed, and its place is fixed: right behind what the position covers. A writer
may be asked for the same entries again, by this owner of the shard or by the next one, and late by an earlier
one: the outcome is that of writing them once, as far as the sink can. What is written, and in mode Disk
durable, is acknowledged to the store with its last number and the position (`sinks.delivery`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """For whom a sink is written: the topology called `topology`, whose state is `uid`.

    `base_dir` is where relative paths begin. `durable` (mode Disk): what `sync` has brought out survives a
    loss of power. `task` names this start of the task, and no other one of any topology.
    `at_work` is entered, with the shard, around calls of user code, whose crash is told so.
    """

    base_dir: Path
    uid: str
    topology: str
    durable: bool
    task: str = ""
    at_work: Callable[[str], AbstractContextManager[object]] = nullcontext


class SinkWriter(Protocol):
    """Writes one sink, for all shards that feed it in this task. Every method raises PermanentError."""

    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        """Write (pair number, payload) entries of a shard, which follow each other, from `position` on (b""
        is the beginning). Answers the position behind them."""

    def check(self, shard: str, position: bytes) -> None:
        """See that the sink still holds what was written of a shard, up to `position`, and no more. For a
        shard whose committed rows are all written."""

    def sync(self, shard: str) -> None:
        """Make durable what was written of a shard; safe beside `write`, from another thread."""

    def close(self) -> None: ...
