"""Sinks that are stages of their own: the bounds of their batches, and whose code is called with one.

Neighbours: `sinks` has those that are fused behind stages, `stages.batch_stage` makes the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.connectors.foreach_batch import ForeachBatchSink
from penstock.dataflow.sink import Sink
from penstock_worker.stages.batch_stage import BatchBounds
from penstock_worker.user_code.batch_code import BatchCode

_BOUNDS: Mapping[type[Sink], Callable[[Any], BatchBounds]] = {
    ForeachBatchSink: lambda sink: BatchBounds(sink.rows_max),
}
_CODE: Mapping[type[Sink], Callable[[Any, Path], BatchCode]] = {
    ForeachBatchSink: lambda sink, base_dir: BatchCode(sink.name, sink.target, base_dir),
}


def batch_bounds(sink: Sink) -> BatchBounds:
    """What a batch of the sink has at most."""
    return _BOUNDS[type(sink)](sink)


def batch_code(sink: Sink, base_dir: Path) -> BatchCode:
    """What is called with each batch; relative modules are looked for in `base_dir`."""
    return _CODE[type(sink)](sink, base_dir)
