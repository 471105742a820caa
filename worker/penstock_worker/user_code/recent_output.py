"""What user code printed and logged last, for the report of its failure.

All that a task's process writes goes into its worker's log, as soon as it is printed; of what user code
writes the last lines are kept here too. Neighbours: `task` installs it, `task.loop` adds it to a failure.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, TextIO, cast

LINES_MAX = 20
LINE_CHARACTERS_MAX = 300
_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_OURS = ("penstock", "penstock_worker")


class RecentOutput:
    """The last lines, bounded."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._begun = ""

    def keep(self, text: str) -> None:
        """What was written, whole lines or parts of them."""
        writable = text.encode("utf-8", "backslashreplace").decode()
        *lines, begun = (self._begun + writable).split("\n")
        self._lines.extend(line[:LINE_CHARACTERS_MAX] for line in lines)
        self._begun = begun[:LINE_CHARACTERS_MAX]

    def lines(self) -> list[str]:
        return [*self._lines, self._begun][-LINES_MAX:] if self._begun else list(self._lines)

    def told(self, worker: str) -> str:
        """For a failure's message: the lines, and where all of them are; "" where nothing was written."""
        lines = self.lines()
        if not lines:
            return ""
        told = "\n".join(f"  {line}" for line in lines)
        return f"\nIts code wrote last (all of it is in the log of worker {worker}):\n{told}"


def install(output: RecentOutput) -> None:
    """Log as a worker does, and let `output` keep what anybody but Penstock prints or logs from now on."""
    logging.basicConfig(level=logging.INFO, format=_FORMAT)
    handler = _Kept(output)
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(lambda record: record.name.split(".")[0] not in _OURS)
    logging.getLogger().addHandler(handler)
    sys.stdout = cast("TextIO", _Tee(sys.stdout, output))
    sys.stderr = cast("TextIO", _Tee(sys.stderr, output))


class _Kept(logging.Handler):
    def __init__(self, output: RecentOutput) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        self._output.keep(self.format(record) + "\n")


class _Tee:
    """Writes whole lines to a stream, at once, and into the recent output; in all else it is the stream.

    A line that is printed in parts would be mixed up with those of other processes in the worker's log.
    """

    def __init__(self, stream: TextIO, output: RecentOutput) -> None:
        self._stream = stream
        self._output = output
        self._begun = ""

    def write(self, text: str) -> int:
        self._begun += text
        if "\n" in text or len(self._begun) > LINE_CHARACTERS_MAX:
            self.flush()
        return len(text)

    def flush(self) -> None:
        text, self._begun = self._begun, ""
        if text:
            self._stream.write(text)
            self._output.keep(text)
        self._stream.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
