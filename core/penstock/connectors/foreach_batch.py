"""The kind of sink `foreachBatch`: user code is called with a DataFrame and a batch id, as Spark's is.

It is a stage of its own with one shard, whose inbox is its queue (decision 0040). The worker's
`stages.batch_stage` makes the batches, its main process calls the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from penstock.connectors.named_code import FOREACH_BATCH, NamedCode
from penstock.connectors.sink import SinkFields
from penstock.dataflow.sink import Sink
from penstock.manifest.document import Target

BATCH_ROWS_LEAST = 256
"""An entry of an inbox has so many rows at most, and a batch at least one entry."""
BATCH_ROWS_DEFAULT = 50_000


@dataclass(frozen=True, slots=True)
class ForeachBatchSink(Sink):
    """`target` is "module:name", a function of a DataFrame and a batch id. A batch has at most `rows_max`
    rows."""

    kind: ClassVar[str] = "foreachBatch"
    is_stage: ClassVar[bool] = True

    name: str
    target: str
    rows_max: int = BATCH_ROWS_DEFAULT

    def identity_text(self) -> str:
        """Code and bounds may change: what a batch has is fixed before it is written."""
        return "foreachBatch"


class ForeachBatchSinkSpec(SinkFields):
    """User code, called with a DataFrame and a batch id, as Spark's foreachBatch calls it: every Spark writer
    is a sink so. Ids have no hole. At least once: a batch that was under way when a process was killed comes
    again, with the same rows and the same id."""

    planned: ClassVar[type[Sink]] = ForeachBatchSink

    function: Annotated[Target, Field(alias="call")]
    """The function of a DataFrame and a batch id, such as my_sinks:write."""
    rows_max: Annotated[int, Field(ge=BATCH_ROWS_LEAST, le=1_000_000)] | None = None
    """Rows of a batch at most; bytes bound it too. Without it 50000."""

    @classmethod
    def code_of(cls, body: Mapping[str, Any]) -> NamedCode | None:
        target = body.get("call")
        return NamedCode("call", target, FOREACH_BATCH, writes=True) if isinstance(target, str) else None

    def plan(self, name: str, feeders: tuple[str, ...] = ()) -> ForeachBatchSink:
        rows_max = self.rows_max if self.rows_max is not None else BATCH_ROWS_DEFAULT
        return ForeachBatchSink(name, self.function, rows_max)
