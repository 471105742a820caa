"""Sources: the port (`reader`), its kinds' readers, and the registry that says which is whose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.connectors.data_source import DataSourceSource
from penstock.connectors.files import FilesSource
from penstock.connectors.nexmark import NexmarkSource
from penstock.connectors.zipf import ZipfSource
from penstock.dataflow.source import Source
from penstock_worker.sources.data_source import DataSourceRangeReader
from penstock_worker.sources.files import FilesReader
from penstock_worker.sources.nexmark import NexmarkReader
from penstock_worker.sources.reader import SourceBatch, SourceReader
from penstock_worker.sources.zipf import ZipfReader

__all__ = ["SourceBatch", "SourceReader", "open_reader"]

_READERS: Mapping[type[Source], Callable[[str, Any, Path], SourceReader]] = {
    FilesSource: FilesReader,
    ZipfSource: ZipfReader,
    NexmarkSource: NexmarkReader,
    DataSourceSource: DataSourceRangeReader,
}


def open_reader(operator: str, source: Source, base_dir: Path) -> SourceReader:
    """The reader of a source operator. Raises PermanentError when it cannot work as it is described."""
    return _READERS[type(source)](operator, source, base_dir)
