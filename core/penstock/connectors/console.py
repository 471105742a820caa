"""The kind of sink `console`: rows are shown.

In a cluster the worker's `sinks.console` prints them; `penstock run` takes them out of the outboxes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.connectors.sink import SinkFields
from penstock.dataflow.sink import Sink


@dataclass(frozen=True, slots=True)
class ConsoleSink(Sink):
    """One JSON object a line, to the output of `penstock run` or, in a cluster, of the worker."""

    kind: ClassVar[str] = "console"
    is_shown: ClassVar[bool] = True

    name: str

    def identity_text(self) -> str:
        return "console"


class ConsoleSinkSpec(SinkFields):
    """One JSON object a line to the terminal of `penstock run`, or to the worker's log."""

    planned: ClassVar[type[Sink]] = ConsoleSink

    def plan(self, name: str, feeders: tuple[str, ...] = ()) -> ConsoleSink:
        return ConsoleSink(name)
