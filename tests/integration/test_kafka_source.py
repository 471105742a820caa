"""Kafka as a source, on a real broker: from every start, over every fault, the same position gives the same
rows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from backends.kafka_broker import KafkaBroker
from clocks.eventually import eventually
from penstock.connectors.kafka.position import KafkaPosition, kafka_position
from penstock.connectors.kafka.source import KafkaSource
from penstock.errors import PermanentError
from penstock_worker.sources.kafka.client import KafkaClient
from penstock_worker.sources.kafka.topic_ids import TopicIds
from scenes.kafka_reading import kafka_source, reading

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

OLD_MS = 1_700_000_000_000
"""2023-11-14T22:13:20Z."""
KEEPS_OLD = {"retention.ms": "-1"}
"""Kafka takes no records from the future, and removes old ones at once."""


def numbered(first: int, last: int) -> list[str]:
    return [f"v{number}" for number in range(first, last)]


def of(values: list[str]) -> list[tuple[str]]:
    return [(value,) for value in values]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker to be killed and stopped; a test leaves it running."""
    broker = KafkaBroker(tmp_path_factory.mktemp("mortal"))
    broker.start()
    yield broker
    broker.close()


def test_all_records_are_read_in_order_and_the_position_is_behind_them(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic(2)
    kafka.produce(topic, numbered(0, 3000), partition=0)
    kafka.produce(topic, numbered(3000, 3010), partition=1)
    with reading(kafka_source(kafka, topic), tmp_path) as read:
        assert read.until_rows(3010) == of(numbered(0, 3010))
        assert read.position(f"{topic}/0").offset == 3000
        assert read.longest_read_s < 0.5
        kafka.produce(topic, ["late"], partition=1)
        assert read.until_rows(3011)[-1] == ("late",)


def test_the_same_position_gives_the_same_rows_in_another_process(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, numbered(0, 500))
    source = kafka_source(kafka, topic)
    with reading(source, tmp_path) as first:
        while len(first.all()) < 100:
            first.turn(rows_max=30)
        read, committed = first.all(), dict(first.committed)
    with reading(source, tmp_path, committed=committed) as second:
        assert read + second.until_rows(500 - len(read)) == of(numbered(0, 500))


def test_latest_is_what_comes_after_the_first_look_also_for_who_takes_up_later(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, ["before"])
    source = kafka_source(kafka, topic, startingOffsets="Latest")
    with reading(source, tmp_path) as first:
        first.until(lambda: first.committed.get(f"in/{topic}/0"))
        committed = dict(first.committed)
    kafka.produce(topic, ["after"])
    with reading(source, tmp_path, committed=committed) as second:
        assert second.until_rows(1) == [("after",)]


def test_a_timestamp_begins_at_the_first_record_of_that_time_or_later(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic(2, KEEPS_OLD)
    with kafka.producer() as producer:
        for number in range(10):
            producer.produce(topic, f"v{number}", partition=0, timestamp=OLD_MS + number * 1000)
    source = kafka_source(kafka, topic, startingTimestamp="2023-11-14T22:13:24Z")
    with reading(source, tmp_path) as read:
        assert read.until_rows(6) == of(numbered(4, 10))
        # Nothing of partition 1 is that late: it begins behind its last record.
        read.until(lambda: read.committed.get(f"in/{topic}/1"))
        assert read.position(f"{topic}/1").offset == 0


def test_given_offsets_begin_there_and_the_others_as_is_said(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic(2)
    kafka.produce(topic, numbered(0, 5), partition=0)
    kafka.produce(topic, numbered(5, 10), partition=1)
    source = kafka_source(kafka, topic, startingPositions={topic: {"1": 3}})
    with reading(source, tmp_path) as read:
        assert read.until_rows(7) == of([*numbered(0, 5), *numbered(8, 10)])


def rewound(kafka: KafkaBroker, topic: str, number: int, **place: object) -> KafkaSource:
    return kafka_source(kafka, topic, rewind={"number": number, **place})


def test_a_rewind_is_carried_out_once_for_each_partition_whoever_takes_it_up(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic(2)
    kafka.produce(topic, numbered(0, 10), partition=0)
    kafka.produce(topic, numbered(10, 20), partition=1)
    with reading(kafka_source(kafka, topic), tmp_path) as read:
        read.until_rows(20)
        before = dict(read.committed)
    source = rewound(kafka, topic, 1, positions={topic: {"0": 4}})
    with reading(source, tmp_path, committed=before) as read:
        read.until(lambda: read.position(f"{topic}/0").rewind and read.position(f"{topic}/1").rewind)
        # It is durable before a record is read behind it; who dies here has read none.
        moved = dict(read.committed)
    assert kafka_position(moved[f"in/{topic}/0"]).offset == 4
    assert kafka_position(moved[f"in/{topic}/1"]).offset == 10, "nothing is said of it"
    with reading(source, tmp_path, committed=moved) as read:
        assert read.until_rows(6) == of(numbered(4, 10))
        kafka.produce(topic, ["last"], partition=1)
        assert read.until_rows(7) == of([*numbered(4, 10), "last"])
        after = dict(read.committed)
    # The same number is done; a worker with an older manifest keeps the number.
    for same in (source, rewound(kafka, topic, 1, offsets="Earliest"), kafka_source(kafka, topic)):
        with reading(same, tmp_path, committed=after) as read:
            kafka.produce(topic, ["next"], partition=0)
            assert read.until_rows(1) == of(["next"])
            after = dict(read.committed)
            assert read.position(f"{topic}/0").rewind == 1
    with reading(rewound(kafka, topic, 3, offsets="Earliest"), tmp_path, committed=after) as read:
        assert len(read.until_rows(24)) == 24


def test_a_rewind_goes_to_a_time_or_forward_behind_the_last_record(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic(config=KEEPS_OLD)
    with kafka.producer() as producer:
        for number in range(10):
            producer.produce(topic, f"v{number}", partition=0, timestamp=OLD_MS + number * 1000)
    with reading(kafka_source(kafka, topic), tmp_path) as read:
        while not read.all():
            read.turn(rows_max=1)
        committed = dict(read.committed)
    source = rewound(kafka, topic, 1, offsets="Latest")
    with reading(source, tmp_path, committed=committed) as read:
        read.until(lambda: read.position(f"{topic}/0").offset == 10)
        kafka.produce(topic, ["after"])
        assert read.until_rows(1) == of(["after"])
        committed = dict(read.committed)
    source = rewound(kafka, topic, 2, timestamp="2023-11-14T22:13:28Z")
    with reading(source, tmp_path, committed=committed) as read:
        assert read.until_rows(3) == of(["v8", "v9", "after"])


def test_a_rewind_is_the_way_on_from_a_record_that_cannot_be_read_or_is_gone(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b"\xff", *numbered(1, 10)])
    with reading(kafka_source(kafka, topic), tmp_path) as read:
        with pytest.raises(PermanentError, match="offset 0: the value is not UTF-8"):
            read.until_rows(1)
        committed = dict(read.committed)
    kafka.delete_records(topic, 0, before=7)
    with reading(
        rewound(kafka, topic, 1, positions={topic: {"0": 8}}), tmp_path, committed=committed
    ) as read:
        assert read.until_rows(2) == of(["v8", "v9"])


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ({"timestamp": "2999-01-01T00:00:00Z"}, "goes to 2999-01-01T00:00:00.000Z, which is yet to come"),
        ({"positions": {"T": {"0": 11}}}, "offset 11 is not there; from 0 on records are, up to 10"),
        ({"positions": {"T": {"3": 0}}}, "has an offset for partition 3, and there are 1, from 0 on"),
    ],
)
def test_a_rewind_to_no_place_fails_with_words_and_moves_nothing(
    kafka: KafkaBroker, tmp_path: Path, place: dict[str, Any], says: str
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, numbered(0, 10))
    if "positions" in place:
        place = {"positions": {topic: place["positions"]["T"]}}
    committed = {f"in/{topic}/0": KafkaPosition(5).packed()}
    with reading(rewound(kafka, topic, 1, **place), tmp_path, committed=committed) as read:
        with pytest.raises(PermanentError, match=rf"rewind 1 of topic {topic}.*{says}.*with number 2"):
            read.until_rows(1)
        assert read.committed == committed


def test_an_offset_that_is_not_there_fails_with_words(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic()
    source = kafka_source(kafka, topic, startingPositions={topic: {"0": 50}})
    with (
        reading(source, tmp_path) as read,
        pytest.raises(PermanentError, match=rf"topic {topic}, partition 0: offset 50 is not there"),
    ):
        read.until_rows(1)


def test_offsets_that_retention_passed_by_fail_or_are_left_out_as_is_said(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, numbered(0, 10))
    with reading(kafka_source(kafka, topic), tmp_path) as read:
        while not read.all():
            read.turn(rows_max=1)
        committed = dict(read.committed)
    kafka.delete_records(topic, 0, before=7)
    with (
        reading(kafka_source(kafka, topic), tmp_path, committed=committed) as read,
        pytest.raises(PermanentError, match="retention may have passed by"),
    ):
        read.until_rows(1)
    source = kafka_source(kafka, topic, onLostOffsets="Earliest")
    with reading(source, tmp_path, committed=committed) as read:
        assert read.until_rows(3) == of(numbered(7, 10))


def test_keys_headers_and_metadata_are_columns(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic(config=KEEPS_OLD)
    with kafka.producer() as producer:
        producer.produce(
            topic,
            b'{"amount": 3}',
            key=b"ann",
            headers=[("a", b"1"), ("n", None)],
            timestamp=OLD_MS + 123,
        )
        producer.produce(topic, None, key=None, timestamp=OLD_MS + 124)
    source = kafka_source(
        kafka,
        topic,
        value={"format": "json", "schema": "amount bigint, note string"},
        key={"format": "string", "column": "user"},
        metadata={"headers": "h", "timestamp": "at", "topic": "t", "partition": "p", "offset": "o"},
    )
    assert source.schema.names == ("amount", "note", "user", "at", "t", "p", "o", "h")
    with reading(source, tmp_path) as read:
        assert read.until_rows(2) == [
            (3, None, "ann", (OLD_MS + 123) * 1000, topic, 0, 0, [["a", b"1"], ["n", None]]),
            (None, None, None, (OLD_MS + 124) * 1000, topic, 0, 1, None),
        ]


@pytest.mark.parametrize(
    ("format_", "value", "says"),
    [
        ({"format": "string"}, b"\xff", "the value is not UTF-8"),
        ({"format": "json", "schema": "a int"}, b"{", "the value is no JSON"),
        ({"format": "json", "schema": "a int"}, b'{"a": "x"}', "the value.*a.*int"),
    ],
)
def test_a_record_that_means_nothing_is_named(
    kafka: KafkaBroker, tmp_path: Path, format_: dict[str, str], value: bytes, says: str
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b'{"a": 1}', value])
    with (
        reading(kafka_source(kafka, topic, value=format_), tmp_path) as read,
        pytest.raises(PermanentError, match=rf"topic {topic}, partition 0, offset 1: {says}"),
    ):
        read.until_rows(2)


def test_records_of_transactions_come_when_they_are_committed_and_never_of_aborted_ones(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic()
    with kafka.producer(**{"transactional.id": topic}) as producer:
        producer.init_transactions(30)
        for name, ends in (
            ("kept", producer.commit_transaction),
            ("lost", producer.abort_transaction),
            ("last", producer.commit_transaction),
        ):
            producer.begin_transaction()
            producer.produce(topic, name)
            producer.flush(30)
            ends(30)
    with reading(kafka_source(kafka, topic), tmp_path) as read:
        assert read.until_rows(2) == [("kept",), ("last",)]
        # Three records and the three marks of their transactions: the position is behind all of them.
        read.until(lambda: read.position(f"{topic}/0").offset == 6)
        assert read.all() == [("kept",), ("last",)]


def test_topics_are_found_by_a_pattern_and_missing_ones_are_named(kafka: KafkaBroker, tmp_path: Path) -> None:
    name = kafka.fresh_topic()
    kafka.create_topic(f"{name}.a", 2)
    kafka.create_topic(f"{name}.b")
    source = kafka_source(kafka, "", topicPattern=rf"{name}\.[ab]")
    assert source.parts(tmp_path) == (f"{name}.a/0", f"{name}.a/1", f"{name}.b/0")
    with pytest.raises(PermanentError, match="topic nowhere is not there"):
        kafka_source(kafka, "nowhere").parts(tmp_path)
    with pytest.raises(PermanentError, match=r"no topic matches 'nix\.'"):
        kafka_source(kafka, "", topicPattern="nix.").parts(tmp_path)


def test_a_partition_that_is_added_later_is_read_from_its_first_record(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic()
    source = kafka_source(kafka, topic, startingOffsets="Latest")
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, ["first"], partition=1)
    with reading(source, tmp_path, f"{topic}/1", committed={f"in/{topic}/1": source.late_position}) as read:
        assert read.until_rows(1) == [("first",)]


def test_a_topic_that_is_made_anew_is_not_read_on_at_the_same_offset(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, numbered(0, 3))
    with reading(kafka_source(kafka, topic), tmp_path) as read:
        read.until_rows(3)
        committed = dict(read.committed)
        kafka.delete_topic(topic)
        kafka.create_topic(topic)
        kafka.produce(topic, numbered(100, 110))
        with pytest.raises(PermanentError, match="was deleted and made anew since it was read to offset 3"):
            read.until_rows(4)
        assert read.all() == of(numbered(0, 3))
    with (
        reading(kafka_source(kafka, topic), tmp_path, committed=committed) as again,
        pytest.raises(PermanentError, match="made anew"),
    ):
        again.until_rows(1)
    source = kafka_source(kafka, topic, onLostOffsets="Earliest")
    with reading(source, tmp_path, committed=committed) as anew:
        assert anew.until_rows(10) == of(numbered(100, 110))


def test_a_topic_that_is_gone_is_told(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, ["x"])
    with reading(kafka_source(kafka, topic), tmp_path) as read:
        read.until_rows(1)
        kafka.delete_topic(topic)
        with pytest.raises(PermanentError, match=f"topic {topic} is not there any more"):
            read.until_rows(2)


def test_offsets_are_written_to_the_group_for_others_to_see(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, numbered(0, 20))
    source = kafka_source(kafka, topic)
    assert source.group == "penstock.tests.in"
    asked = ConsumerGroupTopicPartitions(source.group, [TopicPartition(topic, 0)])
    admin = kafka.admin()

    def offset() -> int:
        told = admin.list_consumer_group_offsets([asked])[source.group or ""].result(30)
        return int(told.topic_partitions[0].offset)

    with reading(source, tmp_path) as read:
        read.until_rows(20)
        read.until(lambda: offset() == 20)


def test_what_is_there_and_was_not_read_is_told(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, numbered(0, 100))
    shard = f"in/{topic}/0"
    with reading(kafka_source(kafka, topic), tmp_path) as read:
        while not read.all():
            read.turn(rows_max=10)
        read.for_s(0.2)
        kafka.produce(topic, ["more"])
        read.until(lambda: read.turn(rows_max=1) or read.lag.get(shard) == (0, 0))
        read.until_rows(101)
        read.until(lambda: read.lag[shard] == (0, 0))


def test_a_broker_that_is_killed_is_waited_for_and_nothing_is_lost(
    mortal: KafkaBroker, tmp_path: Path
) -> None:
    topic = mortal.fresh_topic(2)
    mortal.produce(topic, numbered(0, 1000))
    with reading(kafka_source(mortal, topic), tmp_path) as read:
        read.until(lambda: len(read.all()) >= 100)
        mortal.kill()
        read.for_s(3)
        mortal.start()
        mortal.produce(topic, numbered(1000, 2000))
        assert read.until_rows(2000) == of(numbered(0, 2000))
        assert read.longest_read_s < 1


@pytest.mark.slow(held_by="test_a_broker_that_is_killed_is_waited_for_and_nothing_is_lost")
def test_a_leader_that_dies_hands_over_and_nothing_is_lost(tmp_path: Path) -> None:
    brokers = KafkaBroker(tmp_path / "three", nodes=3)
    try:
        brokers.start()
        topic = brokers.fresh_topic(config={"min.insync.replicas": "2"})
        brokers.produce(topic, numbered(0, 500))
        with reading(kafka_source(brokers, topic), tmp_path) as read:
            read.until(lambda: len(read.all()) >= 50)
            brokers.kill(brokers.leader(topic))
            brokers.produce(topic, numbered(500, 1000))
            assert read.until_rows(1000) == of(numbered(0, 1000))
    finally:
        brokers.close()


@pytest.mark.slow(held_by="test_a_broker_that_is_killed_is_waited_for_and_nothing_is_lost")
def test_topics_are_told_of_soon_where_the_broker_dies_that_is_asked_for_them(tmp_path: Path) -> None:
    brokers = KafkaBroker(tmp_path / "three", nodes=3)
    try:
        brokers.start()
        topic = brokers.fresh_topic()
        client = KafkaClient("in", kafka_source(brokers, topic), tmp_path)
        ids = TopicIds(client.admin)
        now_us = itertools.count(1, 1_000_000_000)

        def told_of(since_us: int) -> bool:
            ids.look({topic}, next(now_us))
            return ids.id_of(topic, since_us) is not None

        eventually(lambda: told_of(0), "the topic is told of")
        brokers.kill(client.admin.list_topics(timeout=10).controller_id)
        since_us = next(now_us)
        began_s = time.process_time()
        eventually(lambda: told_of(since_us), "the topic is told of again", 20)
        # As long as it takes the client library connects without a rest: a core's work.
        assert time.process_time() - began_s < 5
        client.close()
    finally:
        brokers.close()


def test_a_broker_that_stands_still_is_waited_for(mortal: KafkaBroker, tmp_path: Path) -> None:
    topic = mortal.fresh_topic()
    mortal.produce(topic, ["before"])
    with reading(kafka_source(mortal, topic), tmp_path) as read:
        read.until_rows(1)
        mortal.pause()
        assert read.for_s(2) == [("before",)]
        mortal.resume()
        mortal.produce(topic, ["behind"])
        assert read.until_rows(2) == [("before",), ("behind",)]


def test_a_partition_that_nobody_reads_holds_up_no_other_one(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic(2)
    kafka.produce(topic, ["x" * 10_000] * 3000, partition=0)
    kafka.produce(topic, numbered(0, 2000), partition=1)
    source = kafka_source(kafka, topic)
    with reading(source, tmp_path) as read:
        held = read.rows.pop(f"in/{topic}/0")
        assert read.until_rows(2000) == of(numbered(0, 2000))
        read.rows[f"in/{topic}/0"] = held
        assert len(read.until_rows(5000)) == 5000
