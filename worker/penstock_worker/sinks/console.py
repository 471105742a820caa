"""The console sink of a worker in a cluster: rows go to its output, a JSON line each, into the pod's log.

What is committed is printed and then acknowledged: an owner that ends in between leaves it to the next one,
who prints it again. With `penstock run` the command prints. Neighbour: `sinks.delivery` knows what to write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from select import PIPE_BUF

from penstock.connectors.console import ConsoleSink
from penstock.dataflow.schema import Schema
from penstock.errors import PermanentError
from penstock_worker.sinks.json_entries import JsonEntries


class ConsoleSinkWriter:
    """Prints the rows of one sink, for all shards that feed it in this task."""

    def __init__(self, sink: ConsoleSink, schema: Schema) -> None:
        self._sink = sink
        self._rows = JsonEntries(schema)

    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        """Print the rows of (pair number, payload) entries; a log has no position. Raises PermanentError."""
        out = sys.stdout.buffer
        data = self._rows.lines(payload for _, payload in entries)
        try:
            for lines in _whole_lines(data):
                out.write(lines)
                out.flush()
        except OSError as error:
            raise PermanentError(f"rows of {self._sink.name} cannot be printed: {error.strerror}") from error
        return position

    def check(self, shard: str, position: bytes) -> None:
        """Nobody can take back what was printed."""

    def sync(self, shard: str) -> None:
        """What was printed is out of the worker's hands."""

    def close(self) -> None:
        """The output stays open: it is the process's."""


def _whole_lines(data: bytes) -> Iterator[bytes]:
    """Parts that a pipe takes at once: the tasks of a worker share one, and none breaks another one's line.
    Only a line that is longer by itself is a longer part."""
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + PIPE_BUF) + 1 or data.index(b"\n", start) + 1
        yield data[start:end]
        start = end
