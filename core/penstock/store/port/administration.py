"""A store's opening, and the topologies in it.

Which these are stands in a set to which the workers of each may add: what is in it is a hint, and there may
be any number. Who acts by it asks for those that he knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.port.request import Request


@dataclass(frozen=True, slots=True)
class OpenStore(Request[int]):
    """Raise the store's generation by one; every start and promotion begins with it.

    Answers the generation (int). It is not raised when `run_id`, the server's own name for its run, is not
    empty and is the one of the last OpenStore: then only the caller was started anew. Until the first
    OpenStore every other call answers as on an empty store. `store_id` is written on the first call and
    must match afterwards.
    """

    store_id: str
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class ReadGeneration(Request[int]):
    """Answers the store's generation; 0 before its first OpenStore."""


@dataclass(frozen=True, slots=True)
class Retract(Request[int]):
    """The topology is gone from this store: every later call about it answers UNKNOWN.

    Drops all of its keys in steps; answers the number of keys still to drop (call until 0). That it is gone
    stays known in the store.
    """


@dataclass(frozen=True, slots=True)
class Topologies(Request[list[str]]):
    """Answers the uids of all topologies that have something in this store, in order: since their first
    Publish or Create, until their Retract has come to its end."""


@dataclass(frozen=True, slots=True)
class TopologiesAmong(Request[list[str]]):
    """Answers which of these `Topologies` would answer, in order."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SomeTopologies(Request[tuple[int, list[str]]]):
    """Answers how many are named in the set, and some of what `Topologies` would answer, in order: `count` at
    the most, by lot."""

    count: int


@dataclass(frozen=True, slots=True)
class KeepTopologies(Request[None]):
    """Forget of whatever else is named in the set that it was; of these it stays known."""

    uids: tuple[str, ...]
