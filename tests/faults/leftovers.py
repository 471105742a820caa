"""What a run leaves behind when it is over: processes, keys in its store, files. And how its memory grew.

Each finding is a sentence that begins with what it is of. Neighbours: `scene` asks, `process_tree` finds
processes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import redis

from faults.process_tree import Found
from penstock_operator.local.store.private_store import PrivateStore

RUN_GROWTH_BYTES_MAX = 64 << 20
STORE_GROWTH_BYTES_MAX = 64 << 20
_TRIMMED_LATE = 16
"""So many entries that are worked off an inbox may still hold (decision 0001)."""
_PASSING = ("outbox", "pending", "waiters", "outgoing", "move", "changes", "round", "leaving", "tombstone")
"""Kinds of keys that are there only while something waits or moves. Ready lists are not kept at all."""
_BY_KEY_OF_USER = "collection"
_EXECUTORS_MAX = 16
_FILES = re.compile(
    r"""lock|run\.json|topology\.yaml|decisions\.jsonl|spark-key
    |store/(lock|redis\.log|appendonlydir/appendonly\.aof\.(\d+\.(base\.rdb|incr\.aof)|manifest))
    |workers/w\d+\.(json|log(\.\d+)?)""",
    re.VERBOSE,
)
_AOF = re.compile(r"appendonly\.aof\.\d+\.incr\.aof")
_AOF_FILES_MAX = 2


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of the command, bytes that the store says it uses."""

    run_bytes: int
    store_bytes: int

    def growth(self, after: Memory) -> list[str]:
        found = []
        if after.run_bytes - self.run_bytes > RUN_GROWTH_BYTES_MAX:
            found.append(f"memory: the run grew from {_mib(self.run_bytes)} to {_mib(after.run_bytes)}")
        if after.store_bytes - self.store_bytes > STORE_GROWTH_BYTES_MAX:
            found.append(f"memory: the store grew from {_mib(self.store_bytes)} to {_mib(after.store_bytes)}")
        return found


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"


def processes(left: Collection[Found], after: str) -> list[str]:
    names = Counter(found.words() for found in left)
    listed = ", ".join(f"{count} {name}" for name, count in sorted(names.items()))
    return [f"processes: {listed} left after {after}"] if left else []


def keys(state: Path, durability: str) -> list[str]:
    """Opens the store of a run that has worked everything off."""
    server = PrivateStore(state, durability)
    server.start()
    try:
        with redis.Redis.from_url(server.url) as client:
            return list(_keys(client))
    finally:
        server.stop()


def _keys(client: redis.Redis) -> Iterator[str]:
    kinds: Counter[str] = Counter()
    for key in client.scan_iter(count=1000):
        _, _, rest = key.decode(errors="replace").partition(":")
        if ":" not in rest:
            continue
        kind = rest.partition(":")[2].partition(":")[0]
        kinds[kind] += 1
        if kind == "inbox" and (length := client.xlen(key)) >= _TRIMMED_LATE:
            yield f"keys: {length} entries left in {key.decode(errors='replace')}"
        elif kind in _PASSING:
            yield f"keys: {key.decode(errors='replace')} is left"
    # The others go by shards, operators, workers or executors, but those of user state.
    for kind, count in kinds.items():
        if kind != _BY_KEY_OF_USER and count > 2 * kinds["shard"] + _EXECUTORS_MAX:
            yield f"keys: {count} of kind {kind} for {kinds['shard']} shards"


def files(state: Path, temporary: Path) -> list[str]:
    found = [
        f"files: {path.relative_to(state.parent)} is left"
        for path in sorted(state.rglob("*"))
        if not path.is_dir() and not _FILES.fullmatch(path.relative_to(state).as_posix())
    ]
    found += [f"files: {path.relative_to(state.parent)} is left" for path in sorted(temporary.iterdir())]
    if len(logs := [path for path in state.rglob("*.aof") if _AOF.fullmatch(path.name)]) > _AOF_FILES_MAX:
        found.append(f"files: {len(logs)} append-only files")
    return found
