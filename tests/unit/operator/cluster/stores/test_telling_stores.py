"""How stores are told who the topologies' users are: all at once, and none holds up the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clocks.running import run
from penstock.store.port import StoreUnreachable
from penstock.store.redis.connection import Command, ServerError
from penstock.store.redis.users import hash_of
from penstock.store.redis.worker_users import Hashes, read_worker_users
from penstock_operator.cluster.kubernetes_api.lease import TermBehind
from penstock_operator.cluster.stores.telling_stores import StoreTelling

USERS = {"u1": (hash_of("one"),)}


class Store:
    """A store's key, behind a wire; `fault` is raised at each exchange, `hang` waited for, `breaks`
    exchanges break."""

    def __init__(self) -> None:
        self.held: dict[bytes, Any] = {}
        self.fault: Exception | None = None
        self.refusal = ""
        self.breaks = 0
        self.hang: threading.Event | None = None
        self.writes = 0
        self.opened = 0
        self.closed = 0

    def open(self) -> Store:
        self.opened += 1
        return self

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        if self.hang is not None:
            self.hang.wait()
        if self.fault is not None:
            raise self.fault
        if self.breaks > 0:
            self.breaks -= 1
            raise StoreUnreachable("the connection broke")
        if self.refusal:
            return [ServerError(self.refusal)]
        ((name, _, *rest),) = commands
        if name == b"HMGET":
            return [[self.held.get(field) for field in rest if isinstance(field, bytes)]]
        self.writes += 1
        self.held |= {rest[at]: _raw(rest[at + 1]) for at in range(0, len(rest), 2)}  # type: ignore[misc]
        return [3]

    def close(self) -> None:
        self.closed += 1


def _raw(value: Any) -> bytes:
    return str(value).encode() if isinstance(value, int) else value


@pytest.fixture
def stores() -> dict[str, Store]:
    return {address: Store() for address in ("a", "b", "c")}


@pytest.fixture
def tell(stores: dict[str, Store]) -> Iterator[Callable[..., dict[str, str]]]:
    with ThreadPoolExecutor(3) as threads:
        telling = StoreTelling(lambda address: stores[address].open(), threads, wait_s=1.0)

        def tell(term: int = 1, **more: Any) -> dict[str, str]:
            asked = more.pop("addresses", tuple(stores))
            return run(telling(asked, more.pop("users", USERS), term, **more))

        yield tell


def test_each_store_is_told_once_by_a_connection_that_is_kept_for_as_long_as_it_is_asked(
    stores: dict[str, Store], tell: Callable[..., dict[str, str]]
) -> None:
    for _ in range(3):
        assert tell() == {}
    assert [one.writes for one in stores.values()] == [1, 1, 1]
    assert [(one.opened, one.closed) for one in stores.values()] == [(1, 0)] * 3
    tell(addresses=("a", "c"))
    assert [(one.opened, one.closed) for one in stores.values()] == [(1, 0), (1, 1), (1, 0)]


def test_a_store_that_ended_the_connection_meanwhile_is_told_all_the_same(
    stores: dict[str, Store], tell: Callable[..., dict[str, str]]
) -> None:
    tell()
    stores["b"].breaks = 1
    assert tell() == {}
    assert stores["b"].closed == 1
    stores["b"].breaks = 2
    assert set(tell()) == {"b"}, "it is away"
    assert tell() == {}
    assert [one.opened for one in stores.values()] == [1, 2, 1]


def test_a_connection_that_is_waited_for_no_longer_is_used_for_nothing_else(
    stores: dict[str, Store], tell: Callable[..., dict[str, str]]
) -> None:
    tell()
    hang = stores["b"].hang = threading.Event()
    assert set(tell()) == {"b"}
    stores["b"].hang = None
    assert tell() == {}
    hang.set()
    assert [one.opened for one in stores.values()] == [1, 2, 1]


def test_one_that_is_away_hangs_or_refuses_is_named_and_the_others_are_told(
    stores: dict[str, Store], tell: Callable[..., dict[str, str]]
) -> None:
    stores["a"].fault = StoreUnreachable("gone")
    hang = stores["b"].hang = threading.Event()
    assert tell() == {"a": "gone", "b": "it takes too long"}
    assert stores["c"].writes == 1
    stores["b"].hang = None
    hang.set()
    stores["a"].fault, stores["a"].refusal = None, "NOPERM this user has no permissions"
    assert "does not allow this user's call" in tell()["a"]


def test_a_later_leaders_word_stands_and_who_led_before_learns_of_it(
    stores: dict[str, Store], tell: Callable[..., dict[str, str]]
) -> None:
    tell(term=4)
    stores["b"].held[b"term"] = b"7"
    with pytest.raises(TermBehind) as behind:
        tell(term=5)
    assert behind.value.term == 7
    assert stores["b"].held[b"term"] == b"7"
    assert stores["a"].held[b"term"] == b"5", "so that it knows of this one"


def test_while_not_all_are_known_a_store_keeps_whom_it_knows_by_the_passwords_that_count_now(
    stores: dict[str, Store], tell: Callable[..., dict[str, str]]
) -> None:
    def others(uids: Iterable[str]) -> Hashes:
        return {uid: (hash_of(f"new of {uid}"),) for uid in uids}

    tell(users={**USERS, "u2": (hash_of("former"),)})
    stores["b"].held.clear()
    stores["c"].held[b"users"] = b"no users"
    tell(users={"u3": (hash_of("three"),)}, others=others)
    of_new = {"u3": (hash_of("three"),)}
    kept = {uid: (hash_of(f"new of {uid}"),) for uid in ("u1", "u2")}
    assert read_worker_users(stores["a"]) == {**kept, **of_new}
    assert read_worker_users(stores["b"]) == of_new
    assert read_worker_users(stores["c"]) == of_new
    tell(users=USERS)
    assert read_worker_users(stores["a"]) == USERS, "all are known again"
