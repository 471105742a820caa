"""In a thread's place where a test, or the simulation, gives the turns."""

from __future__ import annotations


class NoThread:
    """Made as any kept thread is; nothing runs."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def start(self) -> None:
        pass

    def join(self, timeout_s: float) -> None:
        pass
