"""Kafka as a sink: `messages` makes messages of rows, `transactions` and `idempotent` write batches of them.

Neighbours: `sinks.batches` says when a batch is written, `penstock.connectors.kafka` what of.
"""

from __future__ import annotations

from penstock.connectors.kafka.client import client_settings
from penstock.connectors.kafka.sink import KafkaSink
from penstock.connectors.secrets import secrets_folder
from penstock.dataflow.schema import Schema
from penstock_worker.sinks.batches.transactional import TransactionalWriter
from penstock_worker.sinks.batches.writer import BatchWriter
from penstock_worker.sinks.kafka.idempotent import IdempotentWriter
from penstock_worker.sinks.kafka.messages import Messages
from penstock_worker.sinks.kafka.producing import Delivery
from penstock_worker.sinks.kafka.transactions import KafkaTransactionLog
from penstock_worker.sinks.writer import SinkPlace


def kafka_writer(sink: KafkaSink, schema: Schema, place: SinkPlace) -> BatchWriter:
    secrets = secrets_folder(place.base_dir)
    delivery = Delivery(sink, Messages(sink, schema), lambda: client_settings(sink.connection, secrets))
    if not sink.exactly_once:
        return IdempotentWriter(delivery)
    base = f"penstock-{place.uid}-{sink.name}-{place.task}"
    return TransactionalWriter(KafkaTransactionLog(delivery), base, sink.gather_us)
