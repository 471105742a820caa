"""What the loop of a run is given from outside: time and signals, who keeps the store, who is told things.

`ticks` and `store.kept_store` keep these protocols; tests have scripted ones. Neighbour: `local_run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Ticks(Protocol):
    """Time, and signals: `now_s` is monotonic, `now_us` the node's steady clock, as source timestamps are."""

    @property
    def interrupts(self) -> int: ...

    def now_s(self) -> float: ...

    def now_us(self) -> int: ...

    def wait(self, seconds: float) -> None: ...


class StoreKeeper(Protocol):
    """Keeps the store's process running, beside the run. `restarts` counts how often it had to; `answers` is
    whether the store answered when it was last asked. Nothing here waits."""

    restarts: int
    answers: bool

    def keep(self) -> str:
        """A sentence when to keep it running is hopeless, "" otherwise."""

    def news(self) -> Sequence[str]:
        """What people should know of it, since the last call."""


class Tell(Protocol):
    """Something that people should know."""

    def __call__(self, text: str, *, is_trouble: bool = False) -> None: ...
