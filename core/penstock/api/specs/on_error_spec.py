"""What becomes of rows on which an operator's code raises, as a user writes it: `onError`.

The API server knows no field that is a text or an object, so the model is the object; on this machine
`onError: DeadLetter` is a short form of `onError: {policy: DeadLetter}`. Neighbours: `topology` has it in its
operators, `graph` says which operators may have which policy, `dataflow.on_error` is what it means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field

from penstock.dataflow.on_error import (
    ATTEMPTS_DEFAULT,
    BACKOFF_MS_DEFAULT,
    DEAD_LETTER,
    FAIL,
    FAILS,
    KEEP_DEFAULT,
    RETRY,
    OnError,
)
from penstock.manifest.document import Document, PositiveDuration, cel, duration_us
from penstock.manifest.faults import Fault, listed, path_text

KEEP_MAX = 100_000
ATTEMPTS_MAX = 100
STORE = "Store"
SINK = "Sink"

Policy = Literal["Fail", "DeadLetter", "Retry"]


class OnErrorSpec(Document):
    """What becomes of rows on which the operator's code raises."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.policy == 'Retry' || !(has(self.attempts) || has(self.backoff) || has(self.then))",
                "attempts, backoff and then belong to policy Retry",
            ),
            (
                "!has(self.keep) || self.policy == 'DeadLetter' || "
                "(has(self.then) && self.then == 'DeadLetter')",
                "keep is of dead letters: with policy DeadLetter, or then: DeadLetter",
            ),
            (
                "!has(self.to) || self.policy == 'DeadLetter' || "
                "(has(self.then) && self.then == 'DeadLetter')",
                "to is of dead letters: with policy DeadLetter, or then: DeadLetter",
            ),
            (
                "!has(self.to) || self.to == 'Store' || !has(self.keep)",
                "keep is of dead letters in the store: with to: Sink there is none",
            ),
        )
    )

    policy: Policy
    """Fail: the topology fails. DeadLetter: the rows are kept apart, and all others go on. Retry: the code is
    called again, a few times."""
    attempts: Annotated[int, Field(ge=1, le=ATTEMPTS_MAX)] | None = None
    """Of Retry, how many calls more. Without it 5."""
    backoff: PositiveDuration | None = None
    """Of Retry, how long to wait before the first of them; each time twice as long, a minute at the most.
    Without it 100ms."""
    then: Literal["Fail", "DeadLetter"] | None = None
    """Of Retry, what becomes of rows that fail again each time. Without it Fail."""
    keep: Annotated[int, Field(ge=1, le=KEEP_MAX)] | None = None
    """How many dead letters a shard may keep; with one more the topology fails. Without it 1000."""
    to: Literal["Store", "Sink"] | None = None
    """Where dead letters go. Store: they stay in their shard's state, to be replayed. Sink: they are rows of
    spec.deadLetters. Without it Sink where the topology has one."""


def planned_on_error(given: OnErrorSpec | None, *, has_sink: bool) -> OnError:
    """What it means, with defaults, in a topology that has a sink of dead letters or has none."""
    if given is None or given.policy == FAIL:
        return FAILS
    keep = given.keep or KEEP_DEFAULT
    to_sink = has_sink and given.to != STORE and DEAD_LETTER in (given.policy, given.then)
    if given.policy == DEAD_LETTER:
        return OnError(DEAD_LETTER, keep=keep, to_sink=to_sink)
    backoff_us = duration_us(given.backoff) if given.backoff is not None else BACKOFF_MS_DEFAULT * 1000
    attempts = given.attempts or ATTEMPTS_DEFAULT
    return OnError(given.then or FAIL, attempts, -(-backoff_us // 1000), keep, to_sink)


def on_error_faults(path: str, given: object, *, cannot_retry: str, has_sink: bool) -> list[Fault]:
    """What is wrong between its fields. `cannot_retry`: why the operator has no Retry, "" where it may.
    `has_sink`: the topology has a sink of dead letters."""
    if not isinstance(given, dict):
        return []
    policy = given.get("policy")
    if policy not in get_args(Policy):
        return []
    faults = [
        Fault(f"{path}.{name}", f"belongs to policy Retry, not to {policy}; leave it out")
        for name in ("attempts", "backoff", "then")
        if given.get(name) is not None and policy != RETRY
    ]
    keeps = DEAD_LETTER in (policy, given.get("then"))
    if given.get("keep") is not None and not keeps:
        message = "is of dead letters; give policy: DeadLetter, or then: DeadLetter, or leave it out"
        faults.append(Fault(f"{path}.keep", message))
    faults += _to_faults(path, given, keeps=keeps, has_sink=has_sink)
    if policy == RETRY and cannot_retry:
        faults.append(Fault(f"{path}.policy", cannot_retry))
    return faults


def _to_faults(path: str, given: Mapping[str, Any], *, keeps: bool, has_sink: bool) -> list[Fault]:
    """What is wrong with where dead letters go."""
    to = given.get("to")
    if to is not None and not keeps:
        message = "is of dead letters; give policy: DeadLetter, or then: DeadLetter, or leave it out"
        return [Fault(f"{path}.to", message)]
    if to == SINK and not has_sink:
        message = (
            "Sink needs spec.deadLetters, which says which one, such as {files: {path: out/dead}}; "
            "give that, "
            "or to: Store"
        )
        return [Fault(f"{path}.to", message)]
    if keeps and given.get("keep") is not None and (to == SINK or (to is None and has_sink)):
        message = (
            "is of dead letters in the store, and these go to the sink of spec.deadLetters; give to: Store, "
            "or leave it out"
        )
        return [Fault(f"{path}.keep", message)]
    return []


def with_on_error_whole(document: Any, *, in_cluster: bool) -> tuple[Any, list[Fault]]:
    """A document whose short forms of onError are whole, and what is wrong with those that it has."""
    spec = document.get("spec") if isinstance(document, dict) else None
    if not isinstance(spec, dict) or not isinstance(operators := spec.get("operators"), list):
        return document, []
    faults: list[Fault] = []
    made = []
    for index, operator in enumerate(operators):
        given = operator.get("onError") if isinstance(operator, Mapping) else None
        if not isinstance(given, str):
            made.append(operator)
            continue
        path = path_text(("spec", "operators", index, "onError"), document)
        if given not in get_args(Policy):
            faults.append(Fault(path, f"{given!r} is none of {listed(get_args(Policy))}"))
        elif in_cluster:
            message = f"the API server takes an object here; give onError: {{policy: {given}}}"
            faults.append(Fault(path, message))
        made.append({**operator, "onError": {"policy": given if given in get_args(Policy) else FAIL}})
    return document | {"spec": {**spec, "operators": made}}, faults
