"""One look at the passwords of the node stores: reads the Secrets, asks the stores, writes what pods mount.

The operator logs in to the stores by what it reads here (`StoreLogin`): it mounts nothing, so it may make the
Secret that there is not yet. Each look brings everything to what is wanted, whoever did what before: the
stores' Secret, and that workers can log in (`worker_logins`). Neighbours: `stores.store_passwords` decides,
`stores.password_secret` has the Secret's form, `stores_turn` calls this first.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PenstockError, PermanentError
from penstock.store.port import StoreUnreachable
from penstock.store.redis.connection import Wire
from penstock.store.redis.users import USERS
from penstock_operator.cluster.carrying_out.events import event_object
from penstock_operator.cluster.decisions.actions import Event
from penstock_operator.cluster.kubernetes_api.port import (
    EVENTS,
    SECRETS,
    ClusterApi,
    Object,
    Refusal,
)
from penstock_operator.cluster.observing.observed import ObservedStore
from penstock_operator.cluster.stores.password_secret import (
    SPARK_KEY,
    WORKERS_KEY,
    empty_secret,
    has_own_users,
    password_key,
    read_secret,
    texts_of,
    written_secret,
)
from penstock_operator.cluster.stores.store_passwords import (
    Passwords,
    StorePasswords,
    decide_passwords,
    first_passwords,
    probe_password,
    to_ask_for,
)
from penstock_operator.cluster.turns.work import Clocks, Leadership
from penstock_operator.cluster.turns.worker_logins import TellsStores, WorkerLogins, WorkersPlace

_LOG = logging.getLogger(__name__)

_LOOK_S = 5.0
_TELL_AFTER_S = 300.0
"""A store that does not take new passwords for so long is told of."""
_ASK_TIMEOUT_S = 2.0
_PASSWORD_BYTES = 36


class StoreLogin:
    """The operator's password, as it is now. For any thread."""

    def __init__(self) -> None:
        self.password = ""

    def __call__(self) -> str:
        """Raises StoreUnreachable while the operator has not read it."""
        if not self.password:
            raise StoreUnreachable("the operator has not read the stores' passwords yet")
        return self.password


class AsksStores(Protocol):
    """Asks stores whether they take passwords."""

    async def __call__(self, addresses: Sequence[str], passwords: Passwords) -> Sequence[str]:
        """Those of `addresses` that do not take all of them, or do not answer."""


def takes(address: str, passwords: Passwords) -> bool:
    """Whether each user may log in to the store with its password. Blocks."""
    for user, password in passwords.items():
        wire = Wire(f"redis://{user}@{address}", _ASK_TIMEOUT_S, partial(str, password))
        try:
            wire.exchange([(b"PING",)])
        except PenstockError:
            return False
        finally:
            wire.close()
    return True


@dataclass(frozen=True, slots=True)
class StoreLogins:
    """How the operator logs in, finds out whether others could, and says who may."""

    own: StoreLogin
    ask: AsksStores
    tell: TellsStores


def random_password() -> str:
    return secrets.token_urlsafe(_PASSWORD_BYTES)


class PasswordsTurns:
    """Belongs to one event loop. `places` are the namespaces that workers log in from, the stores' own
    first."""

    def __init__(
        self,
        cluster: ClusterApi,
        config: OperatorConfig,
        logins: StoreLogins,
        leadership: Leadership,
        clocks: Clocks,
        places: Sequence[WorkersPlace],
        generate: Callable[[], str] = random_password,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._logins = logins
        self._leadership = leadership
        self._clocks = clocks
        self._workers = WorkerLogins(places, config, logins.tell, leadership.term, clocks.monotonic_s)
        self._generate = generate
        self._looked_s = float("-inf")
        self._known: StorePasswords | None = None
        """As the Secret was last: one that somebody deletes, or a part of it, is made again as it was."""
        self._refused_since_s: float | None = None
        self._told: tuple[str, ...] = ()
        self._one_at_a_time = asyncio.Lock()
        self._ready: tuple[str, ...] = ()
        """Addresses of the stores that were ready when last looked."""
        self._own_users: bool | None = None

    def own_users_in(self, namespace: str) -> bool:
        """Whether pods there are made with their topology's own user. In a further namespace they are in any
        case: there is nothing else to mount, and agents that know no such users do not follow it. Raises
        StoreUnreachable while the operator has not read that."""
        if self._own_users is None:
            raise StoreUnreachable("the operator has not read the stores' passwords yet")
        return self._own_users or namespace != self._config.namespace

    async def admit(self, namespace: str, topology_uid: str) -> None:
        """Before a topology's pods are made: there is what they mount, and the stores that answer have been
        told. Raises errors of the cluster."""
        if self._workers.has_admitted(namespace, topology_uid):
            return
        async with self._one_at_a_time:
            if self._workers.has_admitted(namespace, topology_uid):
                return  # with another one: all that are seen are let in together
            if self._known is None or not self._known.workers_key:
                raise StoreUnreachable("the operator has not read the stores' passwords yet")
            await self._workers.admit(self._known, self._ready, namespace, topology_uid)

    async def turn(self, stores: Sequence[ObservedStore]) -> None:
        """Look, unless that was done just now. Raises errors of the cluster; PermanentError where somebody
        else's Secret does not say what it has to."""
        now_s = self._clocks.monotonic_s()
        ready = tuple(sorted(store.address for store in stores if store.ready))
        if now_s - self._looked_s < _LOOK_S and not set(ready) - set(self._ready):
            return
        async with self._one_at_a_time:
            self._ready = ready
            await self._look(stores, now_s)

    async def _look(self, stores: Sequence[ObservedStore], now_s: float) -> None:
        thing = await self._cluster.get(SECRETS, self._config.store.auth_secret)
        found = held = read_secret(thing)
        if held is not None and self._known is not None:
            held = replace(
                held,
                workers_key=held.workers_key or self._known.workers_key,
                roots=held.roots or self._known.roots,
            )
        if held is not None and self._own_users is None and await self._is_after_a_downgrade(held):
            held = replace(held, own_users=False)
        if held is not None:
            self._know(held)
        elif self._own_users is None:
            self._own_users = thing is None or has_own_users(thing)
        wanted = held
        if held is not None and held.workers_key:
            is_replaced = await self._workers.let_in(held, self._ready)
            if is_replaced and held.former_until_s is not None:
                # Pods get these only now: they have their time from here on.
                until_s = self._clocks.wall_s() + self._config.store.former_password_seconds
                wanted = replace(held, former_until_s=until_s)
        given = await self._given()
        self._looked_s = now_s
        if held is None or wanted is None or thing is None:
            await self._make(thing, given)
            return
        refusing = await self._refusing(held, stores, now_s)
        decision = decide_passwords(
            wanted,
            given,
            refusing,
            self._clocks.wall_s(),
            self._config.store.former_password_seconds,
            self._generate,
            shared_is_used=self._workers.shares_a_user() is not False,
        )
        if decision.passwords != found:
            written = await self._cluster.replace(SECRETS, written_secret(thing, decision.passwords))
            if isinstance(written, Refusal):
                self._looked_s = float("-inf")
                return
            self._know(decision.passwords)
            await self._workers.let_in(decision.passwords, self._ready)
        if decision.event is not None:
            await self._tell(decision.event, thing)

    async def _is_after_a_downgrade(self, held: StorePasswords) -> bool:
        """Whether pods share a user again, and stores know no other. Asked once, before any pod is made."""
        if not held.own_users or not self._workers.shares_a_user():
            return False
        return bool(await self._logins.ask(self._ready, probe_password(held)))

    async def _make(self, thing: Object | None, given: Passwords | None) -> None:
        if thing is None:
            made = self._known or first_passwords(given, {}, "", self._generate)
            outcome = await self._cluster.create(SECRETS, written_secret(empty_secret(self._config), made))
        else:
            data, known = texts_of(thing), self._known
            there = {
                user: data.get(password_key(user), "") or (known.current[user] if known is not None else "")
                for user in USERS
            }
            spark_key = data.get(SPARK_KEY, "") or (known.spark_key if known is not None else "")
            workers_key = data.get(WORKERS_KEY, "") or (known.workers_key if known is not None else "")
            made = first_passwords(
                given,
                there,
                spark_key,
                self._generate,
                workers_key=workers_key,
                own_users=known.own_users if known is not None else has_own_users(thing),
            )
            outcome = await self._cluster.replace(SECRETS, written_secret(thing, made))
        if isinstance(outcome, Refusal):
            self._looked_s = float("-inf")
            return
        _LOG.info("made the passwords of the stores, in Secret %s", self._config.store.auth_secret)
        self._know(made)
        await self._workers.let_in(made, self._ready)

    def _know(self, passwords: StorePasswords) -> None:
        self._known = passwords
        self._own_users = passwords.own_users
        self._logins.own.password = passwords.current["operator"]

    async def _given(self) -> Passwords | None:
        name = self._config.store.passwords_secret
        if name is None:
            return None
        thing = await self._cluster.get(SECRETS, name)
        if thing is None:
            raise PermanentError(
                f"there is no Secret {name}, which store.auth.existingSecret of the chart names: make it, "
                f"with the keys {', '.join(map(password_key, USERS))}"
            )
        data = texts_of(thing)
        passwords = {user: data.get(password_key(user), "").rstrip("\r\n") for user in USERS}
        missing = [password_key(user) for user in USERS if not passwords[user]]
        if missing:
            raise PermanentError(f"Secret {name} (store.auth.existingSecret) lacks {', '.join(missing)}")
        if len(set(passwords.values())) < len(USERS):
            raise PermanentError(
                f"Secret {name} (store.auth.existingSecret) gives two users one password: each needs its "
                "own, or whose code runs in workers may do what agents may"
            )
        return passwords

    async def _refusing(
        self, held: StorePasswords, stores: Sequence[ObservedStore], now_s: float
    ) -> Sequence[str] | None:
        """Stores that do not take what the next step waits for. One that is not ready reads it, or is told by
        its agent, before it is; but for one whose agent may be of an earlier version, and know no topologies'
        users."""
        asked = to_ask_for(held)
        if asked is None:
            self._refused_since_s, self._told = None, ()
            return None
        names = {store.address: store.stateful_set for store in stores if store.ready}
        answers = await self._logins.ask(tuple(names), asked)
        outdated = {store.stateful_set for store in stores if store.is_outdated}
        waits_for = outdated if held.coming is None else set()
        refusing = tuple(sorted({*(names[one] for one in answers), *waits_for}))
        if self._refused_since_s is None:
            self._refused_since_s = now_s
        if refusing and refusing != self._told and now_s - self._refused_since_s >= _TELL_AFTER_S:
            self._told = refusing
            what = (
                "new passwords wait" if held.coming is not None else "users of their own of topologies wait"
            )
            told = f"{what} for stores that do not take them yet: {', '.join(refusing)}"
            _LOG.warning("%s", told)
            thing = await self._cluster.get(SECRETS, self._config.store.auth_secret)
            if thing is not None:
                await self._tell(Event("Warning", "PasswordsWait", told), thing)
        return refusing

    async def _tell(self, event: Event, thing: Object) -> None:
        _LOG.info("%s: %s", event.reason, event.message)
        regarding = {"apiVersion": SECRETS.api_version, "kind": SECRETS.kind, **thing}
        told = event_object(event, regarding, self._clocks.now(), self._leadership.reporter)
        await self._cluster.create(EVENTS, told)
