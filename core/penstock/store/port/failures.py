"""What user code raised."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.port.answers import Answer
from penstock.store.port.request import Request


@dataclass(frozen=True, slots=True)
class ReportFailure(Request[Answer]):
    """User code raised. Counts only while (generation, epoch) still own the shard: OK or FENCED.

    The first report for an operator is kept, later ones answer DONE.
    """

    shard: str
    generation: int
    epoch: int
    operator: str
    message: str


@dataclass(frozen=True, slots=True)
class ClearFailure(Request[Answer]):
    """Forget an operator's failure (a new run starts). OK."""

    operator: str


@dataclass(frozen=True, slots=True)
class Failures(Request[dict[str, str]]):
    """Answers operator -> message of all reported failures."""
