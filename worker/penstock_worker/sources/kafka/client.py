"""The client library's consumer, as one task reads with it: partitions by name, errors in words, never a
wait.

The library fetches in threads of its own, up to a bound; what it has is taken from it at once or not at all.
Neighbours: `partition` holds what came, `topic_ids` and `places` ask through the same client's other half.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.connectors.kafka.client import Settings, client_settings
from penstock.connectors.kafka.failures import AUTHENTICATION, AWAY, failure
from penstock.connectors.kafka.position import KafkaPosition
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.secrets import Secret
from penstock.errors import PenstockError
from penstock_worker.sources.kafka.partition import Partition

_LOG = logging.getLogger(__name__)

_TAKEN_MAX = 2048
"""Records that are taken from the library at once."""
_AWAY_TOLD_US = 10_000_000
_SERVE_US = 100_000
_LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
_ISOLATION = {"ReadCommitted": "read_committed", "ReadUncommitted": "read_uncommitted"}
FETCH: Settings = {
    # What is fetched and not taken yet, over all partitions of a task.
    "queued.max.messages.kbytes": 16_384,
    "queued.min.messages": 10_000,
    # A full queue is looked at again after this; the library waits a second by default.
    "fetch.queue.backoff.ms": 10,
    # A leader that moved is looked for after this. Also how long a topic that was made anew is silent at
    # least (`reader.SILENT_US`).
    "fetch.error.backoff.ms": 500,
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
ASKING: Settings = {
    # Topics are asked for at the broker that the last list of brokers calls the controller. Where that one
    # has died the library connects to it again and again without a rest, until the next list: a core's work.
    # By default that comes after five minutes, for a client without topics of its own.
    "topic.metadata.refresh.interval.ms": 2000,
}


class KafkaClient:
    """Of one task. Raises PermanentError when the Secret lacks something."""

    def __init__(self, operator: str, source: KafkaSource, secrets: Path) -> None:
        self._operator = operator
        self._source = source
        self._secrets = secrets
        self._secret_digest = self._digest()
        self.refused: PenstockError | None = None
        """Why nobody lets this client in, at the moment."""
        self.refused_us: int | None = None
        self._errors: list[KafkaError] = []
        self._told_us: int | None = None
        self.is_away = False
        self._served_us = 0
        self._consumer, self.admin = self._made()
        self._by_name: dict[tuple[str, int], Partition] = {}

    def _made(self) -> tuple[Consumer, AdminClient]:
        settings = {
            **client_settings(self._source.connection, self._secrets),
            "error_cb": self._note,
            # What fails is told by `error_cb`; the library would write a line for each try.
            "log_level": 2,
        }
        of_consumer = {
            **settings,
            **FETCH,
            "group.id": self._source.group or f"penstock.{self._operator}",
            "isolation.level": _ISOLATION[self._source.isolation],
        }
        try:
            consumer = Consumer(of_consumer, logger=_LOG)
            return consumer, AdminClient({**settings, **ASKING}, logger=_LOG)
        except KafkaException as error:
            raise failure(error.args[0], self._source.connection, "make a client") from error

    # --- partitions ------------------------------------------------------------------------------

    def assign(self, partition: Partition, position: KafkaPosition, now_us: int) -> None:
        """Read it from here on."""
        partition.begin(position)
        if partition.is_assigned:
            self._consumer.incremental_unassign([_name(partition)])
        offset = OFFSET_BEGINNING if position.offset < 0 else position.offset
        if position.leader_epoch < 0:
            place = TopicPartition(partition.topic, partition.number, offset)
        else:
            place = TopicPartition(
                partition.topic, partition.number, offset, leader_epoch=position.leader_epoch
            )
        self._by_name[partition.topic, partition.number] = partition
        self._consumer.incremental_assign([place])
        partition.is_assigned, partition.is_paused = True, False
        partition.came_us = now_us

    def release(self, partition: Partition) -> None:
        self._by_name.pop((partition.topic, partition.number), None)
        if partition.is_assigned:
            partition.is_assigned = False
            self._consumer.incremental_unassign([_name(partition)])

    def serve(self, now_us: int) -> None:
        """Let the library call back: what it has to say of errors, and for a bearer's token. Reading does so
        too, where something is assigned."""
        if now_us >= self._served_us + _SERVE_US:
            self._served_us = now_us
            self.admin.poll(0)
            if not self._by_name:
                self.pull(now_us)
            self._look_at_errors(now_us)

    def pull(self, now_us: int) -> bool:
        """Take what has come; True when something did."""
        came = self._consumer.consume(_TAKEN_MAX, 0)
        self._look_at_errors(now_us)
        for message in came:
            partition = self._by_name.get((message.topic() or "", message.partition() or 0))
            if partition is not None:
                self._take(partition, message, now_us)
        if came:
            self.answered()
        return bool(came)

    def _take(self, partition: Partition, message: Message, now_us: int) -> None:
        error = message.error()
        if error is None:
            partition.came(message, now_us)
            if partition.is_full and not partition.is_paused:
                partition.is_paused = True
                self._consumer.pause([_name(partition)])
        elif error.code() == KafkaError._PARTITION_EOF:
            partition.ended(message.offset() or 0, now_us)
        elif error.code() in _LOST:
            partition.lost, partition.lost_us = error.str(), now_us
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            partition.denied = error
        else:
            # Others pass, or are found out by the topic's id.
            _LOG.warning("source %s: topic %s: %s", self._operator, partition.topic, error.str())

    def read_on(self, partition: Partition) -> None:
        """It has room again."""
        if partition.is_paused and not partition.is_full:
            partition.is_paused = False
            self._consumer.resume([_name(partition)])

    def high(self, partition: Partition) -> int:
        """The offset behind the last record that the cluster told of; -1 when it did not."""
        try:
            ends = self._consumer.get_watermark_offsets(_name(partition), cached=True)
        except KafkaException:
            return -1
        return -1 if ends is None else ends[1]

    def write_back(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """For tools to see; nobody waits for it, and what fails is written again with the next ones."""
        places = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as error:
            _LOG.debug("source %s: offsets are not written to its group: %s", self._operator, error)

    # --- errors ----------------------------------------------------------------------------------

    def _note(self, error: KafkaError) -> None:
        """Called by the library within `consume` and `poll`."""
        self._errors.append(error)

    def _look_at_errors(self, now_us: int) -> None:
        errors, self._errors = self._errors, []
        for error in errors:
            self._look_at(error, now_us)

    def _look_at(self, error: KafkaError, now_us: int) -> None:
        if error.code() in AUTHENTICATION or error.code() == KafkaError._SSL:
            self.refused = failure(error, self._source.connection, "log in")
            self.refused_us = self.refused_us or now_us
        elif error.code() in AWAY:
            self.is_away = True
            self.tell_away(failure(error, self._source.connection, "read"), now_us)
        else:
            _LOG.warning("source %s: %s", self._operator, error.str())

    def tell_away(self, error: PenstockError, now_us: int) -> None:
        """Into the log, now and then: somebody is waited for."""
        if self._told_us is None or now_us >= self._told_us + _AWAY_TOLD_US:
            self._told_us = now_us
            _LOG.warning("source %s waits: %s", self._operator, error)

    def answered(self) -> None:
        """The cluster is there, and lets this client in."""
        if self.is_away:
            _LOG.warning("source %s: Kafka answers again", self._operator)
        self.is_away = False
        self._told_us = None
        self.refused = self.refused_us = None

    def renewed(self) -> bool:
        """Make the client anew if its Secret was changed; partitions have to be assigned again then."""
        digest = self._digest()
        if digest == self._secret_digest:
            return False
        self._consumer.close()
        self._secret_digest = digest
        self._consumer, self.admin = self._made()
        self._by_name.clear()
        self.refused = self.refused_us = None
        return True

    def _digest(self) -> int:
        secret = self._source.connection.secret
        return 0 if secret is None else Secret(secret, self._secrets).digest

    def close(self) -> None:
        self._consumer.close()


def _name(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.number)
