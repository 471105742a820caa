"""A record that means nothing, as those say it who decode."""

from __future__ import annotations


class BadRecord(Exception):
    """`index` is its place among those that were given; the text goes behind "the key " or "the value "."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index
