"""What takes away the state of variables that the code deletes (`deleteIfExists`), in one shard.

A variable's fields lie among all others in the value hash, which is scanned once; the first commit that this
owner makes carries the deletions, and with them the note that names the variable no more. So it happens whole
or not at all, and never again. Neighbours: `cache` calls this, `declared` says which variables go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from penstock.store.ownership import OwnershipLost
from penstock.store.port import Answer, Scan, StateWrite
from penstock_worker.state import encoding


def forgetting(
    prefixes: tuple[bytes, ...], scan: Scan, load: Callable[[Scan], object]
) -> tuple[StateWrite, ...]:
    """The writes that delete every field that begins with one of `prefixes`, its parts, and what lies in the
    collections that are called like it. `scan` begins to read the value hash, `load` carries it out.

    Raises OwnershipLost and StoreUnreachable.
    """
    if not prefixes:
        return ()
    found = {
        field
        for field in _fields(scan, load)
        if (encoding.part_of(field) if encoding.is_part(field) else field).startswith(prefixes)
    }
    kinds = (encoding.LIST, encoding.MAP, encoding.EXPIRING_LIST, encoding.EXPIRING_MAP)
    collections = [field for field in found if field.startswith(kinds)]
    return (
        *(StateWrite(b"", field, None) for field in sorted(found)),
        *(StateWrite(field, None, None) for field in sorted(collections)),
    )


def _fields(scan: Scan, load: Callable[[Scan], object]) -> Iterator[bytes]:
    """All fields, some of them perhaps twice, however much they hold."""
    while True:
        answer: Any = load(scan)
        if isinstance(answer, Answer):
            raise OwnershipLost(scan.shard, answer)
        cursor, fields = answer
        yield from (field for field, _ in fields)
        if cursor == "0":
            return
        scan = replace(scan, cursor=cursor)
