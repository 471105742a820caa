"""A store in memory as one task sees it while others act: between any two of its calls, and after them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.store.memory.store import MemoryStore
from penstock.store.port import Request


class Died(BaseException):
    """A task, at this very place."""


class MeddledStore:
    """The store as a task's thread sees it: others act before and after each of its calls."""

    def __init__(self, store: MemoryStore, at: Callable[[str], None]) -> None:
        self._store = store
        self._at = at

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        answers = []
        for call in calls:
            self._at("before")
            answers.append(self._store.call(call))
        self._at("after")
        return answers

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        answers = self.pipeline(calls)
        return lambda: answers

    def close(self) -> None:
        """Nothing is open."""
