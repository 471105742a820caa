"""Sinks: the port (`writer`), its kinds' writers, and the registry that says which is whose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.connectors.console import ConsoleSink
from penstock.connectors.files import JsonlSink
from penstock.connectors.kafka.sink import KafkaSink
from penstock.dataflow.schema import Schema
from penstock.dataflow.sink import Sink
from penstock_worker.sinks.batches.writer import BatchWriter
from penstock_worker.sinks.console import ConsoleSinkWriter
from penstock_worker.sinks.jsonl import JsonlSinkWriter
from penstock_worker.sinks.kafka import kafka_writer
from penstock_worker.sinks.writer import SinkPlace, SinkWriter

__all__ = ["BatchWriter", "SinkPlace", "SinkWriter", "open_batch_writer", "open_writer"]

_WRITERS: Mapping[type[Sink], Callable[[Any, Schema, SinkPlace], SinkWriter]] = {
    JsonlSink: JsonlSinkWriter,
    ConsoleSink: lambda sink, schema, _: ConsoleSinkWriter(sink, schema),
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
