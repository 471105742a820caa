"""Exactly once: each batch is a transaction, and its number stands in the transaction itself.

With its n-th transaction a producer commits n as an offset of a consumer group that is called as its
transactional id. So whoever knows a batch's name, "ID#n", can ask the group whether the batch is in; and a
producer that begins under the id before, whether it ever will be: what was open is aborted then, and who had
it is fenced. The number is an offset of the sink's topic, partition 0; nobody reads by it.

A number that is named and not committed is the id's last: the next batch has another id. Or its name could
come to be in without a shard that the store says is in it. Record 0037.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.connectors.kafka.failures import failure
from penstock.errors import PermanentError
from penstock_worker.sinks.batches.writer import InDoubt, Outcome, Part
from penstock_worker.sinks.kafka.producing import Delivery

_LOG = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 60_000
CALL_S = 10.0
ASK_S = 20.0
ASK_PAUSE_S = 0.05
_NO_OFFSET = -1001
_SOON = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
"""A coordinator that has just come up, or that has an end of a transaction under way, says so for a while."""


class TransactionalWriter:
    """`base` is the task's own, in all of its starts and those of others: no other producer begins with
    it."""

    is_asked = True

    def __init__(self, delivery: Delivery, base: str) -> None:
        self._delivery = delivery
        self._base = base
        self._attempt = 0
        self._id = ""
        self._number = 0
        """Of the last transaction that is in."""
        self._is_named = False
        """The number behind it was given out."""
        self._producer: Producer | None = None
        self._group: Consumer | None = None
        self._ended: dict[str, int] = {}
        """Ids whose producers will never commit anything again -> the number of the last that is in."""

    @property
    def gather_us(self) -> int:
        return self._delivery.sink.gather_us

    def next_name(self) -> bytes:
        if self._is_named:
            self._give_up()
        if self._producer is None:
            self._begin()
        self._is_named = True
        return f"{self._id}#{self._number + 1}".encode()

    def write(self, name: bytes, parts: Sequence[Part]) -> None:
        if self._producer is None or self._group is None:
            raise AssertionError("a batch has a name first")
        producer, group = self._producer, self._group
        try:
            producer.begin_transaction()
            self._delivery.hand_over(producer, parts)
            metadata = group.consumer_group_metadata()
            producer.send_offsets_to_transaction([self._offset(self._number + 1)], metadata, CALL_S)
        except KafkaException as error:
            self._give_up()
            raise self._delivery.refusal() or self._delivery.failed(error.args[0]) from error
        except PermanentError:
            self._give_up()
            raise
        self._commit(producer)
        self._number += 1
        self._is_named = False

    def outcome(self, name: bytes, *, fence: bool) -> Outcome:
        id_, _, number_text = name.decode().rpartition("#")
        number = int(number_text)
        if id_ == self._id and self._producer is not None:
            return Outcome.IN if number <= self._number else Outcome.OUT
        last = self._ended.get(id_)
        if last is None:
            if not fence:
                # What is open does not count: who asks with isolation would wait for its end.
                last = self._last_of(id_, "read_uncommitted")
                return Outcome.IN if last >= number else Outcome.OPEN
            last = self._ended[id_] = self._fenced(id_)
        return Outcome.IN if number <= last else Outcome.OUT

    def close(self) -> None:
        self._lose_producer()

    # --- this task's own producer

    def _begin(self) -> None:
        """A producer under an id that nobody had, whose group says 0."""
        self._attempt += 1
        id_ = f"{self._base}.{self._attempt}"
        producer = self._transactional(id_)
        self._delivery.find_topic(producer)
        self._start(producer)
        group = self._consumer(id_, "read_committed")
        try:
            _asked(lambda: group.commit(offsets=[self._offset(0)], asynchronous=False))
        except KafkaException as error:
            group.close()
            raise failure(error.args[0], self._delivery.connection, f"keep offsets of group {id_}") from error
        self._id, self._number, self._producer, self._group = id_, 0, producer, group

    def _commit(self, producer: Producer) -> None:
        """Until the outcome is known. A transaction that was aborted is not in; one of a producer that was
        fenced may be: it is asked for."""
        while True:
            try:
                producer.commit_transaction(CALL_S)
                return
            except KafkaException as exception:
                error = exception.args[0]
                if error.txn_requires_abort():
                    self._give_up()
                    raise self._delivery.refusal() or self._delivery.failed(error) from exception
                if error.retriable():
                    _LOG.info("transaction %s#%d: %s", self._id, self._number + 1, error.str())
                    continue
                self._lose_producer()
                raise InDoubt(
                    f"transaction {self._id} has an end that is not known: {error.str()}"
                ) from exception

    def _give_up(self) -> None:
        """The id has ended: nothing that is open will be in, since nobody else commits for this producer."""
        if self._producer is not None:
            try:
                self._producer.abort_transaction(CALL_S)
            except KafkaException as error:
                _LOG.info("sink %s gives up %s: %s", self._delivery.sink.name, self._id, error.args[0].str())
            self._ended[self._id] = self._number
        self._lose_producer()

    def _lose_producer(self) -> None:
        if self._group is not None:
            self._group.close()
        self._producer = self._group = None
        self._is_named = False

    # --- others' producers

    def _fenced(self, id_: str) -> int:
        """The number of the last transaction of a producer that can commit nothing any more."""
        self._start(self._transactional(id_))
        last = self._last_of(id_, "read_committed")
        if last == _NO_OFFSET:
            raise PermanentError(
                f"what became of the last transaction of {id_} is not known any more: the brokers have "
                "forgotten its group (offsets.retention.minutes). See what the end of topic "
                f"{self._delivery.sink.topic} has, and start anew"
            )
        _LOG.info("sink %s: %s is fenced, its last transaction is %d", self._delivery.sink.name, id_, last)
        return last

    def _last_of(self, id_: str, isolation: str) -> int:
        group = self._consumer(id_, isolation)
        try:
            found = _asked(lambda: group.committed([self._offset(0)], timeout=CALL_S))
            return int(found[0].offset)
        except KafkaException as error:
            raise failure(error.args[0], self._delivery.connection, f"read offsets of group {id_}") from error
        finally:
            group.close()

    # --- clients

    def _transactional(self, id_: str) -> Producer:
        settings = {"transactional.id": id_, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        return self._delivery.producer(settings)

    def _start(self, producer: Producer) -> None:
        try:
            producer.init_transactions(CALL_S)
        except KafkaException as error:
            raise self._delivery.failed(error.args[0]) from error

    def _consumer(self, id_: str, isolation: str) -> Consumer:
        settings = {"group.id": id_, "isolation.level": isolation, "enable.auto.commit": False}
        return Consumer({**self._delivery.settings, **settings})

    def _offset(self, number: int) -> TopicPartition:
        return TopicPartition(self._delivery.sink.topic, 0, number)


def _asked(ask: Callable[[], Any]) -> Any:
    """Once more for as long as the broker says that it will know soon."""
    until_s = time.monotonic() + ASK_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _SOON or time.monotonic() >= until_s:
                raise
            time.sleep(ASK_PAUSE_S)
