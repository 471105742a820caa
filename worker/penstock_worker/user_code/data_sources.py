"""A user's Python data source: the class behind a name, and which of its readers and writers there is.

What Spark's planner asks of the class is asked here, without a job. Neighbours: `sources.data_source` reads,
`sinks.data_source` writes, `inspect_code` looks at it before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import StructType

from penstock.errors import PermanentError
from penstock_worker.user_code.running import load_attribute
from penstock_worker.values.wire_values import shown

AnyReader: TypeAlias = DataSourceStreamReader | SimpleDataSourceStreamReader | DataSourceReader

_NEEDED: Mapping[type[object], tuple[str, ...]] = {
    DataSourceStreamReader: ("initialOffset", "latestOffset", "partitions"),
    SimpleDataSourceStreamReader: ("initialOffset", "read", "readBetweenOffsets"),
}
"""What PySpark's own classes raise NOT_IMPLEMENTED for; what is abstract in them Python sees to."""


class NoDataSource(PermanentError):
    """What a manifest names is no data source, or lacks what is asked of it; the message says what."""


def data_source_class(target: str, base_dir: Path) -> type[DataSource]:
    """Raises UserCodeMissing, NoDataSource."""
    found = load_attribute(target, base_dir)
    if not (isinstance(found, type) and issubclass(found, DataSource)):
        raise NoDataSource(f"{target!r} is no subclass of pyspark.sql.datasource.DataSource")
    return found


def made(kind: type[DataSource], options: Mapping[str, str]) -> DataSource:
    """An instance, as Spark makes it. Raises what its `__init__` does."""
    return kind(options=CaseInsensitiveDict(options))


def reader_of(source: DataSource, schema: StructType, *, bounded: bool) -> AnyReader:
    """Its stream reader, else its simple one, else its bounded one, as Spark looks for them.

    Raises NoDataSource where there is none that serves, and what user code raises.
    """
    wanted: tuple[tuple[str, type[object]], ...] = (
        ("streamReader", DataSourceStreamReader),
        ("simpleStreamReader", SimpleDataSourceStreamReader),
        ("reader", DataSourceReader),
    )
    name = type(source).__name__
    for method, kind in wanted[2:] if bounded else wanted:
        try:
            reader = getattr(source, method)(schema=schema)
        except PySparkNotImplementedError:
            continue
        if not isinstance(reader, kind):
            raise NoDataSource(f"{method} of {name} returned {shown(reader)}, no {kind.__name__}")
        if lacks := lacking(reader):
            raise NoDataSource(
                f"{type(reader).__name__}, the {kind.__name__} of {name}, lacks {' and '.join(lacks)}"
            )
        found: AnyReader = reader
        return found
    methods = "reader" if bounded else "streamReader, no simpleStreamReader and no reader"
    raise NoDataSource(f"{name} has no {methods}: there is nothing to read it by")


def writer_of(source: DataSource, schema: StructType) -> DataSourceStreamWriter:
    """Its stream writer, which appends. Raises NoDataSource, and what user code raises."""
    name = type(source).__name__
    try:
        writer = source.streamWriter(schema=schema, overwrite=False)
    except PySparkNotImplementedError:
        raise NoDataSource(f"{name} has no streamWriter: there is nothing to write it by") from None
    if not isinstance(writer, DataSourceStreamWriter):
        raise NoDataSource(f"streamWriter of {name} returned {shown(writer)}, no DataSourceStreamWriter")
    return writer


def lacking(reader: object) -> list[str]:
    """What a reader has to have and has only PySpark's refusal of."""
    for base, names in _NEEDED.items():
        if isinstance(reader, base):
            return [name for name in names if getattr(type(reader), name) is getattr(base, name)]
    return []
