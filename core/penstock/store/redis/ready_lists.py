"""What a task has to do, as commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.store.port import Entry, Fetch, Fetched, FetchedShard, Wake
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import CallForm, PartsForm, RedisRole, answer


class RedisReadyLists(RedisRole):
    """A part of `redis.calls`."""

    writes = ("wake", "fetch", "fetch_pressed")
    reads = ()

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            Wake: CallForm(self._wake, answer),
            Fetch: CallForm(self._fetch, _fetched),
        }

    def _wake(self, call: Wake) -> Command:
        return (*self._heads["wake"], call.ready)

    def _fetch(self, call: Fetch) -> Command:
        if call.pressed:
            head, bounds = self._heads["fetch_pressed"], self._pressed_bounds
        else:
            head, bounds = self._heads["fetch"], self._bounds
        return (*head, call.ready, call.bytes_max, call.shards_max, bounds)


def _fetched(_: Fetch, reply: list[Any]) -> Fetched:
    shards = [
        FetchedShard(
            reply[at].decode(),
            reply[at + 1],
            reply[at + 2],
            tuple([Entry(int(id_[:-2]), int(field), payload) for id_, (field, payload) in reply[at + 3]]),
        )
        for at in range(1, len(reply), 4)
    ]
    return Fetched(tuple(shards), reply[0] == 1)
