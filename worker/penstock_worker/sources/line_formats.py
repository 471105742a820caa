"""What a line of a text file means: the formats of the source `files`.

Neighbours: `files` cuts files into lines, and says where one is that means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.connectors.files import FilesSource
from penstock.dataflow.json_lines import JsonLines, is_blank

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class LineFormat:
    """`rows` makes one row of each line. Where it passes blank lines over, `is_blank` knows them, and it is
    never given one."""

    rows: Callable[[Sequence[str]], Rows]
    is_blank: Callable[[str], bool] | None = None


def format_of(source: FilesSource) -> LineFormat:
    return _FORMATS[source.format](source)


_FORMATS: Mapping[str, Callable[[FilesSource], LineFormat]] = {
    "text": lambda _: LineFormat(lambda lines: list(zip(lines))),
    "jsonl": lambda source: LineFormat(JsonLines(source.schema).rows, is_blank),
}
