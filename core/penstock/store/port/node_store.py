"""The store itself: what an adapter has to be. `redis.store` and `memory.store` are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from penstock.store.port.request import Request

A = TypeVar("A")


class NodeStore(Protocol):
    """One topology's view of one node's store. Not thread safe; one instance per thread."""

    def call(self, call: Request[A]) -> A:
        """Carry out one call. Raises StoreUnreachable, StoreFull, ProtocolMismatch."""

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        """Carry out calls in order in one round trip; each is atomic, the whole is not.

        Must not hold WaitReady, WaitControl or WaitOutgoing.
        """

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        """Send calls as `pipeline` does, and go on; the callable waits for their answers.

        So work goes on here while the store works there. Other calls may come in between; errors come from
        either of the two.
        """

    def close(self) -> None: ...
