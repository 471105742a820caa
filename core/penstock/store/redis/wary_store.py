"""A topology's part of a store as those see it who look after many topologies: agents and the operator.

The topology's own workers may write anything there (their user's rights end at its prefix, not at forms),
and user code runs in them. So whatever cannot be read, is refused by the server, or is larger than anybody
reads at once is `UnreadableState` here: an error that is about this topology alone. A topology's own tasks
use `redis.store` itself, where the same is a bug.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from penstock.store.port import Bounds, NodeStore, Request, UnreadableState
from penstock.store.redis.connection import Password, ServerError
from penstock.store.redis.store import RedisStore

A = TypeVar("A")

REPLY_BYTES_MAX = 16 << 20
"""Of calls that are sent together. A thousand shards with all of their metric rows take a few MiB; an agent
has 256 MiB, and what it parses takes several times what came."""
_SAID_MAX = 300

_UNREADABLE = (
    ServerError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, struct.error,
)  # fmt: skip
"""What decoders of replies raise on what no function of Penstock's wrote."""


class WaryStore:
    """Keeps the port `NodeStore` over a store in Redis."""

    def __init__(
        self,
        url: str,
        topology_uid: str,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        *,
        password: Password | None = None,
        reply_bytes_max: int = REPLY_BYTES_MAX,
    ) -> None:
        self._uid = topology_uid
        self._store: NodeStore = RedisStore(
            url, topology_uid, bounds, password=password, reply_bytes_max=reply_bytes_max
        )

    def call(self, call: Request[A]) -> A:
        """As any store's; raises UnreadableState too."""
        with self._told():
            return self._store.call(call)

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        """As any store's; raises UnreadableState too, once all calls were carried out."""
        with self._told():
            return self._store.pipeline(calls)

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        """As any store's; raises UnreadableState too."""
        with self._told():
            answers = self._store.post(calls)

        def hear() -> list[Any]:
            with self._told():
                return answers()

        return hear

    def close(self) -> None:
        self._store.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE as error:
            raise self._fault(f"{type(error).__name__}: {error}") from error
        except UnreadableState as error:
            raise self._fault(str(error)) from error

    def _fault(self, why: str) -> UnreadableState:
        return UnreadableState(
            f"what the store has of topology {self._uid} cannot be read: its own workers may have written"
            f" over it; only a start anew of that topology mends it ({why[:_SAID_MAX]})"
        )
