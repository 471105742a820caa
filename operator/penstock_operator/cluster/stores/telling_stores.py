"""Tells stores who the users of topologies' workers are: the one thing that the operator writes into a store.

A worker logs in before there is a Schedule of its topology, so the agents cannot know of it from those. A
store that does not answer is told at the next look; its workers wait as long. Neighbours:
`redis.worker_users` has what is written, `turns.passwords_turn` calls, the agents make users of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

from penstock.errors import PenstockError, PermanentError
from penstock.store.port import StoreUnreachable
from penstock.store.redis.worker_users import (
    Hashes,
    PackedUsers,
    read_worker_users,
    tell_worker_users,
)
from penstock_operator.cluster.kubernetes_api.lease import TermBehind
from penstock_operator.cluster.observing.asked_store import OpenWire, Wire, asked_within


@dataclass(frozen=True, slots=True)
class _Users:
    """Who all stores are to know, packed already; with `others` each keeps besides whom it knows."""

    known: Hashes
    packed: PackedUsers
    others: Callable[[Iterable[str]], Hashes] | None

    def for_store(self, wire: Wire) -> PackedUsers:
        if self.others is None:
            return self.packed
        return PackedUsers.of({**self.others(_known_to(wire) - self.known.keys()), **self.known})


@dataclass(frozen=True, slots=True)
class StoreTelling:
    """Belongs to one event loop. `wait_s`: longer nobody waits for a store; what was sent may still
    arrive."""

    open_wire: OpenWire
    threads: Executor
    wait_s: float = 1.5
    _idle: dict[str, Wire] = field(default_factory=dict, init=False)
    """Address -> a connection that nobody uses now. All stores are asked every few seconds, and to connect
    costs the operator and the store more than to ask."""

    async def __call__(
        self,
        addresses: Sequence[str],
        users: Hashes,
        term: int,
        others: Callable[[Iterable[str]], Hashes] | None = None,
    ) -> dict[str, str]:
        """Have each store know these users and no others; with `others` it keeps who else it knows, by the
        passwords that this answers for their uids. Answers address -> why not, of those that were not told.
        Raises TermBehind where one was told by a later leader than `term`'s."""
        for gone in self._idle.keys() - set(addresses):
            self._idle.pop(gone).close()
        who = _Users(users, PackedUsers.of(users), others)
        answers = await asyncio.gather(*(self._tell(one, who, term) for one in addresses))
        latest = max((seen for seen in answers if isinstance(seen, int)), default=0)
        if latest > term:
            raise TermBehind(f"a store has seen term {latest}, a later one than {term}", latest)
        return {
            address: answer
            for address, answer in zip(addresses, answers, strict=True)
            if isinstance(answer, str)
        }

    async def _tell(self, address: str, users: _Users, term: int) -> int | str:
        wire, is_kept = self._idle.pop(address, None), True
        if wire is None:
            wire, is_kept = self.open_wire(address), False
        tell = partial(_tell, wire, users, term, is_kept=is_kept)
        try:
            answer = await asked_within(self.wait_s, self.threads, tell)
        except (PenstockError, TimeoutError) as error:
            return str(error) or "it takes too long"
        self._idle[address] = wire
        return answer


def _tell(wire: Wire, users: _Users, term: int, *, is_kept: bool) -> int:
    """`is_kept`: the server may have ended the connection since it was used last."""
    try:
        return tell_worker_users(wire, users.for_store(wire), term)
    except StoreUnreachable:
        wire.close()
        if not is_kept:
            raise
        return _tell(wire, users, term, is_kept=False)
    except BaseException:
        wire.close()
        raise


def _known_to(wire: Wire) -> set[str]:
    try:
        return set(read_worker_users(wire))
    except PermanentError:
        return set()  # what is of no known form names nobody
