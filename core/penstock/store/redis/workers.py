"""Workers, and how shards are spread over their tasks, as commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.store.port import Answer, Enroll, MintStart, SetTasks, TaskMap, Tasks
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import ANSWERS, CallForm, PartsForm, RedisRole, answer

_encode = msgspec.msgpack.encode
_decode_mapping = msgspec.msgpack.Decoder(dict[str, str]).decode
_decode_lists = msgspec.msgpack.Decoder(frozenset[str]).decode


class RedisWorkers(RedisRole):
    """A part of `redis.calls`."""

    writes = ("mint_start", "enroll", "set_tasks")
    reads = ("tasks",)

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            MintStart: CallForm(self._mint_start, _minted),
            Enroll: CallForm(self._enroll, answer),
            SetTasks: CallForm(self._set_tasks, answer),
            Tasks: CallForm(self._tasks, _task_map),
        }

    def _mint_start(self, call: MintStart) -> Command:
        return (*self._heads["mint_start"], call.worker)

    def _enroll(self, call: Enroll) -> Command:
        return (*self._heads["enroll"], call.worker, call.uid, call.start, call.attempt)

    def _set_tasks(self, call: SetTasks) -> Command:
        lists = sorted({*call.idle, *(ready for _, ready in call.mapping)})
        mapping = _encode(dict(call.mapping))
        head = self._heads["set_tasks"]
        return (*head, call.worker, call.incarnation, call.executor, mapping, _encode(lists), *lists)

    def _tasks(self, call: Tasks) -> Command:
        return (*self._heads["tasks"], call.executor, call.operator)


def _minted(_: Any, reply: int | bytes) -> int | Answer:
    return ANSWERS[reply] if isinstance(reply, bytes) else reply


def _task_map(_: Tasks, reply: list[Any]) -> TaskMap:
    incarnation, packed, version, lists = reply
    mapping = _decode_mapping(packed) if packed is not None else {}
    named = _decode_lists(lists) if lists is not None else frozenset()
    return TaskMap(
        incarnation.decode() if incarnation is not None else "",
        mapping,
        int(version or 0),
        named - set(mapping.values()),
    )
