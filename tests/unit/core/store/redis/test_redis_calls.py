"""What leaves for Redis: small commits that follow each other are one command, everything else one each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.store.keys import Keys
from penstock.store.limits import check_limits
from penstock.store.port import (
    Bounds,
    Commit,
    Fetch,
    Listen,
    Output,
    ReadOutbox,
    Request,
    StateWrite,
    Watermark,
)
from penstock.store.redis.calls import RedisCalls
from penstock.store.redis.library import PREVIOUS_VERSION, PROTOCOL_VERSION

BOUNDS = Bounds()


def commit(shard: str, value_bytes: int = 1, outputs: int = 0) -> Commit:
    state = (StateWrite(b"", b"f", b"v" * value_bytes),)
    return Commit(shard, 1, 1, 1, 0, 0, state=state, outputs=(Output("end/0", b"x", 1),) * outputs)


def counts(calls: Sequence[Request[Any]]) -> list[int]:
    sizes_bytes = [check_limits(call, BOUNDS) for call in calls]
    return [count for _, count in RedisCalls(Keys("uid"), BOUNDS).encode(calls, sizes_bytes)]


def test_commits_in_a_row_are_one_command() -> None:
    assert counts([commit("a/0"), commit("a/1"), commit("a/2"), Fetch("a@w1", 1000, 8)]) == [3, 1]


def test_the_order_of_calls_is_kept_around_commits() -> None:
    fetch = Fetch("a@w1", 1000, 8)
    assert counts([fetch, commit("a/0"), fetch, commit("a/1"), commit("a/2")]) == [1, 1, 1, 2]


def test_large_commits_travel_alone() -> None:
    large = commit("a/1", value_bytes=60_000)
    assert counts([commit("a/0"), large, large, commit("a/2")]) == [2, 2]


def test_commits_with_many_outputs_are_not_gathered_without_bound() -> None:
    assert counts([commit(f"a/{at}", outputs=100) for at in range(4)]) == [1, 1, 1, 1]
    assert max(counts([commit(f"a/{at}") for at in range(500)])) < 100


def test_an_entry_that_was_placed_at_no_time_that_anybody_can_count_is_not_read() -> None:
    """Agents tell Prometheus how old it is."""
    calls, asked = RedisCalls(Keys("uid"), BOUNDS), [ReadOutbox("a/0", "b/0", 100)]

    def waiting(placed: bytes) -> list[Any]:
        return calls.decode(asked, [[b"1-0", [placed + b":1:7", b"payload"]]], [])

    assert waiting(b"5") == [[(1, 5, 1, b"payload")]]
    with pytest.raises(ValueError, match="when it was placed"):
        waiting(b"-1" + b"0" * 400)


def test_a_store_of_the_version_before_rings_nobody_at_news_of_a_watermark() -> None:
    """It has no such function. What it is asked instead does no harm."""
    listen = Listen("b@w1", Watermark(5), ("a", "b"), ("b",))

    def asked_and_heard(version: int, reply: Any) -> tuple[Any, Any]:
        calls = RedisCalls(Keys("uid"), BOUNDS, version)
        ((command, _),) = calls.encode([listen], [0])
        return command, calls.decode([listen], reply, [])

    command, heard = asked_and_heard(PROTOCOL_VERSION, 1)
    assert (command[1], heard) == (f"penstock_listen_{PROTOCOL_VERSION}".encode(), [True])
    assert asked_and_heard(PROTOCOL_VERSION, 0)[1] == [False]
    command, heard = asked_and_heard(PREVIOUS_VERSION, [5, 0])
    assert (command[1], heard) == (f"penstock_read_watermark_{PREVIOUS_VERSION}".encode(), [False])
