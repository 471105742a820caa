"""Sources: the port (`reader`), text files (`files`), the zipf generator (`zipf`), and which is which."""

from __future__ import annotations

from pathlib import Path

from penstock.dataflow.plan import FilesSource, ZipfSource
from penstock_worker.sources.files import FilesReader
from penstock_worker.sources.reader import SourceBatch, SourceReader
from penstock_worker.sources.zipf import ZipfReader

__all__ = ["SourceBatch", "SourceReader", "open_reader"]


def open_reader(operator: str, head: FilesSource | ZipfSource, base_dir: Path) -> SourceReader:
    """The reader of a source operator. Raises PermanentError when it cannot work as it is described."""
    match head:
        case FilesSource():
            return FilesReader(operator, head, base_dir)
        case ZipfSource():
            return ZipfReader(operator, head, base_dir)
