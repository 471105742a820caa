"""Routing tables: their content, kept by version in the store of every node that routes or keeps by them; and
what tasks count of the keys that tables are made from.

A content never changes. It is put into all stores before a schedule names it, and stays until the one after
the next, or a bare one: whoever finds a version in a shard's record finds its content here, or a later one,
or waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.port.answers import Answer
from penstock.store.port.request import Request

TABLES_KEPT = 2
"""Versions of one operator that a store keeps."""


@dataclass(frozen=True, slots=True)
class PutTable(Request[Answer]):
    """Keep `content` as version `version` of the routing of `operator`. OK. May be repeated. Refused
    (StoreFull) at the memory limit."""

    operator: str
    version: int
    content: bytes


@dataclass(frozen=True, slots=True)
class DropTable(Request[Answer]):
    """Forget a version that no shard goes by any more. OK."""

    operator: str
    version: int


@dataclass(frozen=True, slots=True)
class TableVersions(Request[tuple[int, ...]]):
    """The versions of an operator's routing that are here, in order."""

    operator: str


@dataclass(frozen=True, slots=True)
class ReadTable(Request[bytes | None]):
    """The content of a version; None where it is not here."""

    operator: str
    version: int


PAIRS_BYTES_MAX = 4 << 20
"""Of one row of counted pairs, packed."""


@dataclass(frozen=True, slots=True)
class PutPairs(Request[Answer]):
    """Keep the newest row of counted pairs called `name`. OK. May be repeated; lost with no harm. Refused
    (StoreFull) at the memory limit."""

    name: str
    row: bytes


@dataclass(frozen=True, slots=True)
class DropPairs(Request[Answer]):
    """Forget rows of counted pairs. OK, whether they were here or not."""

    names: tuple[str, ...]


PAIR_NAMES_MAX = 4096


@dataclass(frozen=True, slots=True)
class PairNames(Request[tuple[str, ...]]):
    """The names of the rows of counted pairs, of at most `PAIR_NAMES_MAX` of them."""


@dataclass(frozen=True, slots=True)
class ReadPairs(Request[dict[str, bytes]]):
    """Answers {name: row} of all rows of counted pairs. They are large: to be asked for now and then."""
