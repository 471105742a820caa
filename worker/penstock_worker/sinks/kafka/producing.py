"""What both ways of delivery share: a producer's settings, handing it messages, and its errors in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.connectors.kafka.client import Settings
from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.failures import AUTHENTICATION, AUTHORIZATION, failure
from penstock.connectors.kafka.sink import KafkaSink
from penstock.errors import PenstockError, PermanentError, RetryError
from penstock_worker.sinks.batches.writer import Part
from penstock_worker.sinks.kafka.messages import Messages

FIND_S = 10.0
QUEUE_POLL_S = 0.05
DELIVERY_TIMEOUT_MS = 30_000
"""A message that no broker takes for so long fails its batch, which is tried again."""

_FOR_GOOD = (
    AUTHENTICATION
    | AUTHORIZATION
    | {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
    }
)
"""What a message is refused for, however often it is sent."""


class Delivery:
    """Hands batches to a producer and notes why messages failed. `settings` has credentials as they are now,
    for each client that is made anew."""

    def __init__(self, sink: KafkaSink, messages: Messages, settings: Callable[[], Settings]) -> None:
        self.sink = sink
        self._messages = messages
        self._settings = settings
        self._refused: KafkaError | None = None
        self._refused_topic = ""

    @property
    def connection(self) -> KafkaConnection:
        return self.sink.connection

    @property
    def settings(self) -> Settings:
        """Raises PermanentError when the Secret lacks something."""
        return self._settings()

    def producer(self, settings: Settings) -> Producer:
        return Producer(
            {
                **self.settings,
                # What it has to say of brokers that are away is said in the words of errors.
                "log_level": 2,
                "compression.type": self.sink.compression,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "retry.backoff.ms": 10,
                "linger.ms": 5,
                "delivery.report.only.error": True,
                "on_delivery": self._on_delivery,
                **settings,
            }
        )

    def find_topic(self, producer: Producer) -> None:
        """Raises PermanentError when the sink's topic is not there."""
        topic = self.sink.topic
        try:
            found = producer.list_topics(topic, timeout=FIND_S).topics[topic].error
        except KafkaException as error:
            raise self.failed(error.args[0]) from error
        if found is None:
            return
        if found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise PermanentError(
                f"there is no topic {topic} in Kafka at {self.connection}; make it, or name another one"
            )
        raise self.failed(found)

    def hand_over(self, producer: Producer, parts: Iterable[Part]) -> None:
        """Give all messages to the producer's queue. Raises KafkaException, and PermanentError for a message
        that is too large."""
        self._refused = None
        for part in parts:
            for payload in part.payloads:
                self._produce(producer, payload)

    def refusal(self) -> PenstockError | None:
        """Why a message was refused since the last `hand_over`."""
        if self._refused is None:
            return None
        return self.failed(self._refused, self._refused_topic)

    def failed(self, error: KafkaError, topic: str = "") -> PenstockError:
        """A producer that was fenced, or whose transaction has to be aborted, is followed by a new one."""
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return self._too_large(topic or self.sink.topic)
        if error.code() not in _FOR_GOOD and (error.fatal() or error.txn_requires_abort()):
            return RetryError(
                f"Kafka at {self.connection} ended what was under way ({error.str()}); it is written anew"
            )
        return failure(error, self.connection, f"write topic {topic or self.sink.topic}")

    def _produce(self, producer: Producer, payload: bytes) -> None:
        for topic, key, value, headers, timestamp_ms in self._messages.of(payload):
            while True:
                try:
                    producer.produce(topic, value, key, headers=headers, timestamp=max(0, timestamp_ms))
                    break
                except BufferError:
                    producer.poll(QUEUE_POLL_S)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                        raise self._too_large(topic) from error
                    raise

    def _too_large(self, topic: str) -> PermanentError:
        return PermanentError(
            f"a message is larger than topic {topic} in Kafka at {self.connection} takes; raise the topic's "
            "max.message.bytes, or write smaller rows"
        )

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._refused is None:
            self._refused, self._refused_topic = error, message.topic() or ""
