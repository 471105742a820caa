"""Batches as transactions of a system that keeps, for each id of a writer, the number of its last one.

A batch is called "ID#n": the n-th transaction under an id that is one writer's alone. Whoever knows the name
can ask for the last number under the id, whether it is in; and, once the id has been ended, whether it ever
will be.

A number that is named and not written is the id's last: the next batch has another id. Or a name could come
to be in without a shard of which the store says that it is in it, as that one has another owner by now.
Neighbour: `sinks.kafka.transactions` is such a system.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.errors import PermanentError, RetryError
from penstock_worker.sinks.batches.writer import InDoubt, Outcome, Part


class Transactions(Protocol):
    """Those under one id. One at a time."""

    def write(self, number: int, parts: Sequence[Part]) -> None:
        """A transaction with all of `parts` and the number. RetryError and PermanentError: it is not in, and
        will not be once `abandon` was called. InDoubt: it may be."""

    def abandon(self) -> None:
        """What is open is not to be; raises nothing."""

    def close(self) -> None:
        """Nothing is open, or its outcome is asked for."""


class TransactionLog(Protocol):
    """The system. Every method may raise RetryError and PermanentError."""

    def begin(self, id_: str) -> Transactions:
        """Under an id that nobody had before. Its last number is 0."""

    def last(self, id_: str) -> int:
        """The number of the last transaction that is in; one that is open does not count."""

    def end(self, id_: str) -> int:
        """As `last`, for good: what is open is aborted, and whoever had the id is refused from now on."""


class TransactionalWriter:
    """Keeps the port `BatchWriter`. No other writer of any process has an id that begins with `base`."""

    is_asked = True

    def __init__(self, log: TransactionLog, base: str, gather_us: int) -> None:
        self.gather_us = gather_us
        self._log = log
        self._base = base
        self._attempt = 0
        self._id = ""
        self._number = 0
        """Of the last transaction that is in."""
        self._is_named = False
        """The number behind it was given out."""
        self._transactions: Transactions | None = None
        self._ended: dict[str, int] = {}
        """Ids under which nothing will be written any more, and their last numbers."""

    def next_name(self) -> bytes:
        if self._is_named:
            self._abandon()
        if self._transactions is None:
            self._attempt += 1
            self._id = f"{self._base}.{self._attempt}"
            self._transactions = self._log.begin(self._id)
            self._number = 0
        self._is_named = True
        return f"{self._id}#{self._number + 1}".encode()

    def write(self, name: bytes, parts: Sequence[Part]) -> None:
        if self._transactions is None:
            raise AssertionError("a batch is given its name first")
        try:
            self._transactions.write(self._number + 1, parts)
        except InDoubt:
            self._close()
            raise
        except (RetryError, PermanentError):
            self._abandon()
            raise
        self._number += 1
        self._is_named = False

    def outcome(self, name: bytes, *, fence: bool) -> Outcome:
        id_, _, text = name.decode().rpartition("#")
        number = int(text)
        if self._transactions is not None and id_ == self._id:
            return Outcome.IN if number <= self._number else Outcome.OUT
        if id_ not in self._ended:
            if not fence:
                return Outcome.IN if number <= self._log.last(id_) else Outcome.OPEN
            self._ended[id_] = self._log.end(id_)
        return Outcome.IN if number <= self._ended[id_] else Outcome.OUT

    def close(self) -> None:
        self._close()

    def _abandon(self) -> None:
        """Nobody else writes under the id: what it has is all."""
        if self._transactions is not None:
            self._transactions.abandon()
            self._ended[self._id] = self._number
        self._close()

    def _close(self) -> None:
        if self._transactions is not None:
            self._transactions.close()
        self._transactions = None
        self._is_named = False
