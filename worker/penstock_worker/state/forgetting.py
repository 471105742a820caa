"""What takes away the state of variables that the code deletes (`deleteIfExists`), in one shard.

A variable's fields lie among all others in the value hash, which is scanned once; the first commit that this
owner makes carries the deletions, and with them the note that names the variable no more. So it happens whole
or not at all, and never again. Neighbours: `cache` calls this, `declared` says which variables go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.store.port import StateWrite
from penstock_worker.state import encoding


def forgetting(prefixes: tuple[bytes, ...], fields: Callable[[], Iterable[bytes]]) -> tuple[StateWrite, ...]:
    """The writes that delete every field that begins with one of `prefixes`, its parts, and what lies in the
    collections that are called like it. `fields` scans the value hash, and may give a field twice."""
    found = {
        field
        for field in fields()
        if (encoding.part_of(field) if encoding.is_part(field) else field).startswith(prefixes)
    }
    collections = [field for field in found if field.startswith((encoding.LIST, encoding.MAP))]
    return (
        *(StateWrite(b"", field, None) for field in sorted(found)),
        *(StateWrite(field, None, None) for field in sorted(collections)),
    )
