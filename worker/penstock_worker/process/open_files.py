"""A bounded number of open files: sources and sinks may have thousands, a process may not.

The file used longest ago is closed for a new one. Neighbours: `sources.files` and `sinks.jsonl`, which
open by what they know and go on as if files were open all the time.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar


@dataclass(slots=True)
class OpenFile:
    """A descriptor, and in subclasses what is cached of its file."""

    descriptor: int


F = TypeVar("F", bound=OpenFile)


class OpenFiles(Generic[F]):
    """At most `open_max` open files, by path; `open_file` opens one, and may raise what it likes."""

    def __init__(self, open_file: Callable[[Path], F], open_max: int) -> None:
        self._open_file = open_file
        self._open_max = open_max
        self._files: OrderedDict[Path, F] = OrderedDict()

    def get(self, path: Path) -> F:
        """The open file of `path`, valid until the next call."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = self._files[path] = self._open_file(path)
        if len(self._files) > self._open_max:
            os.close(self._files.popitem(last=False)[1].descriptor)
        return file

    def close(self, path: Path) -> None:
        """Close `path` if it is open."""
        file = self._files.pop(path, None)
        if file is not None:
            os.close(file.descriptor)

    def close_all(self) -> None:
        for path in list(self._files):
            self.close(path)
