"""The function library: one Lua text, joined of the parts in `functions/`.

`SHARED` and `ROLES` name the parts in the order in which they are joined. What a shared part names, all parts
below it see. A role's part is a block of its own: its names are nobody else's, and do not count towards the
200 that Lua allows a function. Neighbours: `redis.store` loads the text into a server, `redis.connection`
tells errors by part and line.
"""

from __future__ import annotations

import re
from importlib.resources import files

PROTOCOL_VERSION = 10
"""The one of the function library; every function's name ends in it."""

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

_LINE = re.compile(r"\buser_function:(\d+)")
"""How a server names a line of a library."""


def function_library() -> bytes:
    """The source of the function library of this version, always the same bytes."""
    return b"".join(text for _, text in _joined())


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
    return _LINE.sub(lambda found: part_and_line(int(found[1])), message)


def _joined() -> list[tuple[str, bytes]]:
    """Each part's file and its text as it stands in the library, in order."""
    folder = files("penstock.store.redis") / "functions"
    shared = [(f"shared/{name}.lua", (folder / "shared" / f"{name}.lua").read_bytes()) for name in SHARED]
    roles = [(f"{name}.lua", (folder / f"{name}.lua").read_bytes()) for name in ROLES]
    return [*shared, *((name, b"do\n" + text + b"end\n") for name, text in roles)]
