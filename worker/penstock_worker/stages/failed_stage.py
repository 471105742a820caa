"""The work of a stage whose code cannot be used: nothing but the report of that, from the first shard on.

A task that could only end would be started again and again, and its worker would fail in the end with the
last line of a Java stack. So it comes up, claims, and reports its operator's failure as any other.
Neighbours: `task` makes it, `task.loop` reports what it raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from penstock.store.ownership import OwnedShard
from penstock.store.port import FetchedShard, Load
from penstock_worker.stages.work import Rest, Work, WorkFailed


class FailedStage:
    """`message` is for people: what is wrong with the code."""

    def __init__(self, message: str) -> None:
        self._message = message

    def adopt(self, owned: OwnedShard) -> NoReturn:
        raise WorkFailed(self._message)

    def release(self, shard: str) -> None:
        """Nothing is kept."""

    def wanted(self, owned: OwnedShard, fetched: FetchedShard) -> Load | None:
        return None

    def loaded(self, owned: OwnedShard, load: Load, answer: object) -> None:
        raise AssertionError("nothing was to be loaded")

    def work(self, owned: OwnedShard, fetched: FetchedShard) -> Work | Rest:
        raise WorkFailed(self._message)

    def grew(self, owned: OwnedShard) -> bool:
        return False

    def due(self, now_us: int) -> tuple[Sequence[str], int | None]:
        return (), None

    def settled(self, owned: OwnedShard, work: Work) -> None:
        raise AssertionError("nothing was committed")

    def close(self) -> None:
        """Nothing is open."""
