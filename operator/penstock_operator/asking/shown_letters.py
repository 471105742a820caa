"""Dead letters as people and machines read them. Neighbours: `asked_shards` has them, `cli.dead_letters`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.store.dead_letters import Place
from penstock.store.letters import TIMER, Letter
from penstock_operator.asking.asked_shards import Listed

_LINE_CHARACTERS = 100


def letter_line(listed: Listed) -> str:
    """Its name, what it is about, and what was raised."""
    raised = listed.letter.raised[:_LINE_CHARACTERS]
    return f"{listed.place}  {_about(listed.letter, listed.rows)}  {raised}"


def letter_text(place: Place, letter: Letter) -> str:
    """All of one."""
    rows = "\n".join(f"  {_json(row)}" for row in letter.rows)
    lines = [
        str(place),
        f"operator  {place.operator}",
        f"shard     {place.shard}",
        *([f"key       {_json(letter.key)}"] if letter.key is not None else []),
        *([f"timer     {letter.expiry_ms}"] if letter.kind == TIMER else []),
        f"when      {_when(letter)}",
        f"where     {letter.place}",
        f"attempts  {letter.attempts}",
        *([f"{letter.kind}:\n{rows}"] if rows else []),
        letter.error,
    ]
    return "\n".join(lines)


def letter_json(place: Place, letter: Letter) -> str:
    """The same as an object, in one line. Rows are as they travel: times are microseconds, dates days."""
    found: dict[str, Any] = {
        "id": str(place),
        "operator": place.operator,
        "shard": place.shard,
        "kind": letter.kind,
        "key": letter.key,
        "rows": letter.rows,
        "timer": letter.expiry_ms,
        "at": _when(letter),
        "place": letter.place,
        "attempts": letter.attempts,
        "error": letter.error,
    }
    return _json(found)


def _about(letter: Letter, rows: int) -> str:
    key = f"key {_json(letter.key)}, " if letter.key is not None else ""
    if letter.kind == TIMER:
        return f"{key}timer {letter.expiry_ms}"
    return f"{key}{rows} {'row' if rows == 1 else 'rows'}"


def _when(letter: Letter) -> str:
    return datetime.fromtimestamp(letter.at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
