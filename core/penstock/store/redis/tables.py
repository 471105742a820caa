"""Routing tables, as commands: a hash for each operator, a field for each version. Counted pairs are one
hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.store.port import (
    PAIR_NAMES_MAX,
    Answer,
    DropPairs,
    DropTable,
    PairNames,
    PutPairs,
    PutTable,
    ReadPairs,
    ReadTable,
    TableVersions,
)
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import CallForm, PartsForm, RedisRole

_PAIRS_ROWS_MAX = 4096
"""No more rows are read: each may have its reader some hundred kilobytes."""


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
            PutPairs: CallForm(self._put_pairs, _done),
            DropPairs: CallForm(self._drop_pairs, _done),
            PairNames: CallForm(self._pair_names, _names),
            ReadPairs: CallForm(self._read_pairs, _rows),
        }

    def _put(self, call: PutTable) -> Command:
        return (b"HSET", self._keys.tables(call.operator), call.version, call.content)

    def _drop(self, call: DropTable) -> Command:
        return (b"HDEL", self._keys.tables(call.operator), call.version)

    def _versions(self, call: TableVersions) -> Command:
        return (b"HKEYS", self._keys.tables(call.operator))

    def _read(self, call: ReadTable) -> Command:
        return (b"HGET", self._keys.tables(call.operator), call.version)

    def _put_pairs(self, call: PutPairs) -> Command:
        return (b"HSET", self._keys.pairs, call.name, call.row)

    def _drop_pairs(self, call: DropPairs) -> Command:
        # With a field that is never there: none would be no command.
        return (b"HDEL", self._keys.pairs, b"", *call.names)

    def _pair_names(self, _: PairNames) -> Command:
        return (b"HRANDFIELD", self._keys.pairs, PAIR_NAMES_MAX)

    def _read_pairs(self, _: ReadPairs) -> Command:
        return (b"HRANDFIELD", self._keys.pairs, _PAIRS_ROWS_MAX, b"WITHVALUES")


def _done(_: PutTable | DropTable | PutPairs | DropPairs, _reply: int) -> Answer:
    return Answer.OK


def _numbers(_: TableVersions, reply: list[bytes]) -> tuple[int, ...]:
    return tuple(sorted(map(int, reply)))


def _content(_: ReadTable, reply: Any) -> bytes | None:
    content: bytes | None = reply
    return content


def _names(_: PairNames, reply: list[bytes]) -> tuple[str, ...]:
    return tuple(name.decode(errors="replace") for name in reply)


def _rows(_: ReadPairs, reply: list[tuple[bytes, bytes]]) -> dict[str, bytes]:
    return {name.decode(errors="replace"): row for name, row in reply}
