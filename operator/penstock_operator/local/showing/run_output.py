"""Where `penstock run` writes: rows of console sinks to stdout, everything else to stderr.

So that `penstock run t.yaml | jq` works. On a terminal there is a live view, elsewhere plain lines.
Neighbours: `live_view`, `log_lines`, `run_summary` word what is written.
"""

from __future__ import annotations

import errno
import sys
from typing import Protocol, TextIO

from rich.console import Console

from penstock_operator.local.showing.live_view import LiveView
from penstock_operator.local.showing.log_lines import event_line, status_line
from penstock_operator.local.showing.run_status import RunEvent, RunStatus
from penstock_operator.local.showing.run_summary import RunSummary, headline, late_words, summary_table
from penstock_operator.words.locality_words import locality_words
from penstock_operator.words.sla_words import summary_words

_REFRESH_S = 0.25
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class RunOutput(Protocol):
    """What a run tells on its way. `tick_s` is how often it is worth to call `show`."""

    tick_s: float

    def show(self, status: RunStatus) -> None: ...

    def tell(self, event: RunEvent) -> None:
        """Something happened just now."""

    def rows(self, lines: list[str]) -> None:
        """Lines of a console sink: out of our hands when this returns. OSError as it may come."""

    def end(self, summary: RunSummary) -> None: ...

    def close(self) -> None:
        """Give the terminal back. May be called twice."""


class PlainOutput:
    """Lines: events as they come, the status every `log_every_s`."""

    def __init__(self, console: Console, stdout: TextIO, log_every_s: float) -> None:
        self.tick_s = log_every_s
        self._console = console
        self._stdout = stdout

    def show(self, status: RunStatus) -> None:
        self._line(status_line(status))

    def tell(self, event: RunEvent) -> None:
        self._line(event_line(event))

    def rows(self, lines: list[str]) -> None:
        self._stdout.write("\n".join(lines) + "\n")
        self._stdout.flush()

    def end(self, summary: RunSummary) -> None:
        write_summary(self._console, summary)

    def close(self) -> None:
        """Nothing is held."""

    def _line(self, text: str) -> None:
        try:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        except OSError as error:
            # Lines that find no room are lost, and nothing else is.
            if error.errno not in DISK_FULL:
                raise


class LiveOutput:
    """The live view, from the first `show` on. Rows go above it when stdout is the terminal too."""

    def __init__(self, console: Console, stdout: TextIO) -> None:
        self.tick_s = _REFRESH_S
        self._console = console
        self._stdout = stdout
        self._view: LiveView | None = None

    def show(self, status: RunStatus) -> None:
        if self._view is None:
            self._view = LiveView(self._console)
            self._view.__enter__()
        self._view.show(status)

    def tell(self, event: RunEvent) -> None:
        """The view shows it with the next status."""

    def rows(self, lines: list[str]) -> None:
        if self._view is not None and self._stdout.isatty():
            self._view.print_rows(lines)
            return
        self._stdout.write("\n".join(lines) + "\n")
        self._stdout.flush()

    def end(self, summary: RunSummary) -> None:
        self.close()
        for event in summary.events:
            if event.is_trouble:
                self._console.print(event_line(event), style="red", markup=False, highlight=False)
        write_summary(self._console, summary)

    def close(self) -> None:
        if self._view is not None:
            view, self._view = self._view, None
            view.__exit__(None, None, None)


def write_summary(console: Console, summary: RunSummary) -> None:
    console.print(headline(summary), markup=False, highlight=False)
    console.print(summary_table(summary))
    if late := late_words(summary):
        console.print(late, markup=False, highlight=False, soft_wrap=True)
    for sla in summary.slas:
        console.print(summary_words(sla), markup=False, highlight=False, soft_wrap=True)
    for line in summary.edges:
        words = f"{line.name}: {locality_words(line)}"
        console.print(words, markup=False, highlight=False, soft_wrap=True)
    if summary.message:
        console.print(summary.message, style="red", markup=False, highlight=False, soft_wrap=True)


def open_output(*, live: bool, log_every_s: float) -> RunOutput:
    """The live view when it is wanted and stderr is a terminal."""
    console = Console(stderr=True)
    if live and console.is_terminal:
        return LiveOutput(console, sys.stdout)
    return PlainOutput(console, sys.stdout, log_every_s)
