"""Raises the version of the store's protocol: what was released becomes the version before.

`make raise-protocol`, once between two releases, before the first change of the function library: until then
it is what the last release loads. Its text goes into `functions/previous.lua`, and the numbers go up by one.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "core" / "penstock" / "store" / "redis"


def raise_protocol(folder: Path, released: bytes, version: int) -> int:
    """Write `released`, the library of `version`, as the one before, and answer the new version. `folder` has
    the files as `FOLDER` has."""
    (folder / "functions" / "previous.lua").write_bytes(released)
    lua = folder / "functions" / "shared" / "library.lua"
    _replace(lua, rf"^(#!lua name=penstock_){version}$", rf"\g<1>{version + 1}")
    _replace(lua, rf"^(local VERSION = ){version}$", rf"\g<1>{version + 1}")
    _replace(folder / "library.py", rf"^(PROTOCOL_VERSION = ){version}$", rf"\g<1>{version + 1}")
    return version + 1


def _replace(file: Path, pattern: str, by: str) -> None:
    text, count = re.subn(pattern, by, file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if count != 1:
        raise SystemExit(f"{file}: {count} lines are like {pattern!r}, and one should be")
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    from penstock.store.redis.library import PROTOCOL_VERSION, function_library

    raised = raise_protocol(FOLDER, function_library(), PROTOCOL_VERSION)
    told = f"The store's protocol has version {raised}. Now: BEFORE in tests/processes/history.py."
    sys.stdout.write(f"{told}\n")
