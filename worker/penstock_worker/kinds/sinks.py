"""Sinks: whose writer is which, and the sinks of a task put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.connectors.console import ConsoleSink
from penstock.connectors.data_source import DataSourceSink
from penstock.connectors.files import JsonlSink
from penstock.connectors.foreach import ForeachSink
from penstock.connectors.kafka.sink import KafkaSink
from penstock.dataflow.plan import Stage
from penstock.dataflow.schema import Schema
from penstock.dataflow.sink import Sink
from penstock.store.port import NodeStore
from penstock_worker.process.clock import Clock
from penstock_worker.sinks.batches.sinks import BatchedSinks
from penstock_worker.sinks.batches.turns import BatchTurns
from penstock_worker.sinks.batches.writer import BatchWriter
from penstock_worker.sinks.console import ConsoleSinkWriter
from penstock_worker.sinks.data_source import DataSourceSinkWriter
from penstock_worker.sinks.delivery import SinkDelivery
from penstock_worker.sinks.foreach import ForeachSinkWriter
from penstock_worker.sinks.jsonl import JsonlSinkWriter
from penstock_worker.sinks.kafka import kafka_writer
from penstock_worker.sinks.writer import SinkPlace, SinkWriter

_WRITERS: Mapping[type[Sink], Callable[[Any, Schema, SinkPlace], SinkWriter]] = {
    JsonlSink: JsonlSinkWriter,
    ConsoleSink: lambda sink, schema, _: ConsoleSinkWriter(sink, schema),
    DataSourceSink: DataSourceSinkWriter,
    ForeachSink: ForeachSinkWriter,
}
_BATCH_WRITERS: Mapping[type[Sink], Callable[[Any, Schema, SinkPlace], BatchWriter]] = {
    KafkaSink: kafka_writer,
}


def open_batch_writer(sink: Sink, schema: Schema, place: SinkPlace) -> BatchWriter | None:
    """The writer of a sink that is written in batches, apart from the hot path; None for the others."""
    make = _BATCH_WRITERS.get(type(sink))
    return None if make is None else make(sink, schema, place)


def open_writer(sink: Sink, schema: Schema, place: SinkPlace) -> SinkWriter:
    """The writer of a sink whose rows are of `schema`."""
    return _WRITERS[type(sink)](sink, schema, place)


def open_sinks(
    stage: Stage, place: SinkPlace, clock: Clock, open_store: Callable[[], NodeStore], *, prints: bool
) -> SinkDelivery:
    """The sinks of one task. With `prints` the console's too; else somebody else delivers these. `open_store`
    makes another connection, for sinks that are written apart from the task's loop."""
    writers: dict[str, SinkWriter] = {}
    batched: dict[str, BatchWriter] = {}
    for sink, schema in stage.all_sinks():
        if (batch_writer := open_batch_writer(sink, schema, place)) is not None:
            batched[sink.name] = batch_writer
        elif prints or not sink.is_shown:
            writers[sink.name] = open_writer(sink, schema, place)
    turns = {name: BatchTurns(name, writer, open_store(), clock) for name, writer in batched.items()}
    return SinkDelivery(writers, BatchedSinks(turns), durable=place.durable)
