"""Exactly once: each batch is a transaction of Kafka's, and its number stands in the transaction itself.

With its n-th transaction a producer commits n as an offset of a consumer group that is called as its
transactional id. A producer that begins under the same id aborts what is open, and fences who had it. The
number is an offset of the sink's topic, partition 0; nobody reads by it. Record 0038;
`sinks.batches.transactional` says what is made of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.connectors.kafka.failures import failure
from penstock.errors import PermanentError
from penstock_worker.sinks.batches.writer import InDoubt, Part
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


class KafkaTransactionLog:
    """Keeps the port `TransactionLog`."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def begin(self, id_: str) -> KafkaTransactions:
        producer = self._producer(id_)
        self._delivery.find_topic(producer)
        self._init(producer)
        group = self._group(id_, "read_committed")
        try:
            _asked(lambda: group.commit(offsets=[self.offset(0)], asynchronous=False))
        except KafkaException as error:
            group.close()
            raise self._failed(error, f"keep offsets of group {id_}") from error
        return KafkaTransactions(id_, producer, group, self._delivery, self.offset)

    def last(self, id_: str) -> int:
        # Who asks with isolation waits for the end of what is open.
        return self._last_of(id_, "read_uncommitted")

    def end(self, id_: str) -> int:
        self._init(self._producer(id_))
        last = self._last_of(id_, "read_committed")
        if last == _NO_OFFSET:
            raise PermanentError(
                f"what became of the last transaction of {id_} is not known any more: the brokers have "
                "forgotten its group (offsets.retention.minutes). See what the end of topic "
                f"{self._delivery.sink.topic} has, and start anew"
            )
        _LOG.info("sink %s: %s has ended with transaction %d", self._delivery.sink.name, id_, last)
        return last

    def offset(self, number: int) -> TopicPartition:
        return TopicPartition(self._delivery.sink.topic, 0, number)

    def _last_of(self, id_: str, isolation: str) -> int:
        group = self._group(id_, isolation)
        try:
            found = _asked(lambda: group.committed([self.offset(0)], timeout=CALL_S))
        except KafkaException as error:
            raise self._failed(error, f"read offsets of group {id_}") from error
        finally:
            group.close()
        return int(found[0].offset)

    def _producer(self, id_: str) -> Producer:
        settings = {"transactional.id": id_, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        return self._delivery.producer(settings)

    def _init(self, producer: Producer) -> None:
        try:
            producer.init_transactions(CALL_S)
        except KafkaException as error:
            raise self._delivery.failed(error.args[0]) from error

    def _group(self, id_: str, isolation: str) -> Consumer:
        settings = {
            "group.id": id_,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "log_level": 2,
        }
        return Consumer({**self._delivery.settings, **settings})

    def _failed(self, error: KafkaException, did: str) -> Exception:
        return failure(error.args[0], self._delivery.connection, did)


class KafkaTransactions:
    """Keeps the port `Transactions`, under one transactional id."""

    def __init__(
        self,
        id_: str,
        producer: Producer,
        group: Consumer,
        delivery: Delivery,
        offset: Callable[[int], TopicPartition],
    ) -> None:
        self._id = id_
        self._producer = producer
        self._group = group
        self._delivery = delivery
        self._offset = offset

    def write(self, number: int, parts: Sequence[Part]) -> None:
        try:
            self._producer.begin_transaction()
            self._delivery.hand_over(self._producer, parts)
            metadata = self._group.consumer_group_metadata()
            self._producer.send_offsets_to_transaction([self._offset(number)], metadata, CALL_S)
        except KafkaException as error:
            raise self._delivery.refusal() or self._delivery.failed(error.args[0]) from error
        self._commit(number)

    def abandon(self) -> None:
        try:
            self._producer.abort_transaction(CALL_S)
        except KafkaException as error:
            _LOG.info("sink %s gives up %s: %s", self._delivery.sink.name, self._id, error.args[0].str())

    def close(self) -> None:
        self._group.close()

    def _commit(self, number: int) -> None:
        """Until it is known what becomes of it; the library resumes a call whose time was over."""
        while True:
            try:
                self._producer.commit_transaction(CALL_S)
                return
            except KafkaException as exception:
                error = exception.args[0]
                if error.txn_requires_abort():
                    raise self._delivery.refusal() or self._delivery.failed(error) from exception
                if not error.retriable():
                    raise InDoubt(
                        f"how transaction {number} of {self._id} ended is not known: {error.str()}"
                    ) from exception
                _LOG.info("transaction %d of %s: %s", number, self._id, error.str())


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
