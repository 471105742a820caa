"""How async code of a step or a processor is called, as a user writes it: `calls`.

Neighbours: `topology` has it in its operators, `graph` asks what is wrong with it, `dataflow.plan.Calls` is
what it means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from penstock.dataflow.plan import Calls
from penstock.manifest.document import Document, PositiveDuration, duration_us
from penstock.manifest.faults import Fault

CONCURRENT_MAX = 1024
RETRIES_MAX = 100
_US_PER_MS = 1000


class CallsSpec(Document):
    """How `async def` code is called: many rows at once, of a processor many keys, each with a time limit."""

    concurrent: Annotated[int, Field(ge=1, le=CONCURRENT_MAX)] | None = None
    """Rows, or keys, that it is called for at once, in each task. Without it 16."""
    timeout: PositiveDuration | None = None
    """How long one call may take. Without it 30s."""
    retries: Annotated[int, Field(ge=0, le=RETRIES_MAX)] | None = None
    """How often a call that raised or took too long is made again. Without it 0."""
    retry_after: PositiveDuration | None = None
    """The pause before the first retry; each further one is twice as long. Without it 100ms."""


def planned_calls(given: CallsSpec | None) -> Calls | None:
    """What it means, with defaults."""
    if given is None:
        return None
    else_ = Calls()
    return Calls(
        given.concurrent if given.concurrent is not None else else_.concurrent,
        _milliseconds(given.timeout) if given.timeout is not None else else_.timeout_ms,
        given.retries if given.retries is not None else else_.retries,
        _milliseconds(given.retry_after) if given.retry_after is not None else else_.retry_after_ms,
    )


def calls_faults(path: str, body: Mapping[str, Any]) -> list[Fault]:
    """What is wrong between the calls and the time limit of an operator at `path`."""
    try:
        calls = planned_calls(CallsSpec.model_validate(body.get("calls")))
        limit_us = duration_us(str(body.get("processorTimeout")))
    except (ValidationError, ValueError):
        return []  # none is given, or that is a fault of its own
    if calls is None or limit_us > _US_PER_MS * calls.longest_ms:
        return []
    message = (
        f"{body['processorTimeout']} is no longer than one call may take, {calls.longest_ms} ms with its "
        "retries and pauses; give more, or leave it out: calls.timeout is the limit of a call"
    )
    return [Fault(f"{path}.processorTimeout", message)]


def _milliseconds(duration: str) -> int:
    """Parts of one count as a whole."""
    return -(-duration_us(duration) // _US_PER_MS)
