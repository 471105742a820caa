"""The twin of a system that takes batches as transactions (`sinks.batches.transactional`).

`tests/contract/test_transaction_logs.py` runs one suite on it and on Kafka. Where something may go wrong it
asks `at`, which may raise, or do something else meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.errors import PermanentError, RetryError
from penstock_worker.sinks.batches.writer import InDoubt, Part


class Fenced(RetryError):
    """Somebody else ended the id."""


class MemoryTransactionLog:
    """Keeps the port `TransactionLog`, for any number of tasks. `payloads`: what is in, by shard, in
    order."""

    def __init__(self, at: Callable[[str], None] | None = None) -> None:
        self.payloads: dict[str, list[bytes]] = {}
        self.at = at or (lambda _: None)
        self._last: dict[str, int] = {}
        self._epochs: dict[str, int] = {}

    def begin(self, id_: str) -> MemoryTransactions:
        self.at("begin")
        if id_ in self._epochs:
            raise PermanentError(f"{id_} was somebody's already")
        self._epochs[id_] = 1
        self._last[id_] = 0
        return MemoryTransactions(self, id_)

    def last(self, id_: str) -> int:
        self.at("last")
        return self._last.get(id_, -1)

    def end(self, id_: str) -> int:
        self.at("end")
        self._epochs[id_] = self._epochs.get(id_, 0) + 1
        return self._last.get(id_, 0)

    def is_of(self, id_: str, epoch: int) -> bool:
        return self._epochs[id_] == epoch

    def commit(self, id_: str, number: int, parts: Sequence[Part]) -> None:
        self._last[id_] = number
        for part in parts:
            self.payloads.setdefault(part.shard, []).extend(part.payloads)


class MemoryTransactions:
    """Keeps the port `Transactions`."""

    def __init__(self, log: MemoryTransactionLog, id_: str) -> None:
        self._log = log
        self._id = id_
        self._epoch = 1

    def write(self, number: int, parts: Sequence[Part]) -> None:
        self._log.at("write")
        if not self._log.is_of(self._id, self._epoch):
            raise Fenced(f"{self._id} has ended")
        self._log.at("commit")
        if not self._log.is_of(self._id, self._epoch):
            raise InDoubt(f"{self._id} has ended")
        self._log.commit(self._id, number, parts)
        self._log.at("committed")

    def abandon(self) -> None:
        """What is not committed leaves nothing here."""

    def close(self) -> None:
        """Nothing is open."""
