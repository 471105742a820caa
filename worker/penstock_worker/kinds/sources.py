"""Sources: whose reader is which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.connectors.data_source import DataSourceSource
from penstock.connectors.files import FilesSource
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.nexmark import NexmarkSource
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.source import Source
from penstock_worker.sources.data_source import DataSourceRangeReader
from penstock_worker.sources.files import FilesReader
from penstock_worker.sources.kafka.reader import KafkaReader
from penstock_worker.sources.nexmark import NexmarkReader
from penstock_worker.sources.reader import SourceReader
from penstock_worker.sources.zipf import ZipfReader

_READERS: Mapping[type[Source], Callable[[str, Any, Path], SourceReader]] = {
    FilesSource: FilesReader,
    ZipfSource: ZipfReader,
    NexmarkSource: NexmarkReader,
    DataSourceSource: DataSourceRangeReader,
    KafkaSource: KafkaReader,
}


def open_reader(operator: str, source: Source, base_dir: Path) -> SourceReader:
    """The reader of a source operator. Raises PermanentError when it cannot work as it is described."""
    return _READERS[type(source)](operator, source, base_dir)
