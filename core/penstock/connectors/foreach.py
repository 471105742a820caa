"""The kind of sink `foreach`: user code is called with each row, as Spark's `foreach` does.

The worker's `sinks.foreach` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from penstock.connectors.named_code import FOREACH, NamedCode
from penstock.connectors.sink import SinkFields
from penstock.dataflow.sink import Sink
from penstock.manifest.document import Target


@dataclass(frozen=True, slots=True)
class ForeachSink(Sink):
    """`target` is "module:name", a function of a row or a class with `process`."""

    kind: ClassVar[str] = "foreach"

    name: str
    target: str
    feeders: tuple[str, ...] = ()
    """The stages whose shards write it, by name: their places are in the numbers of batches, for life."""

    def identity_text(self) -> str:
        """The code may change; how many batches were written is all that positions hold."""
        return "foreach"


class ForeachSinkSpec(SinkFields):
    """User code, called with each row: a function, or a class with process(row) and, if it likes,
    open(partition_id, epoch_id) and close(error), as Spark's foreach takes them. At least once: a batch that
    was under way when its task was killed comes again, with the same rows and the same ids."""

    planned: ClassVar[type[Sink]] = ForeachSink

    function: Annotated[Target, Field(alias="call")]
    """The function or the class, such as my_sinks:Alerts."""

    @classmethod
    def code_of(cls, body: Mapping[str, Any]) -> NamedCode | None:
        target = body.get("call")
        return NamedCode("call", target, FOREACH, writes=True) if isinstance(target, str) else None

    def plan(self, name: str, feeders: tuple[str, ...] = ()) -> ForeachSink:
        return ForeachSink(name, self.function, feeders)
