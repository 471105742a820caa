"""Lets the workers of each topology log in: their pods find a password, and the stores take it.

A pod mounts Secrets of its own namespace only, so there is one with the logins of workers in each namespace
that is served, with those of its own topologies and no others. The stores are told of all. What goes wrong in
a further namespace holds up no other, and while not all of one has been listed nobody there is taken for
gone. Neighbours: `passwords_turn` calls, `stores.workers_secret` has the Secret's form,
`stores.telling_stores` tells the stores.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PermanentError, RetryError
from penstock.store.redis.worker_users import Hashes
from penstock_operator.cluster.kubernetes_api.names import workers_secret_name
from penstock_operator.cluster.kubernetes_api.port import SECRETS, ClusterApi, ClusterUnreachable, Refusal
from penstock_operator.cluster.observing.workers_seen import WorkersSeen, is_anothers
from penstock_operator.cluster.stores.store_passwords import StorePasswords
from penstock_operator.cluster.stores.worker_passwords import worker_hashes
from penstock_operator.cluster.stores.workers_secret import (
    replaces_any,
    with_texts,
    workers_secret,
    workers_texts,
)

_LOG = logging.getLogger(__name__)

_AGAIN_S = 15.0
"""After it went wrong in a namespace."""
_TRIES = 3
"""To write a Secret that others write too."""


class TellsStores(Protocol):
    """Tells stores who the users of topologies are."""

    async def __call__(
        self,
        addresses: Sequence[str],
        users: Hashes,
        term: int,
        others: Callable[[Iterable[str]], Hashes] | None = None,
    ) -> Mapping[str, str]:
        """Address -> why not, of those that were not told. With `others` a store keeps who else it knows, by
        the passwords that this answers for their uids. Raises TermBehind where one was told by a later leader
        than `term`'s."""


@dataclass(frozen=True, slots=True)
class WorkersPlace:
    """A namespace that is served. `seen` answers who needs to log in there, None while that is not known;
    `is_open` whether the operator may write there now."""

    namespace: str
    cluster: ClusterApi
    seen: Callable[[], WorkersSeen | None]
    is_open: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class _LetIn:
    """Whose workers of a namespace; and whether there are no others."""

    uids: frozenset[str]
    are_all: bool


class WorkerLogins:
    """Of all `places`; the first is the stores' own. Belongs to one event loop, one call at a time."""

    def __init__(
        self,
        places: Sequence[WorkersPlace],
        config: OperatorConfig,
        tell: TellsStores,
        term: int,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._places = places
        self._config = config
        self._tell = tell
        self._term = term
        self._monotonic_s = monotonic_s
        self._untold: frozenset[str] = frozenset()
        self._users: tuple[object, Hashes] | None = None
        """(what they follow from, whom the stores were told of last)."""
        self._admitted: dict[str, frozenset[str]] = {}
        """Namespace -> uids of topologies whose workers may log in wherever a store has been told."""
        self._faults: dict[str, str] = {}
        """Namespace -> what went wrong there when it was looked at last."""
        self._due_s: dict[str, float] = {}
        """Namespace in which it went wrong -> when it is looked at again."""

    def shares_a_user(self) -> bool | None:
        """Whether there are pods that have the shared user, None while that is not known. It can be mounted
        beside the stores alone."""
        seen = self._places[0].seen()
        return None if seen is None else seen.shares_a_user

    def has_admitted(self, namespace: str, topology_uid: str) -> bool:
        return topology_uid in self._admitted.get(namespace, ())

    async def let_in(self, passwords: StorePasswords, stores: Sequence[str]) -> bool:
        """Everybody; whether a password took the place of another one. `stores` are addresses. Raises what
        goes wrong beside the stores."""
        let_in = self._let_in(self._seen())
        looked_at = [place for place in self._places if self._is_due(place)]
        replaced = await asyncio.gather(
            *(self._write(place, passwords, let_in[place.namespace]) for place in looked_at)
        )
        await self._tell_stores(passwords, stores, let_in)
        written = [place.namespace for place in looked_at if place.namespace not in self._faults]
        self._admitted |= {namespace: let_in[namespace].uids for namespace in written}
        return any(replaced)

    async def admit(
        self, passwords: StorePasswords, stores: Sequence[str], namespace: str, topology_uid: str
    ) -> None:
        """A topology that may not be seen yet, with all that are seen in its namespace. Raises errors of the
        cluster; PermanentError for a state that is another namespace's."""
        place = next(one for one in self._places if one.namespace == namespace)
        seen = self._seen()
        if is_anothers(topology_uid, namespace, seen):
            raise PermanentError(
                f"its state goes by the uid {topology_uid}, which may be that of a Topology of another "
                "namespace; no worker of this one is let in to that"
            )
        let_in = self._let_in(seen)
        here = let_in[namespace]
        here = let_in[namespace] = replace(here, uids=here.uids | {topology_uid})
        await self._write_secret(place, passwords, here)
        await self._tell_stores(passwords, stores, let_in)
        self._admitted[namespace] = here.uids

    def _seen(self) -> dict[str, WorkersSeen | None]:
        """By namespace."""
        return {place.namespace: place.seen() for place in self._places}

    def _let_in(self, seen: Mapping[str, WorkersSeen | None]) -> dict[str, _LetIn]:
        """By namespace. Nobody is let in to what may be another namespace's."""
        found = {}
        for namespace, one in seen.items():
            if one is None:
                found[namespace] = _LetIn(self._admitted.get(namespace, frozenset()), False)
            else:
                uids = (uid for uid in one.uids if not is_anothers(uid, namespace, seen))
                found[namespace] = _LetIn(frozenset(uids), True)
        return found

    def _is_due(self, place: WorkersPlace) -> bool:
        now_s = self._monotonic_s()
        return place.is_open() and now_s >= self._due_s.get(place.namespace, now_s)

    async def _write(self, place: WorkersPlace, passwords: StorePasswords, let_in: _LetIn) -> bool:
        """As `_write_secret`; what goes wrong is noted, but for the stores' own namespace."""
        fault = ""
        try:
            return await self._write_secret(place, passwords, let_in)
        except (RetryError, PermanentError) as error:
            if place is self._places[0]:
                raise
            fault = str(error)
            return False
        finally:
            self._note(place.namespace, fault)

    def _note(self, namespace: str, fault: str) -> None:
        if fault and fault != self._faults.get(namespace):
            _LOG.warning("workers of namespace %s cannot be given their passwords: %s", namespace, fault)
        self._faults.pop(namespace, None)
        self._due_s.pop(namespace, None)
        if fault:
            self._faults[namespace] = fault
            self._due_s[namespace] = self._monotonic_s() + _AGAIN_S

    async def _write_secret(self, place: WorkersPlace, passwords: StorePasswords, let_in: _LetIn) -> bool:
        """Whether a password of before was replaced."""
        texts = workers_texts(passwords, let_in.uids, self._config)
        for _ in range(_TRIES):
            thing = await place.cluster.get(SECRETS, workers_secret_name(self._config.fullname))
            if thing is None:
                empty = workers_secret(self._config, place.namespace)
                outcome = await place.cluster.create(SECRETS, with_texts(empty, texts, alone=True))
                is_replaced = False
            else:
                wanted = with_texts(thing, texts, alone=let_in.are_all)
                if wanted["data"] == (thing.get("data") or {}):
                    return False
                is_replaced = replaces_any(thing, texts)
                outcome = await place.cluster.replace(SECRETS, wanted)
            if not isinstance(outcome, Refusal):
                return is_replaced
        raise ClusterUnreachable("the Secret of workers' passwords changes too often to be written")

    async def _tell_stores(
        self, passwords: StorePasswords, stores: Sequence[str], let_in: Mapping[str, _LetIn]
    ) -> None:
        of_all = frozenset(uid for one in let_in.values() for uid in one.uids)
        hashes = partial(worker_hashes, passwords.workers_key, passwords.roots)
        basis = (passwords.workers_key, passwords.roots, of_all)
        if self._users is None or self._users[0] != basis:
            self._users = (basis, hashes(of_all))
        are_all_known = all(one.are_all for one in let_in.values())
        untold = await self._tell(stores, self._users[1], self._term, None if are_all_known else hashes)
        if untold.keys() - self._untold:
            told = "; ".join(f"{address}: {why}" for address, why in sorted(untold.items()))
            _LOG.warning("stores that are not told of topologies' users: %s", told)
        self._untold = frozenset(untold)
