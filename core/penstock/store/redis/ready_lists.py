"""What a task has to do, as commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.store.port import DueTimer, Entry, Fetch, Fetched, FetchedShard, Wake
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import CallForm, PartsForm, RedisRole, answer, producer_names, watermark


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
        command: Command = (*head, call.ready, call.bytes_max, call.shards_max, bounds)
        if not call.timers_max:
            return command
        return (*command, call.now_ms, call.timers_max, *producer_names(call.producers, call.keyed))


def _fetched(call: Fetch, reply: list[Any]) -> Fetched:
    if call.timers_max:
        return _by_event_time(reply) if call.producers else _with_timers(reply)
    shards = [
        FetchedShard(reply[at].decode(), reply[at + 1], reply[at + 2], _entries(reply[at + 3]))
        for at in range(1, len(reply), 4)
    ]
    return Fetched(tuple(shards), reply[0] == 1)


def _with_timers(reply: list[Any]) -> Fetched:
    (control, again_ms), *flat = reply
    shards = [
        FetchedShard(shard.decode(), epoch, offset, _entries(entries), _timers(timers))
        for shard, epoch, offset, entries, timers in zip(*(flat[at::5] for at in range(5)), strict=True)
    ]
    return Fetched(tuple(shards), control == 1, next_due_ms=None if again_ms < 0 else again_ms)


def _by_event_time(reply: list[Any]) -> Fetched:
    (control, again_ms, watermark_ms, is_idle), *flat = reply
    told = watermark(watermark_ms, is_idle)
    shards = [
        FetchedShard(shard.decode(), epoch, offset, _entries(entries), _timers(timers), placed, told)
        for shard, epoch, offset, entries, timers, placed in zip(
            *(flat[at::6] for at in range(6)), strict=True
        )
    ]
    again = None if again_ms < 0 else again_ms
    return Fetched(
        tuple(shards), bool(control & 1), next_due_ms=again, watermark=told, rung=bool(control & 2)
    )


def _entries(entries: list[Any]) -> tuple[Entry, ...]:
    return tuple([Entry(int(id_[:-2]), int(field), payload) for id_, (field, payload) in entries])


def _timers(flat: list[bytes]) -> tuple[DueTimer, ...]:
    return tuple([DueTimer(name, int(due_ms)) for name, due_ms in zip(flat[::2], flat[1::2], strict=True)])
