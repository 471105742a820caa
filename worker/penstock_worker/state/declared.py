"""What a shard's state was declared as: kind and schema of each variable, kept beside the state itself.

It is one field of the shard's value hash, so it goes wherever the state goes: to the next owner, to another
store, to a worker with other code. That one compares before it works on a row, and refuses what it would
misread. Variables that are new are added; those that are gone stay noted, as their state stays. What Spark
allows a schema to become is not allowed yet (decision 0023). Neighbours: `cache` reads and writes the field,
`handle` says what is declared, `inspect_code` tells it to those who run a topology.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from penstock_worker.state import encoding

FIELD = b"s"
"""Of the value hash; no other field is one byte long."""

Declared = dict[str, tuple[bytes, tuple[str, ...]]]
"""Variable -> kind, and its schemas as DDL: of a map keys and values, else one."""

_DECODER = msgspec.msgpack.Decoder(Declared)
_KINDS = {
    encoding.VALUE: "a value of",
    encoding.LIST: "a list of",
    encoding.MAP: "a map of",
    encoding.EXPIRING_VALUE: "a value, with a time to live, of",
    encoding.EXPIRING_LIST: "a list, with a time to live, of",
    encoding.EXPIRING_MAP: "a map, with a time to live, of",
}


class Declaration:
    """What a processor's code declares. Compare with what a shard has noted."""

    def __init__(self, variables: Iterable[tuple[str, bytes, tuple[str, ...]]]) -> None:
        self._declared: Declared = {name: (kind, schemas) for name, kind, schemas in variables}

    def refusal(self, noted: bytes | None) -> str:
        """Why the code cannot work on state of which this was noted; "" where it can."""
        before = _read(noted)
        others = [
            f"state {name!r} is {words(before[name])} in the store, and {words(now)} in the code"
            for name, now in self._declared.items()
            if name in before and before[name] != now
        ]
        if not others:
            return ""
        return (
            f"{'; '.join(others)}. What is stored would be misread: give the variable a new name, bring the "
            "code back as it was, or start anew without the state"
        )

    def to_note(self, noted: bytes | None) -> bytes | None:
        """What is to be noted now; None where nothing is new."""
        before = _read(noted)
        if self._declared.keys() <= before.keys():
            return None
        return encoding.pack({**before, **self._declared})


def words(declared: tuple[bytes, tuple[str, ...]]) -> str:
    """ "a map of (`k` string) to (`v` bigint)"."""
    kind, schemas = declared
    return f"{_KINDS.get(kind, kind.decode())} {' to '.join(f'({schema})' for schema in schemas)}"


def _read(noted: bytes | None) -> Mapping[str, tuple[bytes, tuple[str, ...]]]:
    """Nothing is noted by shards from before there were notes."""
    return {} if noted is None else _DECODER.decode(noted)
