"""Which lines of a worker's log are shown. Neighbour: `cli.state`."""

from __future__ import annotations


def lines_of(text: str, operator: str | None, last: int) -> list[str]:
    """The last lines; with an operator those that name it."""
    return [line for line in text.splitlines() if operator is None or operator in line][-last:]
