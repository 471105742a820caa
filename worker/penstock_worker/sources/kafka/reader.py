"""Topics of Kafka as a source: one shard a partition, one row a record.

A position is the next offset, committed with what the rows made; where nothing was read, the place to begin
is found out and committed first, so whoever goes on after a kill begins there too. A broker that is away is
waited for. Neighbours: `client` fetches, `partition` holds what came, `formats` makes rows of records,
`topic_ids` says whether a topic is the one that was read.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from confluent_kafka import KafkaException, Message

from penstock.connectors.kafka.failures import failure
from penstock.connectors.kafka.position import FIRST, KafkaPosition, kafka_position
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.kafka.topics import partition_of
from penstock.connectors.secrets import secrets_folder
from penstock.dataflow.partitions import part_of
from penstock.errors import PermanentError, RetryError
from penstock_worker.sources.kafka.client import KafkaClient
from penstock_worker.sources.kafka.formats import KeptRecord, RecordRows, shown_record
from penstock_worker.sources.kafka.partition import Partition
from penstock_worker.sources.kafka.places import Places
from penstock_worker.sources.kafka.rewinds import Rewinds
from penstock_worker.sources.kafka.topic_ids import TopicIds
from penstock_worker.sources.reader import SourceBatch

_LOG = logging.getLogger(__name__)

LOOK_US_MIN = 1_000
LOOK_US_MAX = 5_000
"""What has come is looked for so often: within 10 ms of the last record every millisecond, more seldom later.
A look that finds nothing takes 10 us; a source without records 3 to 4 % of a core, the library's threads
included."""
_LOOK_PART = 10
"""A look is after this part of the time for which nothing came."""
_AWAY_LOOK_US = 20_000
_WRITE_BACK_US = 5_000_000
_HIGH_US = 100_000
"""A partition's end is looked up so often."""
_RETRY_US = 1_000_000
_MARKS_US = 1_000_000
"""What was read without a row (marks of transactions) is committed so often, while nothing else comes."""
_REFUSED_US = 120_000_000
"""Credentials may be changed at the brokers first, and in the Secret later."""


class KafkaReader:
    """Reads the partitions of one source with one consumer."""

    def __init__(self, operator: str, source: KafkaSource, base_dir: Path) -> None:
        self._source = source
        secrets = secrets_folder(base_dir)
        self._rows = RecordRows(source, secrets)
        self._client = KafkaClient(operator, source, secrets)
        self._ids = TopicIds(self._client.admin)
        self._places = Places(self._client.admin)
        self._rewinds = Rewinds(source)
        self._partitions: dict[str, Partition] = {}
        self._committed: dict[tuple[str, int], int] = {}
        self._write_back_us = 0
        self._came_us = 0
        self._look_us = 0

        self._spares = False

    def spare(self) -> None:
        self._spares = True

    def record_of(self, raw: Any) -> object:
        return shown_record(raw)

    def rows_again(self, raw: Any) -> list[tuple[Any, ...]]:
        try:
            return self._rows.rows([cast("Message", KeptRecord(raw))])
        except RetryError as error:
            raise PermanentError(str(error)) from error

    @property
    def paced(self) -> bool:
        return True

    def open(self, shard: str, position: bytes, now_us: int) -> None:
        self.release(shard)
        topic, number = partition_of(part_of(shard))
        self._partitions[shard] = Partition(shard, topic, number)
        self._came_us = now_us

    def release(self, shard: str) -> None:
        partition = self._partitions.pop(shard, None)
        if partition is not None:
            self._client.release(partition)
            self._places.forget(partition.topic, partition.number)

    def grew(self, shard: str, position: bytes) -> bool:
        """A partition has no end."""
        return False

    def close(self) -> None:
        if self._committed:
            self._client.write_back(self._committed)
        self._partitions.clear()
        self._client.close()

    def read(self, shard: str, position: bytes, rows_max: int, bytes_max: int, now_us: int) -> SourceBatch:
        partition = self._partitions[shard]
        at = kafka_position(position) if position else None
        self._keep(now_us)
        self._check(partition)
        topic_id = self._ids.id_of(partition.topic)
        offset = FIRST if at is None else at.offset
        has_some = partition.at(offset)
        if not partition.is_assigned or (partition.lost and not has_some):
            moved = self._begun(partition, at, topic_id, now_us)
            if moved is not None:
                return _nothing(moved.packed(), now_us)
            if not partition.is_assigned:
                return _nothing(position, self._next_look_us(now_us))
            has_some = False
        self._client.read_on(partition)
        if not has_some and self._pull(now_us):
            has_some = partition.at(offset)
        if has_some and not self._is_same_topic(partition, now_us):
            return _nothing(position, now_us + LOOK_US_MIN)
        taken = cast("list[Message]", partition.some(rows_max, bytes_max)) if has_some else []
        if not taken:
            return self._without_rows(partition, position, at, now_us)
        after = partition.behind(taken, at, partition.topic_id)
        try:
            rows, bad = self._rows.sparing(taken) if self._spares else (self._rows.rows(taken), [])
        except RetryError as error:
            # What else the cluster needs is away, such as a schema registry.
            self._client.tell_away(error, now_us)
            return _nothing(position, now_us + _RETRY_US)
        partition.moved_us = now_us
        partition.read_ms = max(taken[-1].timestamp()[1], 0)
        return SourceBatch(
            rows,
            [now_us] * len(rows),
            after.packed(),
            finished=False,
            bad=bad,
            next_due_us=now_us if partition.has_more(taken) else self._next_look_us(now_us),
            lag=self._lag(partition, after.offset, now_us),
        )

    # --- what is asked of the cluster beside records --------------------------------------------------

    def _keep(self, now_us: int) -> None:
        """What is due: topics' ids, offsets for the group, another login."""
        self._client.serve(now_us)
        topics = {partition.topic for partition in self._partitions.values()}
        if self._ids.look(topics, now_us):
            self._client.answered()
        if now_us >= self._write_back_us:
            self._write_back_us = now_us + _WRITE_BACK_US
            if self._committed:
                self._client.write_back(self._committed)
                self._committed = {}
            if self._client.refused is not None and self._client.renewed():
                self._ids = TopicIds(self._client.admin)
                self._places = Places(self._client.admin)
                for partition in self._partitions.values():
                    partition.is_assigned = False
        refused_us = self._client.refused_us
        if self._client.refused is not None and refused_us is not None and now_us > refused_us + _REFUSED_US:
            raise self._client.refused

    def _check(self, partition: Partition) -> None:
        """Raises PermanentError when there is nothing to read any more."""
        denied = partition.denied or self._ids.denied(partition.topic)
        if denied is not None:
            raise failure(denied, self._source.connection, f"read topic {partition.topic}")
        if self._ids.is_gone(partition.topic) and self._source.on_lost != "Earliest":
            raise PermanentError(
                f"topic {partition.topic} is not there any more, of Kafka at {self._source.connection}: make "
                "it again and start anew, or set onLostOffsets: Earliest to wait for it"
            )

    def _begun(
        self, partition: Partition, at: KafkaPosition | None, topic_id: str | None, now_us: int
    ) -> KafkaPosition | None:
        """Begin to read, once it is known where; a position that is to be committed before."""
        if partition.lost:
            topic_id = self._ids.id_of(partition.topic, partition.lost_us)
            if topic_id is None:
                self._ids.ask_soon()
        if topic_id is None:
            return None
        if at is None or self._rewinds.is_due(at):
            return self._placed(partition, at, topic_id, now_us)
        if at.topic_id not in ("", topic_id):
            return self._lost(partition, at, self._made_anew(partition, at), topic_id)
        if partition.lost and at.offset >= 0:
            return self._lost(
                partition,
                at,
                f"topic {partition.topic}, partition {partition.number}: offset {at.offset} is not there "
                f"({partition.lost}): retention may have passed by before it was read. Start anew, or set "
                "onLostOffsets: Earliest to go on with the first record that is there",
                topic_id,
            )
        partition.topic_id = topic_id
        partition.moved_us = now_us
        self._client.assign(partition, at, now_us)
        return None

    def _placed(
        self, partition: Partition, at: KafkaPosition | None, topic_id: str, now_us: int
    ) -> KafkaPosition | None:
        """Where it begins, or is read on by a rewind; None while the cluster has not answered."""
        topic, number = partition.topic, partition.number
        try:
            if at is None:
                place = self._begins(topic, number, topic_id)
            else:
                partitions = self._ids.partitions_of(topic)
                place = self._rewinds.moved(partition, at, topic_id, partitions, self._places, now_us // 1000)
        except KafkaException as error:
            fault = failure(error.args[0], self._source.connection, f"read topic {topic}")
            if isinstance(fault, RetryError):
                return None
            raise fault from error
        if place is None:
            return None
        self._places.forget(topic, number)
        if at is not None:
            told = "topic %s, partition %d: rewind %d, from offset %d to %d"
            _LOG.info(told, topic, number, place.rewind, at.offset, place.offset)
        return place

    def _begins(self, topic: str, number: int, topic_id: str) -> KafkaPosition | None:
        """Committed too where it is the first record: rewinds that come later are of what was begun."""
        offset = self._places.offset(self._source.start, topic, number)
        if offset is None:
            return None
        # A topic that is made anew before anything of it was read has a first record as well.
        return KafkaPosition(offset, -1, "" if offset == FIRST else topic_id, self._source.rewound)

    def _lost(self, partition: Partition, at: KafkaPosition, message: str, topic_id: str) -> KafkaPosition:
        """What the manifest says of a record that is not there: fail, or begin with the first one that is."""
        if self._source.on_lost != "Earliest":
            raise PermanentError(message)
        self._client.release(partition)
        partition.lost = ""
        return KafkaPosition(FIRST, -1, topic_id, at.rewind)

    def _made_anew(self, partition: Partition, at: KafkaPosition) -> str:
        return (
            f"topic {partition.topic} was deleted and made anew since it was read to offset {at.offset} of "
            f"partition {partition.number}: what was read is not in it. Start anew, or set "
            "onLostOffsets: Earliest to go on with what is in it now"
        )

    # --- records ------------------------------------------------------------------------------------

    def _pull(self, now_us: int) -> bool:
        came = self._client.pull(now_us)
        if came:
            self._came_us = now_us
            self._look_us = 0
        return came

    def _is_same_topic(self, partition: Partition, now_us: int) -> bool:
        """Whether what is there may be handed on. The library reads a topic that was made anew on at the same
        offset; so after a silence the topic's id is asked for, which takes some 3 ms, before that."""
        since_us = partition.unsure_since_us
        if since_us is None:
            return True
        topic_id = self._ids.id_of(partition.topic, since_us)
        if topic_id is None:
            self._ids.ask_soon()
            return False
        partition.unsure_since_us = None
        if topic_id == partition.topic_id:
            return True
        self._client.release(partition)
        return False

    def _without_rows(
        self, partition: Partition, position: bytes, at: KafkaPosition | None, now_us: int
    ) -> SourceBatch:
        if at is not None:
            self._committed[partition.topic, partition.number] = max(at.offset, 0)
            after = partition.behind([], at, partition.topic_id)
            if after.offset > at.offset >= 0 and now_us >= partition.moved_us + _MARKS_US:
                partition.moved_us = now_us
                return _nothing(after.packed(), now_us)
        lag = self._lag(partition, FIRST if at is None else at.offset, now_us)
        return replace(_nothing(position, self._next_look_us(now_us)), lag=lag)

    def _lag(self, partition: Partition, offset: int, now_us: int) -> tuple[int, int] | None:
        if now_us >= partition.high_us + _HIGH_US:
            partition.high_us = now_us
            partition.high = self._client.high(partition)
        return partition.lag(offset, now_us)

    def _next_look_us(self, now_us: int) -> int:
        """When to look again; all partitions at once, so that one look is for all."""
        if self._look_us <= now_us:
            after_us = (now_us - self._came_us) // _LOOK_PART
            most_us = _AWAY_LOOK_US if self._client.is_away else LOOK_US_MAX
            self._look_us = now_us + max(LOOK_US_MIN, min(most_us, after_us))
        return self._look_us


def _nothing(position: bytes, next_due_us: int) -> SourceBatch:
    rows: list[tuple[Any, ...]] = []
    return SourceBatch(rows, [], position, finished=False, next_due_us=next_due_us)
