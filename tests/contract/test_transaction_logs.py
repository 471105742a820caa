"""The port of systems that take batches as transactions: one suite for the twin and for Kafka. And what of
Kafka's two ways of delivery only a real broker shows."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from backends.kafka_broker import KafkaBroker
from penstock.connectors.kafka.client import Settings, client_settings
from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.sink import KafkaSink
from penstock.dataflow.schema import Column, Schema
from penstock.errors import PermanentError, RetryError
from penstock.store.codec import decode_batch, encode_batch
from penstock_simulation.twins.memory_transactions import MemoryTransactionLog
from penstock_worker.sinks.batches.transactional import TransactionLog
from penstock_worker.sinks.batches.writer import InDoubt, Part
from penstock_worker.sinks.kafka.idempotent import IdempotentWriter
from penstock_worker.sinks.kafka.messages import Messages
from penstock_worker.sinks.kafka.producing import Delivery
from penstock_worker.sinks.kafka.transactions import KafkaTransactionLog

SCHEMA = Schema((Column("shard", "string"), Column("n", "int")))


class Backend(Protocol):
    log: TransactionLog

    def found(self) -> dict[str, list[int]]:
        """Shard -> numbers of its rows, in the order in which a reader of what is in sees them."""


class MemoryBackend:
    def __init__(self) -> None:
        self.log = self._log = MemoryTransactionLog()

    def found(self) -> dict[str, list[int]]:
        rows = {
            shard: [row[1] for payload in payloads for row in decode_batch(payload).rows]
            for shard, payloads in self._log.payloads.items()
        }
        return {shard: numbers for shard, numbers in rows.items() if numbers}


class KafkaBackend:
    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._topic = broker.fresh_topic(2)
        self.log = log_of(broker.bootstrap, self._topic)

    def found(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for message in self._broker.committed(self._topic):
            found[(message.key() or b"").decode()].append(int(message.value() or b""))
        return dict(found)


def log_of(bootstrap: str, topic: str) -> KafkaTransactionLog:
    return KafkaTransactionLog(delivery_to(bootstrap, topic))


def delivery_to(bootstrap: str, topic: str, settings: Settings | None = None) -> Delivery:
    """`settings` are the client library's own."""
    connection = KafkaConnection(tuple(bootstrap.split(",")))
    sink = KafkaSink("wire", connection, topic, None, "shard", "value", None, True, 0, "none")
    schema = Schema((Column("shard", "string"), Column("value", "string")))
    return Delivery(
        sink, Messages(sink, schema), lambda: {**client_settings(connection, Path()), **(settings or {})}
    )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    broker.wait_until_ready()
    yield broker
    broker.close()


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
def backend(request: pytest.FixtureRequest) -> Backend:
    return MemoryBackend() if request.param == "memory" else KafkaBackend(request.getfixturevalue("broker"))


def fresh_id() -> str:
    return f"penstock-test-{uuid.uuid4().hex}"


def part(shard: str, *numbers: int) -> Part:
    payloads = tuple(encode_batch([1], [(shard, number)]) for number in numbers)
    return Part(shard, 0, len(numbers), payloads)


def test_a_transaction_is_in_with_its_number(backend: Backend) -> None:
    id_ = fresh_id()
    transactions = backend.log.begin(id_)
    assert backend.log.last(id_) == 0
    transactions.write(1, [part("mid/0", 1, 2), part("mid/1", 7)])
    transactions.write(2, [part("mid/0", 3)])
    assert backend.log.last(id_) == 2
    assert backend.found() == {"mid/0": [1, 2, 3], "mid/1": [7]}
    transactions.close()


def test_who_had_an_id_that_was_ended_writes_nothing_more(backend: Backend) -> None:
    id_ = fresh_id()
    transactions = backend.log.begin(id_)
    transactions.write(1, [part("mid/0", 1)])
    assert backend.log.end(id_) == 1
    with pytest.raises((RetryError, InDoubt)):
        transactions.write(2, [part("mid/0", 2)])
    transactions.abandon()
    transactions.close()
    assert backend.log.last(id_) == 1
    assert backend.log.end(id_) == 1
    assert backend.found() == {"mid/0": [1]}


def test_ids_keep_numbers_of_their_own(backend: Backend) -> None:
    first, second = fresh_id(), fresh_id()
    one, two = backend.log.begin(first), backend.log.begin(second)
    one.write(1, [part("mid/0", 1)])
    two.write(1, [part("mid/1", 1)])
    one.write(2, [part("mid/0", 2)])
    assert (backend.log.last(first), backend.log.last(second)) == (2, 1)
    assert backend.log.end(first) == 2
    two.write(2, [part("mid/1", 2)])
    assert backend.found() == {"mid/0": [1, 2], "mid/1": [1, 2]}
    for each in (one, two):
        each.close()


@pytest.mark.integration
def test_a_topic_that_is_not_there_is_told(broker: KafkaBroker) -> None:
    with pytest.raises(PermanentError, match=r"there is no topic absent in Kafka at .*; make it"):
        log_of(broker.bootstrap, "absent").begin(fresh_id())


@pytest.mark.integration
def test_a_message_that_is_too_large_is_told_and_nothing_of_its_transaction_is_in(
    broker: KafkaBroker,
) -> None:
    topic = broker.fresh_topic(1, {"max.message.bytes": "1000"})
    log, id_ = log_of(broker.bootstrap, topic), fresh_id()
    transactions = log.begin(id_)
    large = Part("mid/0", 0, 1, (encode_batch([1], [("mid/0", "x" * 5_000)]),))
    with pytest.raises(PermanentError, match=f"larger than topic {topic} .* raise the topic's max.mess"):
        transactions.write(1, [part("mid/1", 1), large])
    transactions.abandon()
    transactions.close()
    assert log.end(id_) == 0
    assert broker.committed(topic) == []


@pytest.mark.integration
def test_a_group_that_the_brokers_forgot_is_told(broker: KafkaBroker) -> None:
    log = log_of(broker.bootstrap, broker.fresh_topic(1))
    with pytest.raises(PermanentError, match=r"is not known any more: .* \(offsets.retention.minutes\)"):
        log.end(fresh_id())


@pytest.mark.integration
def test_a_broker_that_is_away_is_waited_for(tmp_path: Path) -> None:
    log = log_of("127.0.0.1:1", "nowhere")
    with pytest.raises(RetryError, match=r"Kafka at 127.0.0.1:1 does not answer \(.*\): it has to run"):
        log.begin(fresh_id())


@pytest.mark.integration
def test_at_least_once_a_batch_is_one_request_a_partition(broker: KafkaBroker) -> None:
    requests = [0]

    def count(statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        requests.append(sum(one["req"].get("Produce", 0) for one in brokers))

    topic = broker.fresh_topic(1)
    told: Settings = {"statistics.interval.ms": 5, "stats_cb": count}
    writer = IdempotentWriter(delivery_to(broker.bootstrap, topic, told))
    for first in range(0, 2_000, 200):
        writer.write(b"", [part("mid/0", *range(first, first + 200))])
    writer.close()
    assert [int(message.value() or b"") for message in broker.committed(topic)] == list(range(2_000))
    assert 0 < max(requests) <= 10
