"""The port that all policies share. Pure: no clock, no I/O; a policy remembers its moving averages."""

from __future__ import annotations

from typing import Protocol

from penstock.control.decision import Decision
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

    def decide(self, snapshot: TopologySnapshot) -> tuple[Decision, ...]: ...
