"""The port that all policies share. Pure: no clock, no I/O; a policy remembers its moving averages."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from penstock.control.decision import PolicyDecision
from penstock.control.snapshot import TopologySnapshot


class Policy(Protocol):
    """Shown one snapshot every delta, answers what to do about it: one decision an operator in scope, or
    one for the whole topology; those with treatment NONE or HOLD have no actions.

    While an operator's `treatment` is under way its decision is NONE. Snapshots come in the order of time.
    """

    @property
    def name(self) -> str:
        """As users name it."""
        ...

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]: ...


@runtime_checkable
class Watches(Protocol):
    """What a policy may offer to another one that is built on it: to see without deciding."""

    def watch(self, snapshot: TopologySnapshot) -> None:
        """In place of `decide`, where the answer is not asked for."""
        ...
