"""Routing tables, as commands: a hash for each operator, a field for each version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.store.port import Answer, DropTable, PutTable, ReadTable, TableVersions
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import CallForm, PartsForm, RedisRole


class RedisTables(RedisRole):
    """A part of `redis.calls`."""

    writes = ()
    reads = ()

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            PutTable: CallForm(self._put, _done),
            DropTable: CallForm(self._drop, _done),
            TableVersions: CallForm(self._versions, _numbers),
            ReadTable: CallForm(self._read, _content),
        }

    def _put(self, call: PutTable) -> Command:
        return (b"HSET", self._keys.tables(call.operator), call.version, call.content)

    def _drop(self, call: DropTable) -> Command:
        return (b"HDEL", self._keys.tables(call.operator), call.version)

    def _versions(self, call: TableVersions) -> Command:
        return (b"HKEYS", self._keys.tables(call.operator))

    def _read(self, call: ReadTable) -> Command:
        return (b"HGET", self._keys.tables(call.operator), call.version)


def _done(_: PutTable | DropTable, _reply: int) -> Answer:
    return Answer.OK


def _numbers(_: TableVersions, reply: list[bytes]) -> tuple[int, ...]:
    return tuple(sorted(map(int, reply)))


def _content(_: ReadTable, reply: Any) -> bytes | None:
    content: bytes | None = reply
    return content
