"""Sinks: the port (`writer`), its kinds' writers, and the registry that says which is whose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.connectors.console import ConsoleSink
from penstock.connectors.data_source import DataSourceSink
from penstock.connectors.files import JsonlSink
from penstock.connectors.foreach import ForeachSink
from penstock.dataflow.schema import Schema
from penstock.dataflow.sink import Sink
from penstock_worker.sinks.console import ConsoleSinkWriter
from penstock_worker.sinks.data_source import DataSourceSinkWriter
from penstock_worker.sinks.foreach import ForeachSinkWriter
from penstock_worker.sinks.jsonl import JsonlSinkWriter
from penstock_worker.sinks.writer import SinkPlace, SinkWriter

__all__ = ["SinkPlace", "SinkWriter", "open_writer"]

_WRITERS: Mapping[type[Sink], Callable[[Any, Schema, SinkPlace], SinkWriter]] = {
    JsonlSink: JsonlSinkWriter,
    ConsoleSink: lambda sink, schema, _: ConsoleSinkWriter(sink, schema),
    DataSourceSink: DataSourceSinkWriter,
    ForeachSink: ForeachSinkWriter,
}


def open_writer(sink: Sink, schema: Schema, place: SinkPlace) -> SinkWriter:
    """The writer of a sink whose rows are of `schema`."""
    return _WRITERS[type(sink)](sink, schema, place)
