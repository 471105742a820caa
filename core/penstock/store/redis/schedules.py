"""Schedules as a publication packs them for Redis, and as a worker reads back what it is assigned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from penstock.store.port import (
    Answer,
    AssignedExecutor,
    Assignment,
    Publish,
    StoreUnreachable,
    WorkerAssignment,
)
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import CallForm, PartsForm, RedisRole, paired


class _Assigned(msgspec.Struct, array_like=True):
    """An executor as it is packed with its worker; without remote tasks the last part is left out."""

    executor: str
    tasks: int
    shards_at: dict[str, tuple[str, ...]]
    remote: tuple[tuple[str, int], ...] = ()


_SHARDS_PER_PART = 256
"""A command with so many that all are to leave keeps the store for a millisecond or two."""

_encode = msgspec.msgpack.encode
_decode_worker = msgspec.msgpack.Decoder(tuple[str, str, str]).decode
_decode_assigned = msgspec.msgpack.Decoder(tuple[int, list[_Assigned]]).decode


class RedisSchedules(RedisRole):
    """A part of `redis.calls`."""

    writes = ("publish_part", "publish")
    reads = ("assignment",)

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            Publish: PartsForm(self._publish, _published),
            Assignment: CallForm(self._assignment, _worker_assignment),
        }

    def _publish(self, call: Publish) -> list[Command]:
        """Parts of some shards each, and the one that puts all of them in the place of what counted."""
        shards = [(shard, _encode((executor, home))) for shard, executor, home in call.shards]
        executors = _encode([executor for executor, _, _ in call.executors])
        workers = list(_packed_workers(call))
        told = _encode((shards, executors, workers))
        head = (call.operator, call.version, call.term, blake2b(told, digest_size=12).hexdigest(), executors)
        parts = [
            (*self._heads["publish_part"], *head, *_flat(shards[first : first + _SHARDS_PER_PART]))
            for first in range(0, len(shards) if len(shards) > _SHARDS_PER_PART else 0, _SHARDS_PER_PART)
        ]
        rest = [] if parts else shards
        last = (
            *self._heads["publish"],
            *head,
            _encode([worker for worker, _, _, _ in call.workers]),
            len(call.workers),
            len(call.executors),
            len(rest),
            len(shards),
            *workers,
            *_flat((executor, _encode((worker, tasks))) for executor, worker, tasks in call.executors),
            *_flat(rest),
        )
        return [*parts, last]

    def _assignment(self, call: Assignment) -> Command:
        return (*self._heads["assignment"], call.worker)


def _published(call: Publish, replies: list[bytes]) -> Answer:
    """Raises StoreUnreachable when another publication came between the parts of this one."""
    reply = replies[-1]
    if reply == b"AGAIN":
        raise StoreUnreachable(f"parts of the schedule of {call.operator} are missing: publish it again")
    return Answer(reply.decode())


def _flat(pairs: Iterable[tuple[str, bytes]]) -> Iterator[str | bytes]:
    return (value for pair in pairs for value in pair)


def _packed_workers(call: Publish) -> Iterator[bytes | str]:
    """For each worker its name, its place, and the executors that it is to run, at the version of `call`."""
    shards_of: dict[str, dict[str, list[str]]] = {executor: {} for executor, _, _ in call.executors}
    for shard, executor, home in sorted(call.shards):
        shards_of.setdefault(executor, {}).setdefault(home, []).append(shard)
    remote_of: dict[str, tuple[list[tuple[str, int]]]] = {}
    for executor, node, tasks in call.remote:
        remote_of.setdefault(executor, ([],))[0].append((node, tasks))
    for worker, node, host, uid in call.workers:
        executors = [
            (executor, tasks, shards_of[executor], *remote_of.get(executor, ()))
            for executor, runs_on, tasks in sorted(call.executors)
            if runs_on == worker
        ]
        yield from (worker, _encode((node, host, uid)), _encode((call.version, executors)))


def _worker_assignment(_: Assignment, reply: list[Any]) -> WorkerAssignment:
    retracted, generation, packed_worker, flat, store_id, flat_leaving, flat_keepers = reply
    here = store_id.decode()
    leaving: dict[str, list[str]] = {}
    for shard, keeper in paired(flat_leaving):
        leaving.setdefault(keeper.decode(), []).append(shard.decode())
    keepers: dict[bytes, list[_Assigned]] = {}
    for operator, name, tasks in zip(*(flat_keepers[at::3] for at in range(3)), strict=True):
        if name.decode() in leaving:
            keepers.setdefault(operator, []).append(_Assigned(name.decode(), tasks, {}))
    executors = [
        AssignedExecutor(
            operator.decode(),
            of.executor,
            version,
            of.tasks,
            tuple(sorted((*of.shards_at.get(here, ()), *leaving.get(of.executor, ())))),
            of.remote,
        )
        for operator, packed in sorted(paired(flat))
        for version, assigned in (_decode_assigned(packed),)
        for of in sorted([*assigned, *keepers.get(operator, ())], key=lambda of: of.executor)
    ]
    uid = "" if packed_worker is None else _decode_worker(packed_worker)[2]
    if retracted:
        return WorkerAssignment("", True, generation, ())
    return WorkerAssignment(uid, False, generation, tuple(executors))
