"""The rate of a source, as a user writes it: even, or over time from a file. Kinds that have one share this.

Neighbours: `penstock.dataflow.rate_trace` reads the file, `penstock.api.rate_traces` lists its faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from penstock.manifest.document import Document, PathText
from penstock.manifest.faults import Fault

RatePerSecond = Annotated[float, Field(gt=0, le=1e9)]


class RateTraceSpec(Document):
    """A rate over time, from a file."""

    file: PathText
    """Lines `seconds,rate_per_s`: from that second on that rate, until the next line's second; the last rate
    goes on. Relative to the manifest's folder."""


ONE_RATE = (
    "!has(self.ratePerSecond) || !has(self.rateTrace)",
    "ratePerSecond and rateTrace are both given; a source has one rate",
)
"""The CEL rule."""


def rate_faults(path: str, body: Mapping[str, Any]) -> list[Fault]:
    """The same rule on a plain document."""
    if len(rates_given(body)) < 2:
        return []
    return [
        Fault(f"{path}.rateTrace", "ratePerSecond is given too; a source has one rate: keep one of the two")
    ]


def rates_given(body: Mapping[str, Any]) -> list[str]:
    return [name for name in ("ratePerSecond", "rateTrace") if body.get(name) is not None]


def trace_file(trace: RateTraceSpec | None) -> str | None:
    return trace.file if trace is not None else None
