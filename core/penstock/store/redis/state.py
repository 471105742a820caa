"""A shard's state as its owner reads it, as commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.store.port import LOAD_BYTES, Answer, Load, Scan, StateSnapshot
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import ANSWERS, CallForm, PartsForm, RedisRole, paired


class RedisState(RedisRole):
    """A part of `redis.calls`."""

    writes = ()
    reads = ("load", "scan", "state_snapshot")

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            Load: CallForm(self._load, _values),
            Scan: CallForm(self._scan, _chunk),
            StateSnapshot: CallForm(self._state_snapshot, _snapshot),
        }

    def _load(self, call: Load) -> Command:
        head = self._heads["load"]
        return (*head, call.shard, call.generation, call.epoch, call.collection, LOAD_BYTES, *call.fields)

    def _scan(self, call: Scan) -> Command:
        head = self._heads["scan"]
        named = (call.shard, call.generation, call.epoch, call.collection)
        return (*head, *named, call.cursor, call.count, LOAD_BYTES)

    def _state_snapshot(self, call: StateSnapshot) -> Command:
        return (*self._heads["state_snapshot"], call.shard)


def _values(_: Load, reply: Any) -> list[bytes | None] | Answer:
    if isinstance(reply, bytes):
        return ANSWERS[reply]
    values: list[bytes | None] = reply
    return values


def _chunk(_: Scan, reply: Any) -> tuple[str, list[tuple[bytes, bytes]]] | Answer:
    if isinstance(reply, bytes):
        return ANSWERS[reply]
    cursor, flat = reply
    return cursor.decode(), paired(flat)


def _snapshot(_: StateSnapshot, reply: list[Any]) -> dict[tuple[bytes, bytes], bytes]:
    return {
        (reply[at], field): value for at in range(0, len(reply), 2) for field, value in paired(reply[at + 1])
    }
