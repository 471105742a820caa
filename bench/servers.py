"""`make bench-servers`: commits a second of a node with one store server and with several, a core for each.

Every server is a redis-server with the product's library, on a core that it keeps to, and on a disk of the
machine's. Commits come to it from a process of its own, packed before the time begins: what is measured is
what servers do, not what tasks take to ask for it. Two commits make a round: a source's, with one entry for a
keyed shard, and that shard's, which works the entry off and sets state. What more servers than cores give is
seen as well: nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import hiredis
from bench import machine
from bench.node_store import LOOPBACK, NodeStore
from bench.screen import Screen, scratch, seconds_per_figure, show
from bench.turned_tasks import connected, published
from rich.table import Table

from penstock.store.keys import Keys
from penstock.store.port import (
    Answer,
    Bounds,
    Claim,
    Claimed,
    Commit,
    Enroll,
    Output,
    Owner,
    SetTasks,
    StateWrite,
)
from penstock.store.redis.calls import RedisCalls
from penstock.store.redis.library import PROTOCOL_VERSION

SECONDS = 8.0
PAIRS = 32
"""Of a source's shard and a keyed one, in each store."""
BATCH = 8
"""Commits of so many shards go in one call, as tasks send them."""
IN_FLIGHT = 8
"""Calls that a server has yet to answer: it is never without work."""
ENTRY = b"e" * 256
STATES = 4
PORT = 17_500
TOPOLOGY = "t"
_INCARNATION = "u1/5/1"
_ROUNDS_PER_S_MAX = 1_000
"""Above what a server does: so many rounds of all pairs are packed for each second."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one number of servers: commits a second in all, CPU seconds of the servers and of who asks them."""

    per_s: float
    server_cpu_s: float
    asking_cpu_s: float


def _claimed(store: Any, operator: str, shards: Sequence[str]) -> dict[str, Claimed]:
    owner = Owner(f"{operator}-w1", _INCARNATION, f"{operator}.ready")
    store.call(SetTasks("w1", _INCARNATION, f"{operator}-w1", tuple((one, owner.ready) for one in shards)))
    claims = {shard: store.call(Claim(shard, owner, 1)) for shard in shards}
    if any(isinstance(claim, Answer) for claim in claims.values()):
        raise RuntimeError(f"shards of {operator} cannot be claimed")
    return claims


def _commit(claim: Claimed, shard: str, number: int, **fields: Any) -> Commit:
    first: dict[str, Any] = {
        "offset": 0,
        "consumed_bytes": 0,
        "consumed_rows": 0,
        "position": None,
        "finished": False,
        "again": False,
        "state": (),
        "timers": (),
        "outputs": (),
    }
    return Commit(
        shard=shard,
        generation=claim.generation,
        epoch=claim.epoch,
        number=number,
        table_version=claim.table_version,
        now_us=1_700_000_000_000_000,
        **{**first, **fields},
    )


def _rounds(sources: dict[str, Claimed], keyed: dict[str, Claimed]) -> Iterator[list[Commit]]:
    """The calls of round after round, without end."""
    pairs = list(zip(sources.items(), keyed.items(), strict=True))
    number = 0
    while True:
        number += 1
        state = tuple(StateWrite(b"", b"key%d" % (number * STATES + one), b"v" * 16) for one in range(STATES))
        for at in range(0, len(pairs), BATCH):
            some = pairs[at : at + BATCH]
            yield [
                _commit(claim, shard, number, again=True, outputs=(Output(target, ENTRY, 16, False),))
                for (shard, claim), (target, _) in some
            ]
            yield [
                _commit(
                    claim,
                    shard,
                    number,
                    offset=number,
                    consumed_bytes=len(ENTRY),
                    consumed_rows=16,
                    state=state,
                )
                for _, (shard, claim) in some
            ]


def _packed(command: Sequence[bytes | str | int]) -> bytes:
    """As a server reads it."""
    parts = [one if isinstance(one, bytes) else str(one).encode() for one in command]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in parts)


def _ask(port: int, seconds: float, told: Connection) -> None:
    """Packs commits, says so, and sends them from when it is told to go; tells how many were applied, and the
    CPU time that it took."""
    store = connected(f"redis://{LOOPBACK}:{port}", TOPOLOGY)
    operators = {"src": True, "mid": False}
    shards = {name: [f"{name}/{number}" for number in range(PAIRS)] for name in operators}
    for name, is_source in operators.items():
        published(store, name, shards[name], source=is_source)
    store.call(Enroll("w1", "u1", 5, 1))
    claims = {name: _claimed(store, name, shards[name]) for name in operators}
    calls = RedisCalls(Keys(TOPOLOGY), Bounds(), PROTOCOL_VERSION)
    sent: list[bytes] = []
    rounds = _rounds(claims["src"], claims["mid"])
    for _ in range(int(seconds * _ROUNDS_PER_S_MAX) * 2 * PAIRS // BATCH):
        commits = next(rounds)
        sent.append(b"".join(_packed(one) for one, _ in calls.encode(commits, [0] * len(commits))))
    reader = hiredis.Reader()
    with socket.create_connection((LOOPBACK, port)) as server:
        told.send("ready")
        told.recv()
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        applied = 0
        for ahead in sent[:IN_FLIGHT]:
            server.sendall(ahead)
        for packed in sent[IN_FLIGHT:]:
            server.sendall(packed)
            while (reply := reader.gets()) is False:
                reader.feed(server.recv(1 << 16))
            if isinstance(reply, Exception) or any(one != b"OK" for one in reply):
                told.send(f"a commit was answered {reply}")
                return
            applied += len(reply)
            if time.monotonic() - began_s >= seconds:
                break
        else:
            told.send("the packed commits did not last")
            return
        told.send((applied / (time.monotonic() - began_s), time.process_time() - began_cpu_s))


def measured(servers: int, seconds: float, folder: Path) -> Figures:
    """Raises RuntimeError where a commit was refused."""
    cores = sorted(os.sched_getaffinity(0))
    stores = [NodeStore(folder, f"n{number}", PORT + number) for number in range(servers)]
    asking: list[tuple[multiprocessing.Process, Connection]] = []
    try:
        for number, store in enumerate(stores):
            store.start()
            assert store.process is not None
            os.sched_setaffinity(store.process.pid, {cores[number % len(cores)]})
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=_ask, args=(store.port, seconds, theirs), daemon=True)
            process.start()
            theirs.close()
            asking.append((process, ours))
        for _, pipe in asking:
            _told(pipe)
        before_s = sum(_cpu_s(store) for store in stores)
        for _, pipe in asking:
            pipe.send("go")
        done = [_told(pipe) for _, pipe in asking]
        server_cpu_s = sum(_cpu_s(store) for store in stores) - before_s
        return Figures(sum(rate for rate, _ in done), server_cpu_s, sum(cpu_s for _, cpu_s in done))
    finally:
        for process, _ in asking:
            process.terminate()
            process.join()
        for store in stores:
            store.stop()


def _told(pipe: Connection) -> Any:
    try:
        found = pipe.recv()
    except EOFError:
        raise RuntimeError("who asks a server has ended") from None
    if isinstance(found, str) and found != "ready":
        raise RuntimeError(found)
    return found


def _cpu_s(store: NodeStore) -> float:
    assert store.process is not None
    return int(Path(f"/proc/{store.process.pid}/schedstat").read_text().split()[0]) / 1e9


def main() -> None:
    """Measure, show, and print the result as the last line."""
    seconds = seconds_per_figure(SECONDS)
    cores = len(os.sched_getaffinity(0))
    numbers = [1, 2, 4]
    screen = Screen(len(numbers))
    table = Table(title=f"Store servers of one node, each held to one of {cores} cores")
    for name in ("servers", "commits/s", "of one", "servers' cores used", "asking, cores used"):
        table.add_column(name, justify="right")
    result: dict[str, Any] = {"bench": "servers", "cores": cores, "servers": {}}
    one_per_s = 0.0
    for number in numbers:
        with screen.step(f"{number} servers"), scratch("servers") as folder:
            found = measured(number, seconds, folder)
        one_per_s = one_per_s or found.per_s
        used, asking = found.server_cpu_s / seconds, found.asking_cpu_s / seconds
        times = found.per_s / one_per_s
        table.add_row(str(number), f"{found.per_s:,.0f}", f"{times:.2f}", f"{used:.2f}", f"{asking:.2f}")
        result["servers"][str(number)] = {
            "commits_per_s": round(found.per_s),
            "times_one": round(times, 2),
            "server_cores": round(used, 2),
            "asking_cores": round(asking, 2),
        }
    result["machine"] = machine.description()
    show(table, result)


if __name__ == "__main__":
    main()
