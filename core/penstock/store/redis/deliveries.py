"""Between stores, and outside: entries that come in, wait to go out and are acknowledged, as commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.store.port import Acknowledge, Append, Intend, Outgoing, OutgoingTargets, ReadOutbox
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import CallForm, PartsForm, RedisRole, answer, answer_or_moved, names, paired

_FIELD_LENGTH_MAX = 64
_TARGETS_MAX = 65_536
"""No more are told at once; the next look tells others."""


class RedisDeliveries(RedisRole):
    """A part of `redis.calls`."""

    writes = ("append", "append_pressed", "acknowledge", "intend")
    reads = ("outgoing", "read_outbox")

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            Append: CallForm(self._append, answer_or_moved),
            Outgoing: CallForm(self._outgoing, _pairs),
            OutgoingTargets: CallForm(self._outgoing_targets, names),
            ReadOutbox: CallForm(self._read_outbox, _waiting),
            Acknowledge: CallForm(self._acknowledge, answer),
            Intend: CallForm(self._intend, answer),
        }

    def _append(self, call: Append) -> Command:
        return (
            *self._heads["append_pressed" if call.pressed else "append"],
            call.producer,
            call.target,
            call.number,
            call.placed_us,
            call.rows,
            call.payload,
            self._pressed_bounds if call.pressed else self._bounds,
            b"1" if call.is_oldest else b"0",
        )

    def _outgoing(self, call: Outgoing) -> Command:
        return (*self._heads["outgoing"], call.count, call.skip, *call.targets)

    def _outgoing_targets(self, _: OutgoingTargets) -> Command:
        return (b"SRANDMEMBER", self._keys.outgoing, _TARGETS_MAX)

    def _read_outbox(self, call: ReadOutbox) -> Command:
        return (*self._heads["read_outbox"], call.producer, call.target, call.bytes_max, call.after)

    def _acknowledge(self, call: Acknowledge) -> Command:
        head = self._heads["acknowledge"]
        return (*head, call.producer, call.target, call.number, call.position, self._bounds)

    def _intend(self, call: Intend) -> Command:
        head = self._heads["intend"]
        return (*head, call.shard, call.generation, call.epoch, call.target, call.intent)


def _pairs(_: Outgoing, reply: list[bytes]) -> list[tuple[str, str]]:
    return [(producer.decode(), target.decode()) for producer, target in paired(reply)]


def _waiting(_: ReadOutbox, reply: list[Any]) -> list[tuple[int, int, int, bytes]]:
    answer = []
    for id_, (field, payload) in reply:
        if len(field) > _FIELD_LENGTH_MAX:
            raise ValueError("an entry says more than when it was placed, and of how many rows")
        placed_us, rows, _ = field.split(b":")
        answer.append((int(id_[:-2]), int(placed_us), int(rows), payload))
    return answer
