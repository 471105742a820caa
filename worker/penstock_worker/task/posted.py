"""What a task has sent to its store and not yet settled: commits, and their answers when they come.

`loop` posts a few commits at a time and works on meanwhile; a post is settled soon after, in the order in
which posts were sent. Neighbour: `store.port.NodeStore.post`, whose callable waits for the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.store.ownership import OwnedShard
from penstock.store.port import Fetch
from penstock_worker.stages.work import Work


class Posted:
    """Commits on their way, behind `told` other calls and before a fetch, if there is one."""

    __slots__ = ("_answers", "_told", "done", "fetch", "sent_us")

    def __init__(
        self,
        done: list[tuple[OwnedShard, Work]],
        told: int,
        answers: Callable[[], list[Any]],
        *,
        fetch: Fetch | None,
        sent_us: int,
    ) -> None:
        self.sent_us = sent_us
        self.done = done
        self.fetch = fetch
        self._told = told
        self._answers = answers

    def answers(self) -> list[Any]:
        """Wait for the answers to the commits, and to the fetch behind them."""
        return self._answers()[self._told :]
