"""How a store refuses what no call answers."""

from __future__ import annotations

from penstock.errors import PermanentError, RetryError


class StoreUnreachable(RetryError):
    """The store did not answer; whether the call took effect is unknown."""


class StoreDiskFull(StoreUnreachable):
    """The store takes no writes until its disk has room again; the message says so. It need only be waited
    for, as one that is away."""


class StoreFull(PermanentError):
    """The store refused a write for memory; the message says what to do."""


class ProtocolMismatch(PermanentError):
    """The store holds a function library of another version than this code speaks."""


class UnreadableState(PermanentError):
    """What the store has of a topology is none that Penstock wrote, or more than anybody reads at once.
    Whoever looks after several topologies passes over this one, and says so."""
