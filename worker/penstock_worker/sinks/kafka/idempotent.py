"""At least once: an idempotent producer, each batch flushed before it is acknowledged."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaException, Producer

from penstock.errors import RetryError
from penstock_worker.sinks.batches.writer import Outcome, Part
from penstock_worker.sinks.kafka.producing import DELIVERY_TIMEOUT_MS, Delivery

LINGER_MS = 1_000
"""A flush does not wait for it. Without, each message that finds the library's thread awake is a request of
its own, which costs that thread and the broker more than the message."""


class IdempotentWriter:
    """A batch that failed is written again, and what of it was in comes twice."""

    gather_us = 0
    is_asked = False

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._producer: Producer | None = None

    def next_name(self) -> bytes:
        raise AssertionError("batches that nobody asks for have no name")

    def outcome(self, name: bytes, *, fence: bool) -> Outcome:
        raise AssertionError("nobody knows what became of a batch that failed")

    def write(self, name: bytes, parts: Sequence[Part]) -> None:
        producer = self._producer
        if producer is None:
            producer = self._delivery.producer({"linger.ms": LINGER_MS})
            self._delivery.find_topic(producer)
            self._producer = producer
        try:
            self._delivery.hand_over(producer, parts)
            left = producer.flush(2 * DELIVERY_TIMEOUT_MS / 1000)
        except KafkaException as error:
            self._give_up(producer)
            raise self._delivery.failed(error.args[0]) from error
        refusal = self._delivery.refusal()
        if refusal is not None or left:
            self._give_up(producer)
            raise refusal or RetryError(f"Kafka at {self._delivery.connection} does not answer; trying again")

    def close(self) -> None:
        if self._producer is not None:
            self._give_up(self._producer)

    def _give_up(self, producer: Producer) -> None:
        """Nothing of it comes later, behind what a new one writes."""
        producer.purge()
        self._producer = None
