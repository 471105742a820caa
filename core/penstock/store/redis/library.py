"""The function libraries: this version's, a Lua text that is joined of the parts in `functions/`, and that of
the version before, kept as a text of its own. A store holds both, side by side.

`SHARED` and `ROLES` name the parts in the order in which they are joined. What a shared part names, all parts
below it see. A role's part is a block of its own: its names are nobody else's, and do not count towards the
200 that Lua allows a function. Neighbours: `redis.store` loads the text into a server, `redis.connection`
tells errors by part and line.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.resources import files
from importlib.resources.abc import Traversable

PROTOCOL_VERSION = 10
"""The one of the function library; the library's name and every function's end in it."""
PREVIOUS_VERSION = PROTOCOL_VERSION - 1
"""The one that `functions/previous.lua` has."""
LIBRARIES = b"penstock*"
"""What the names of all versions' libraries match."""

SHARED = (
    "library",
    "records",
    "ready_names",
    "due",
    "watermarks",
    "changes",
    "callers",
    "queues",
    "maps",
    "moves",
)
"""In `functions/shared`, each below those that it needs."""
ROLES = (
    "administration", "workers", "schedules", "claims", "ready_lists", "state", "commits", "failures",
    "deliveries", "watermarks", "measures", "moves", "moves_export", "moves_install",
)  # fmt: skip
"""In `functions`; none needs another."""
_UNNUMBERED = 9
"""The last version whose library's name is without a number: "penstock". It asks `penstock_version`, a name
that one library alone can have, and gives way to an answer above its own."""

_NAME = re.compile(rb"penstock_(\d+)")
_VERSION = re.compile(rb"^local VERSION = (\d+)$", re.MULTILINE)
_LINE = re.compile(r"\buser_function:(\d+)")
"""How a server names a line of a library."""


def function_library() -> bytes:
    """The source of the function library of this version, always the same bytes."""
    return b"".join(text for _, text in _joined())


def previous_library() -> bytes:
    """The source of the version before: as its release loads it, but for what this version added to it."""
    return (_folder() / "previous.lua").read_bytes()


def libraries(number: int, own: bytes, previous: bytes) -> dict[bytes, bytes]:
    """The libraries that a store holds under version `number`, by name, in the order in which they load.
    Who finds the newest finds all. `own` and `previous` are the sources of it and of the one before."""
    held = {library_name(number - 1): previous, library_name(number): own}
    if number - 1 <= _UNNUMBERED:
        return held
    return {b"penstock": _GIVE_WAY % (number - 1), **held}


def library_name(number: int) -> bytes:
    return b"penstock" if number <= _UNNUMBERED else b"penstock_%d" % number


def version_of(name: bytes, source: bytes) -> int | None:
    """The protocol's version of a library that a store holds; None for one that has none."""
    if numbered := _NAME.fullmatch(name):
        return int(numbered[1])
    found = _VERSION.search(source) if name == b"penstock" else None
    return int(found[1]) if found else None


def refusal(number: int, held: Collection[int], *, has_topologies: bool) -> str:
    """Why version `number` cannot take over a store that holds libraries of versions `held`; "" if it can.

    What a version writes, the one before it and the one behind it read; others may not. A library stays in a
    store when an older version takes it over, so the newest one tells who wrote there.
    """
    newest = max(held, default=number)
    if newest > number + 1:
        return (
            f"a Penstock whose store protocol has version {newest} has worked with this store, and that is"
            f" newer than {number} by more than one: run one whose protocol has version {newest - 1} or newer"
        )
    if newest < number - 1 and has_topologies:
        return (
            f"the store holds topologies of a Penstock whose store protocol has version {newest}, and this"
            f" one reads {number - 1} and {number}: upgrade one version at a time, or delete them first"
        )
    return ""


def part_and_line(line: int) -> str:
    """Where line `line` (from 1) of the library was written: "commits.lua:12".

    As the server names it when the library has no such line.
    """
    first = 1
    for name, text in _joined():
        lines = text.count(b"\n")
        if first <= line < first + lines:
            # The line that opens a role's block is none of its file's.
            return f"{name}:{line - first + (not text.startswith(b'do'))}"
        first += lines
    return f"user_function:{line}"


def with_parts(message: str) -> str:
    """A server's error with the lines of the library as they are in its parts."""
    if re.search(rf"\bpenstock_\w+_{PREVIOUS_VERSION}\b", message):
        return _LINE.sub(r"previous.lua:\1", message)
    return _LINE.sub(lambda found: part_and_line(int(found[1])), message)


_GIVE_WAY = b"""#!lua name=penstock

-- Tells code from before libraries had numbers that what is here is not for it.
redis.register_function{
  function_name = 'penstock_version', flags = {'no-writes'}, callback = function() return %d end,
}
"""


def _folder() -> Traversable:
    return files("penstock.store.redis") / "functions"


def _joined() -> list[tuple[str, bytes]]:
    """Each part's file and its text as it stands in the library, in order."""
    folder = _folder()
    shared = [(f"shared/{name}.lua", (folder / "shared" / f"{name}.lua").read_bytes()) for name in SHARED]
    roles = [(f"{name}.lua", (folder / f"{name}.lua").read_bytes()) for name in ROLES]
    return [*shared, *((name, b"do\n" + text + b"end\n") for name, text in roles)]
