"""Names of executors that policies ask for. Neighbours: every policy that adds executors one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection

NameExecutor = Callable[[str, Collection[str]], str]
"""(operator, names in use) -> a name for one more executor of it."""


class CountingNames:
    """Names "<operator>-e1", "<operator>-e2", ...: those in use are left out, none is given twice. Who names
    executors of the same operators beside another one has another `letter`."""

    def __init__(self, letter: str = "e") -> None:
        self._letter = letter
        self._given: dict[str, int] = {}

    def __call__(self, operator: str, in_use: Collection[str]) -> str:
        number = self._given.get(operator, 0) + 1
        while (name := f"{operator}-{self._letter}{number}") in in_use:
            number += 1
        self._given[operator] = number
        return name
