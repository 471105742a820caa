"""A run's store, for commands beside it: the one that the run has up, or what it left, started for a while.

Neighbours: `private_store` starts it, `kept.run_record` says whose it is, `asked_run` asks about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock_operator.local.kept.run_record import StateDirectory, StateUnusableError
from penstock_operator.local.store.private_store import PrivateStore, answers_at, url_of


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """`shards` are all shards by stage; `is_running`: a run has it up, and works on what it is told."""

    shards: Mapping[str, Sequence[str]]
    url: str
    topology_uid: str
    is_running: bool


@contextmanager
def opened_store(folder: Path) -> Iterator[OpenedStore]:
    """The store in a state directory. Raises StateUnusableError, StateInUseError, PrivateStoreError."""
    directory = StateDirectory(folder)
    record = directory.read()
    if record is None:
        raise StateUnusableError(f"No run has left anything in {folder}: give the right --state-dir.")
    url = url_of(folder)
    if answers_at(url):
        yield OpenedStore(record.shards, url, record.topology_uid, is_running=True)
        return
    directory.lock()
    # Nobody may lose what is ordered here: each write is on the disk before it is answered.
    server = PrivateStore(folder, "Disk")
    try:
        server.start()
        yield OpenedStore(record.shards, server.url, record.topology_uid, is_running=False)
    finally:
        server.stop()
        directory.unlock()
