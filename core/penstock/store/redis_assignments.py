"""What is assigned to a worker, as a publication packs it for Redis and a worker reads it back.

Neighbour: `redis_calls`, which has all other calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.store.port import AssignedExecutor, Assignment, Publish, WorkerAssignment


class _Assigned(msgspec.Struct, array_like=True):
    """An executor as it is packed with its worker; without remote tasks the last part is left out."""

    executor: str
    tasks: int
    shards_at: dict[str, tuple[str, ...]]
    remote: tuple[tuple[str, int], ...] = ()


_encode = msgspec.msgpack.encode
_decode_worker = msgspec.msgpack.Decoder(tuple[str, str, str]).decode
_decode_assigned = msgspec.msgpack.Decoder(tuple[int, list[_Assigned]]).decode


def packed_workers(call: Publish) -> Iterator[bytes | str]:
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


def worker_assignment(_: Assignment, reply: list[Any]) -> WorkerAssignment:
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


def paired(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The pairs of what Redis answers one after the other."""
    return list(zip(flat[::2], flat[1::2], strict=True))
